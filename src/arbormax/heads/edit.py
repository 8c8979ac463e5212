"""`am.edit`: edits of a taxonomy, a head or a classifier; the torch part of `arbormax.taxonomy.edits`.

D features.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from arbormax.errors import InputError
from arbormax.heads.base import TreeHead
from arbormax.heads.blended import BlendedSoftmax
from arbormax.heads.calibrated import CalibratedHead
from arbormax.heads.hierarchical import HierarchicalSoftmax
from arbormax.heads.preserve import Preserved, preserve_predictions
from arbormax.heads.sparse import SparseWeight
from arbormax.taxonomy import Taxonomy
from arbormax.taxonomy.edits.from_text import TextSimilarity
from arbormax.taxonomy.edits.plan import Edited, TaxonomyEdits, build, map_merged
from arbormax.taxonomy.edits.rows import HeadRows, NewRows
from arbormax.taxonomy.edits.steps import Edit
from arbormax.taxonomy.labels import join_path, listing

_CHUNK = 1 << 16  # rows that are copied together


def edit(target: Any) -> Edits:
    """Return an empty list of edits of a taxonomy, a head, a module with one head, or a fitted `TextClassifier`.

    A taxonomy and a head are not changed; the result contains new ones. A module and a classifier are changed in place,
    after all edits succeeded.

    >>> import arbormax as am
    >>> tax = am.Taxonomy.from_nested({"mammal": ["cat", "cow"], "bird": [], "fish": []})
    >>> head = am.HierarchicalSoftmax(8, tax)
    >>> edited = am.edit(head).add("dog", under="mammal").split("bird", ["owl", "duck"]).done()
    >>> edited.head.taxonomy.classes
    ('cat', 'cow', 'fish', 'dog', 'owl', 'duck')
    >>> edited.class_map.tolist()  # 'bird' is not a class any more
    [0, 1, -1, 2]
    """
    if isinstance(target, Taxonomy):
        return Edits(target)
    if isinstance(target, TreeHead):
        return Edits(target.taxonomy, target)
    model = target if isinstance(target, nn.Module) else getattr(target, "model_", None)
    if not isinstance(model, nn.Module):
        found = "one that is not fitted" if hasattr(target, "fit") else type(target).__name__
        raise InputError(
            f"edit takes a Taxonomy, a head, an nn.Module that contains a head or a fitted TextClassifier, not {found}"
        )
    heads = {name: module for name, module in model.named_modules() if isinstance(module, TreeHead)}
    for calibrated in [module for module in heads.values() if isinstance(module, CalibratedHead)]:
        heads = {name: module for name, module in heads.items() if module is not calibrated.base}
    if len(heads) != 1:
        found = f"{len(heads)}: {listing(heads)}; edit one of the heads" if heads else "none"
        raise InputError(f"expected one arbormax head in {type(model).__name__}, found {found}")
    name, head = next(iter(heads.items()))
    if getattr(getattr(model, "config", None), "arbormax", None):
        raise InputError(
            f"the config of {type(model).__name__} also contains the taxonomy and the labels, which edit does not "
            f"change; edit its head, {name!r}, and create a new model with the new taxonomy"
        )
    if model is not target and not np.array_equal(target.classes_, np.array(head.taxonomy.classes)):
        raise InputError(f"the classes_ of this {type(target).__name__} differ from its taxonomy's; edit its head")
    return Edits(head.taxonomy, head, target)


class Edits(TaxonomyEdits):
    """A list of edits; `done` applies all of them or, after an error, none."""

    def __init__(self, taxonomy: Taxonomy, head: TreeHead | None = None, owner: Any = None) -> None:
        super().__init__(taxonomy)
        self._calibrated = head if isinstance(head, CalibratedHead) else None
        head = head.base if isinstance(head, CalibratedHead) else head
        self._head, self._owner = head, owner
        # not inherited: the rows and the constructor of a subclass may differ
        if head is not None and vars(type(head)).get("edit_rows") is None:
            raise InputError(f"{type(head).__name__} cannot be edited; it does not define edit_rows")

    def done(self, at: ArrayLike | Tensor | None = None, features: Any = None) -> Edited:
        """Apply the edits; one error reports every edit that is impossible.

        `at` (D,) is the point of the feature space at which new rows have their share, such as the mean feature of the
        training data; by default the origin.

        `features` (n, D), or inputs of a model such as texts, need no labels. At them, the rows of moved nodes are
        fitted so that predictions stay the same as far as possible; without them, at imitations of items.
        """
        head = self._head
        if head is None:
            if at is not None:
                raise InputError("a taxonomy has no features; only a head takes a point", argument="at")
            return super().done()
        has_adapters = bool(getattr(head, "adapter", 0))
        if at is not None and has_adapters:
            raise InputError("a head with adapters has no single point: its features differ by level", argument="at")
        given = torch.zeros(head.in_features) if at is None else at
        point = torch.as_tensor(given, dtype=torch.float64, device="cpu").detach().numpy()
        if point.shape != (head.in_features,) or not np.isfinite(point).all():
            raise InputError(f"expected {head.in_features} finite numbers, found shape {point.shape}", argument="at")
        rows = head.edit_rows(self._taxonomy, _RowReader(head), point)  # type: ignore[misc]  # checked above
        rows.similarity = _similarity(self._owner, self._taxonomy)
        problems = _missing_bias(self._edits, head, rows, at is not None)
        edited, rank = build(self._apply(None if head.device.type == "meta" else rows, problems))
        filled = rows.finish(edited, rank)
        if has_adapters:
            _check_levels(self._taxonomy, edited.taxonomy, filled)
        new = _new_head(head, edited.taxonomy, filled)
        preserved = None
        moved = [node for node in dict.fromkeys(rows.moved_nodes) if edited.node_map[node] > 0]
        if (moved or rows.merged_nodes) and not has_adapters and head.device.type != "meta":
            known = None if features is None else _read_features(features, head, self._owner)
            preserved = preserve_predictions(head, new, edited, moved, known)
        if self._calibrated is not None:
            head, new = self._calibrated, self._calibrated.carry_to(new, edited.node_map)
        edited = replace(edited, row_map=_row_map(head, new, edited, filled))
        if preserved is not None:
            nodes = new.row_nodes()[preserved.rows]
            groups = np.union1d(edited.touched, edited.taxonomy.parent[nodes])
            edited = replace(edited, kept=preserved.kept, touched=groups)
        if self._owner is not None:
            _replace(self._owner, head, new)
            _follow(self._owner, edited)
        edited = map_merged(_describe_rows(edited, new, filled, preserved), self._taxonomy)
        return replace(edited, head=new, model=self._owner)


def _row_map(old: TreeHead, new: TreeHead, edited: Edited, rows: NewRows) -> np.ndarray:
    """(R,) the old row of each row of the new head, -1 for new rows; a class keeps its row if others join it."""
    found = np.full(len(rows.source) + len(rows.fresh), -1, np.int64)
    found[rows.target] = rows.source
    for now in set(edited.merged.values()) - {-1}:
        for node in np.flatnonzero(edited.node_map == now).tolist():
            found[new.row_nodes() == now] = np.flatnonzero(old.row_nodes() == node)
    return found


def _describe_rows(edited: Edited, new: TreeHead, rows: NewRows, preserved: Preserved | None) -> Edited:
    """The edits with their summary of rows."""
    assert edited.row_map is not None
    fitted = np.zeros(0, np.int64) if preserved is None else preserved.rows
    changed = [*rows.fresh_nodes.tolist(), *new.row_nodes()[fitted].tolist()]
    fresh = np.array(list(dict.fromkeys(changed)), np.int64)  # a class may have two new rows
    names = ": " + listing(join_path(edited.taxonomy.path(node)) for node in fresh.tolist()) if len(fresh) else ""
    copied = len(np.setdiff1d(rows.target, fitted))
    nodes = () if preserved is None else preserved.nodes
    notes = [
        f"rows: {copied:,} copied bit for bit, {len(fresh):,} new or fitted{names}",
        *_describe_kept(edited, nodes),
    ]
    return replace(edited, new_rows=fresh, changed="\n".join([edited.changed, *notes]))


def _describe_kept(edited: Edited, nodes: tuple[int, ...]) -> list[str]:
    """Lines for the nodes whose predictions may change, with the share that stays the same where it was measured."""
    paths = {node: join_path(edited.taxonomy.path(node)) for node in nodes}
    lines = [
        f"notice: {share:.0%} of the predictions of {paths[node]!r} stay the same"
        + "; to repair the others, continue the training with examples" * (share < 1)
        for node, share in edited.kept.items()
    ]
    if unknown := [paths[node] for node in nodes if node not in edited.kept]:
        lines.append(
            f"notice: how many predictions of {listing(unknown)} stay the same is not known; give unlabelled items of "
            "these classes to keep more of them and to measure it, and continue the training with examples to repair "
            "the others"
        )
    return lines


def _read_features(given: Any, head: TreeHead, owner: Any) -> Tensor:
    """(n, D) the features that were given, or those of inputs of a model."""
    model = owner if isinstance(owner, nn.Module) else getattr(owner, "model_", None)
    encode = getattr(model, "features", None)
    is_tensor = isinstance(given, Tensor)
    if not is_tensor and encode is not None:
        parts = list(encode(given))
        given = torch.cat(parts) if parts else torch.zeros(0, head.in_features)
    elif not is_tensor:
        given = torch.as_tensor(np.asarray(given))
    if given.dim() != 2 or given.shape[1] != head.in_features or not len(given):
        message = f"expected (n, {head.in_features}) features, found the shape {tuple(given.shape)}"
        raise InputError(message, argument="features")
    found: Tensor = given.detach().to(head.device, torch.float32)
    return found


def _similarity(owner: Any, tax: Taxonomy) -> TextSimilarity | None:
    """How the encoder of a model compares texts; None if there is no encoder of texts."""
    model = owner if isinstance(owner, nn.Module) else getattr(owner, "model_", None)
    encode = getattr(model, "features", None)
    if encode is None or not getattr(getattr(model, "encoder", None), "takes_texts", False):
        return None

    def similarity(nodes: np.ndarray, text: str) -> tuple[np.ndarray, np.ndarray]:
        texts = [*(tax.texts[node] for node in nodes.tolist()), text]
        features = torch.cat(list(encode(texts))).double()
        products = (features @ features.T).to_dense().cpu().numpy()
        lengths = np.sqrt(np.maximum(np.diag(products), 1e-30))
        products = products / np.outer(lengths, lengths)
        return products[:-1, :-1], products[:-1, -1]

    return similarity


class _RowReader:
    """The rows of a head as numpy arrays."""

    def __init__(self, head: TreeHead) -> None:
        self._head, self.in_features = head, head.in_features

    def weight(self, rows: np.ndarray) -> np.ndarray:
        sparse = self._head.sparse_weight
        if sparse is None:
            return _read(self._head.weight, rows)
        positions, columns, values = sparse.read(rows)
        weight = np.zeros((len(rows), self.in_features))
        weight[positions, columns] = values
        return weight

    def bias(self, rows: np.ndarray) -> np.ndarray:
        return np.zeros(len(rows)) if self._head.bias is None else _read(self._head.bias, rows)

    def log_priors(self) -> np.ndarray | None:
        priors: Tensor | None = getattr(self._head, "log_priors", None)
        if priors is None or priors.is_meta or not bool(priors.any()):
            return None
        return priors.detach().cpu().double().numpy()

    def path_share(self) -> float:
        share: Tensor | None = getattr(self._head, "path_share", None)
        return 1.0 if share is None or share.is_meta else float(share)


def _read(parameter: Tensor, rows: np.ndarray) -> np.ndarray:
    values: np.ndarray = parameter.detach()[torch.from_numpy(rows).to(parameter.device)].cpu().double().numpy()
    return values


def _missing_bias(edits: list[Edit], head: TreeHead, rows: HeadRows, has_point: bool) -> list[str]:
    """The edits that need a bias, if the head has none."""
    if head.bias is not None:
        return []
    kind = type(head).__name__
    problems = [
        f"{each}: {what} needs a bias, and this {kind} has none"
        for each in edits
        for what, needed in (
            ("a share", each.share is not None),
            ("a list of shares", each.shares is not None),
            ("keeping the probability of a split class", each.kind == "split" and rows.splits_need_bias),
        )
        if needed
    ]
    return problems + ([f"at: a point needs a bias, and this {kind} has none"] if has_point else [])


@torch.no_grad()
def _new_head(old: TreeHead, tax: Taxonomy, rows: NewRows) -> TreeHead:
    """Return a head like the old one with another taxonomy and other rows."""
    options = {name: getattr(old, name) for name in ("sparse", "impl", "adapter") if hasattr(old, name)}
    options |= {
        "device": old.device,
        "dtype": old.dtype,
        "init": "zeros",
        "sparse_weight": old.sparse_weight is not None,
    }
    new = type(old)(old.in_features, tax, bias=old.bias is not None, **options)
    new.init = old.init
    new.train(old.training)
    for name, parameter in new.named_parameters():
        parameter.requires_grad_(old.get_parameter(name).requires_grad)
    pairs = []
    if new.sparse_weight is not None and old.sparse_weight is not None:
        _copy_sparse(old.sparse_weight, new.sparse_weight, rows)
    else:
        pairs.append((new.weight, old.weight, rows.weight))
    if new.bias is not None and old.bias is not None:
        pairs.append((new.bias, old.bias, rows.bias))
    source, target, fresh = (torch.from_numpy(each).to(old.device) for each in (rows.source, rows.target, rows.fresh))
    for into, values, started in pairs:
        for take, put in zip(torch.split(source, _CHUNK), torch.split(target, _CHUNK), strict=True):
            into[put] = values[take]
        into[fresh] = torch.from_numpy(started).to(into)
    if isinstance(old, HierarchicalSoftmax) and isinstance(new, HierarchicalSoftmax):
        _copy_adapters(old, new)
    if isinstance(old, BlendedSoftmax) and isinstance(new, BlendedSoftmax):
        new.path_share.copy_(old.path_share)
    if rows.log_priors is not None:
        new.get_buffer("log_priors").copy_(torch.from_numpy(rows.log_priors))
    return new


def _copy_sparse(old: SparseWeight, new: SparseWeight, rows: NewRows) -> None:
    positions, columns, values = old.read(rows.source)
    fresh, fresh_columns = rows.weight.nonzero()
    new.set_rows(
        np.concatenate([rows.target[positions], rows.fresh[fresh]]),
        np.concatenate([columns, fresh_columns]),
        np.concatenate([values, rows.weight[fresh, fresh_columns].astype(values.dtype)]),
    )


def _copy_adapters(old: HierarchicalSoftmax, new: HierarchicalSoftmax) -> None:
    """Copy the adapters of the levels that both trees have; those of new levels are the identity."""
    if old.adapters is None or new.adapters is None:
        return
    levels = min(old.taxonomy.depth, new.taxonomy.depth)
    for name, parameter in new.adapters.named_parameters():
        parameter[:levels] = old.adapters.get_parameter(name)[:levels]


def _check_levels(old: Taxonomy, new: Taxonomy, rows: NewRows) -> None:
    """Raise if a row was copied to another level, where adapters give it other features."""
    moved = rows.target[old.node_depth[rows.source + 1] != new.node_depth[rows.target + 1]] + 1
    if len(moved):
        listed = listing(join_path(new.path(node)) for node in moved.tolist())
        raise InputError(
            f"these edits change the level of {listed}, but the adapters of this head differ by level; train a new "
            "head, or one without adapters"
        )


def _follow(owner: Any, edited: Edited) -> None:
    """Tell a model of arbormax that its taxonomy has changed."""
    model = owner if isinstance(owner, nn.Module) else owner.model_
    if callable(follow := getattr(model, "follow_edit", None)):
        follow(edited)


def _replace(owner: Any, old: TreeHead, new: TreeHead) -> None:
    """Replace the old head wherever a module contains it."""
    model: nn.Module = owner if isinstance(owner, nn.Module) else owner.model_
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if module is old:
            parent, _, attribute = name.rpartition(".")
            setattr(model.get_submodule(parent), attribute, new)
    if owner is not model:  # a TextClassifier
        owner.taxonomy = owner.taxonomy_ = new.taxonomy
        owner.classes_ = np.array(new.taxonomy.classes)
