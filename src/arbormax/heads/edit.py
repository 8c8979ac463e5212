"""`am.edit`: edits of a taxonomy that a head follows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from arbormax.errors import InputError
from arbormax.heads._edit_rows import FlatRows, HierarchicalRows, Rows, SharedRows
from arbormax.heads.base import TreeHead
from arbormax.heads.flat import FlatSoftmax
from arbormax.heads.hierarchical import HierarchicalSoftmax
from arbormax.heads.shared import SharedSoftmax
from arbormax.taxonomy import Taxonomy
from arbormax.taxonomy._edit import Edit, Edited, TaxonomyEdits, apply, build
from arbormax.taxonomy.labels import join_path, listing

_KINDS: dict[type[TreeHead], type[Rows]] = {
    HierarchicalSoftmax: HierarchicalRows,
    FlatSoftmax: FlatRows,
    SharedSoftmax: SharedRows,
}


def edit(of: Any) -> Edits:
    """The edits of a taxonomy, a head, a module with one head in it, or a fitted `TextClassifier`; `done` makes them.

    A taxonomy and a head stay as they are and new ones are given back. A module and a classifier are changed in place:
    their head is swapped once everything is made.

    >>> import arbormax as am
    >>> tax = am.Taxonomy.from_nested({"mammal": ["cat", "cow"], "bird": [], "fish": []})
    >>> head = am.HierarchicalSoftmax(8, tax)
    >>> edited = am.edit(head).add("dog", under="mammal").split("bird", ["owl", "duck"]).done()
    >>> edited.head.taxonomy.classes
    ('cat', 'cow', 'fish', 'dog', 'owl', 'duck')
    >>> edited.class_map.tolist()  # 'bird' is no class any more
    [0, 1, -1, 2]
    """
    if isinstance(of, Taxonomy):
        return Edits(of)
    if isinstance(of, TreeHead):
        return Edits(of.taxonomy, _known(of))
    model = of if isinstance(of, nn.Module) else getattr(of, "model_", None)
    if not isinstance(model, nn.Module):
        raise InputError(
            "edit takes a Taxonomy, a head, an nn.Module with a head in it or a fitted TextClassifier, not "
            f"{'one that is not fitted' if hasattr(of, 'fit') else type(of).__name__}"
        )
    heads = {name: module for name, module in model.named_modules() if isinstance(module, TreeHead)}
    if len(heads) != 1:
        found = f"{len(heads)}: {listing(heads)}; edit the head itself" if heads else "none"
        raise InputError(f"{type(model).__name__} has to have one head of arbormax in it, found {found}")
    head = _known(next(iter(heads.values())))
    if getattr(getattr(model, "config", None), "arbormax", None):
        raise InputError(
            f"the config of {type(model).__name__} holds its taxonomy and its labels too, which edit leaves alone; "
            f"edit its head, {next(iter(heads))!r}, and give the new taxonomy to a new model"
        )
    if model is not of and not np.array_equal(of.classes_, np.array(head.taxonomy.classes)):
        raise InputError(f"this {type(of).__name__} writes its classes otherwise than its taxonomy; edit its head")
    return Edits(head.taxonomy, head, of)


class Edits(TaxonomyEdits):
    """A list of edits to come; `done` makes them, all or none."""

    def __init__(self, taxonomy: Taxonomy, head: TreeHead | None = None, holder: Any = None) -> None:
        super().__init__(taxonomy)
        self._head, self._holder = head, holder

    def done(self, at: ArrayLike | Tensor | None = None) -> Edited:
        """Make the edits; one error tells all that cannot be.

        `at` (D,) is the point of the features where new rows have their share, such as the mean feature of your data;
        it is the origin unless given.
        """
        head = self._head
        if head is None:
            if at is not None:
                raise InputError("at= is a point of a head's features, and a taxonomy has none")
            return super().done()
        point = None if at is None else torch.as_tensor(at, dtype=torch.float64, device="cpu").detach()
        if point is not None and (point.shape != (head.in_features,) or not bool(point.isfinite().all())):
            raise InputError(
                f"at is one finite feature of size {head.in_features}, found the shape {tuple(point.shape)}"
            )
        self._checked(_needs_of_bias(self._edits, head, point))
        rows = _KINDS[type(head)](head, None if point is None else point.numpy())
        tree, _ = apply(self._taxonomy, self._edits, None if head.weight.is_meta else rows)
        edited, rank = build(tree)
        new, fresh = rows.carry_over(edited, rank)
        told = [repr(join_path(edited.taxonomy.path(node))) for node in fresh[:8].tolist()]
        note = (
            f"rows: {len(new.weight) - len(fresh):,} carried over bit for bit, {len(fresh):,} new"
            f"{': ' + ', '.join(told) if told else ''}{', …' if len(fresh) > 8 else ''}"
        )
        changed = edited.changed + "\n" + note
        if self._holder is not None:
            _put(self._holder, head, new)
        return replace(edited, head=new, model=self._holder, new_rows=fresh, changed=changed)


def _known(head: TreeHead) -> TreeHead:
    if type(head) not in _KINDS:
        names = ", ".join(kind.__name__ for kind in _KINDS)
        raise InputError(f"edit knows the rows of {names}, not of {type(head).__name__}")
    return head


def _needs_of_bias(edits: list[Edit], head: TreeHead, point: Tensor | None) -> list[str]:
    """What a head without a bias cannot hold."""
    if head.bias is not None:
        return []
    hierarchical = isinstance(head, HierarchicalSoftmax)
    needs = [
        f"{one}: {why} needs a bias, and this {type(head).__name__} has none"
        for one in edits
        for why, asked in (
            ("a share", one.share is not None),
            ("shares", one.shares is not None),
            ("keeping the probability of a class that is split", one.kind == "split" and not hierarchical),
        )
        if asked
    ]
    return needs + ([f"at= needs a bias, and this {type(head).__name__} has none"] if point is not None else [])


def _put(holder: Any, old: TreeHead, new: TreeHead) -> None:
    """Put the new head wherever the old one is held."""
    model: nn.Module = holder if isinstance(holder, nn.Module) else holder.model_
    for parent in model.modules():
        for name, child in list(parent._modules.items()):  # noqa: SLF001 - named_children shows a shared one once
            if child is old:
                setattr(parent, name, new)
    if holder is not model:  # a TextClassifier
        holder.taxonomy = holder.taxonomy_ = new.taxonomy
        holder.classes_ = np.array(new.taxonomy.classes)
