"""Preserve the predictions of nodes that an edit has moved or merged: the new head learns from the old one.

The score that a node needs among its new siblings is not linear in the features, and a row is; neither is the score of
two classes in one. So the rows on the old and the new path are fitted to the probabilities of the old head: at features
that are given, or at imitations of the items of each class, which follow from the rows themselves.

B items, D features, R rows, C classes of the old head that the new one still has, S imitated classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from arbormax.functional import flat_node_log_probs
from arbormax.heads.base import TreeHead
from arbormax.heads.blended import BlendedSoftmax
from arbormax.heads.sparse import SparseWeight
from arbormax.heads.update import RowPrior, update_rows
from arbormax.taxonomy.edits import Edited

_MOST_CLASSES = 512  # that are imitated
_LEAST_ITEMS, _MOST_ITEMS, _CELLS = 64, 4000, 1 << 23  # items, and numbers of a (B, C) matrix
_HELD_OUT = 5  # every fifth item that is given measures the loss
_TERMS, _DRAWN = 1000, 25  # features of a class in a sparse head, and how many of them are in one item
_OTHER = 0.5  # share of another class in an item, so that the items are not all clear

_BACKGROUND = 0.7  # length of the features that say nothing about the class, relative to those of the class
_USUAL = 0.75  # mean probability of the classes of the items, relative to the largest that any scale gives
_FEW = 50  # items of an edited node, below which imitations are added
_SCALES = [2.0**power for power in range(-4, 13)]
_STRENGTH = 20.0  # of the fit, as that of the convex solver for dense features


@dataclass(frozen=True)
class Preserved:
    """The rows that were fitted, and how well the new head predicts like the old one."""

    rows: np.ndarray
    nodes: tuple[int, ...]  # the moved and merged nodes of the new taxonomy, whose predictions may change
    kept: dict[int, float]  # those with predictions among the given items: the share of them that stay the same


def preserve_predictions(
    old: TreeHead, new: TreeHead, edited: Edited, moved: list[int], features: Tensor | None
) -> Preserved:
    """Fit the rows of the new head on the paths of moved nodes and merged classes, in place.

    `moved` and `edited.merged` are nodes of the old taxonomy; `edited.node_map` maps merged classes to -1.
    """
    joined = {node: now for node, now in edited.merged.items() if now > 0}
    concerned = [*moved, *joined, *_old_nodes(edited, joined)]
    some, held_out = _choose_items(old, concerned, features)
    node_map = edited.node_map.copy()
    for node, now in joined.items():
        node_map[node] = now
    leaves = node_map[old.taxonomy.leaves]
    known = np.flatnonzero(leaves > 0)
    if not len(known):
        return Preserved(np.zeros(0, np.int64), (), {})
    nodes, column = np.unique(leaves[known], return_inverse=True)
    nodes_C, column_K = (torch.from_numpy(each).to(old.device) for each in (nodes, column))

    @torch.no_grad()
    def wanted(items: Tensor) -> Tensor:
        chances_BK = old(items.to(old.dtype)).float()[:, torch.from_numpy(known).to(old.device)].softmax(-1)
        return torch.zeros(len(items), len(nodes), device=old.device).index_add_(1, column_K, chances_BK)

    target_BC = wanted(some)

    def log_probs(logp: Tensor) -> Tensor:
        found: Tensor = flat_node_log_probs(logp, new.taxonomy).index_select(-1, nodes_C).log_softmax(-1)
        return found

    def loss(logp: Tensor, place: slice) -> Tensor:
        total: Tensor = -(target_BC[place] * log_probs(logp)).sum()
        return total

    rows = _rows_to_fit(old, new, edited, moved, joined)
    update_rows(new, some, loss, RowPrior(_mean_square(some) / _STRENGTH, updates_bias=False), rows)
    changed = tuple(dict.fromkeys([*(int(edited.node_map[node]) for node in moved), *joined.values()]))
    kept = {}
    if held_out is not None:
        with torch.no_grad():
            found_BC = log_probs(new(held_out.to(new.dtype)).float())
        before, after = (nodes[each.argmax(-1).cpu().numpy()] for each in (wanted(held_out), found_BC))
        for now in changed:
            is_below = new.taxonomy.lca(before, np.full_like(before, now)) == now
            if is_below.any():
                kept[now] = float((before == after)[is_below].mean())
    return Preserved(rows, changed, kept)


def _choose_items(old: TreeHead, concerned: list[int], features: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The items for the fit, and those that are held out of it to measure the loss; None if no items are given.

    Of many items, those that the old head predicts below the edited nodes come first. If there are few of them,
    imitations are added to the fit.
    """
    most = max(_LEAST_ITEMS, min(_MOST_ITEMS, _CELLS // old.taxonomy.num_leaves))
    if features is None:
        return _imitate(old, concerned, most), None
    is_below = torch.from_numpy(_classes_below(old, concerned)).to(old.device)
    chance = torch.zeros(len(features), device=old.device)
    with torch.no_grad():
        for start in range(0, len(features), most):
            places = torch.arange(start, min(start + most, len(features)), device=old.device)
            chance[places] = old(features.index_select(0, places).to(old.dtype)).float()[:, is_below].exp().sum(1)
    order = chance.argsort(descending=True, stable=True)
    if len(order) > most:
        rest = order[most // 3 :]
        spaced = torch.linspace(0, len(rest) - 1, most - most // 3, device=old.device).long()
        order = torch.cat([order[: most // 3], rest[spaced]])
    is_held_out = torch.arange(len(order), device=old.device) % _HELD_OUT == 0  # of all chances alike
    fitted, held_out = features.index_select(0, order[~is_held_out]), features.index_select(0, order[is_held_out])
    if int((chance > 0.5).sum()) < _FEW * len(concerned):
        imitated = _imitate(old, concerned, most)
        is_dense = fitted.layout == torch.strided
        fitted = torch.cat([fitted, imitated.to_dense() if is_dense else imitated.to_sparse(layout=fitted.layout)])
    return fitted, held_out


def _classes_below(head: TreeHead, nodes: list[int]) -> np.ndarray:
    """(C,) whether each class is at or below any of these nodes."""
    leaves = head.taxonomy.leaves
    is_below = np.zeros(len(leaves), bool)
    for node in nodes:
        is_below |= head.taxonomy.lca(leaves, np.full_like(leaves, node)) == node
    return is_below


def _old_nodes(edited: Edited, joined: dict[int, int]) -> list[int]:
    """The nodes of the old taxonomy that classes were merged into."""
    return np.flatnonzero(np.isin(edited.node_map, list(joined.values()))).tolist()


def _rows_to_fit(old: TreeHead, new: TreeHead, edited: Edited, moved: list[int], joined: dict[int, int]) -> np.ndarray:
    """The rows of the steps that the edits change: of the nodes themselves, and of their old and new ancestors.

    Of a merged class with a row of its own, this row is fitted, too.
    """
    tax, nodes = new.taxonomy, []
    for node, now in [*((node, int(edited.node_map[node])) for node in moved), *joined.items()]:
        before = {n for n in edited.node_map[old.taxonomy.ancestors(node)].tolist() if n >= 0}
        nodes += [now, *before.symmetric_difference(tax.ancestors(now))]
    competing = [n for n in set(nodes) if n > 0 and (len(tax.children(tax.parent[n])) > 1 or not new.sibling_options)]
    is_step = np.isin(new.row_nodes(), competing)
    if isinstance(new, BlendedSoftmax):  # a moved class keeps its own row
        is_own = np.isin(np.arange(len(is_step)), new.class_rows(tax))
        is_step = np.where(is_own, np.isin(new.row_nodes(), list(joined.values())), is_step)
    return np.flatnonzero(is_step)


def _imitate(head: TreeHead, moved: list[int], count: int) -> Tensor:
    """(B, D) features like those of items of the classes; half of them are of the moved classes."""
    draw = np.random.default_rng(0)
    is_moved = _classes_below(head, moved)
    groups = [draw.permutation(np.flatnonzero(part))[: _MOST_CLASSES // 2] for part in (is_moved, ~is_moved)]
    classes = np.concatenate(groups)
    chances = np.concatenate([np.full(len(group), 0.5 / max(1, len(group))) for group in groups])
    first = draw.choice(len(classes), count, p=chances / chances.sum())
    second = draw.integers(0, len(classes), count)
    directions = _directions(head, torch.from_numpy(classes).to(head.device))
    both = (directions.index_select(0, torch.from_numpy(each).to(head.device)) for each in (first, second))
    own, other = (_draw_terms(part, draw) for part in both)
    items = own + _OTHER * other
    if head.sparse_weight is not None:
        items = items + _BACKGROUND * _draw_background(head.sparse_weight, count, draw)
    scale = _scale(head, items, torch.from_numpy(classes[first]).to(head.device))
    return items * scale


def _draw_background(weight: SparseWeight, count: int, draw: np.random.Generator) -> Tensor:
    """(B, D) random features; features that many rows use are frequent."""
    used = weight.columns.cpu().numpy()
    columns = used[draw.integers(0, len(used), (count, _DRAWN))]
    rows = np.repeat(np.arange(count), columns.shape[1])
    places = torch.from_numpy(np.stack([rows, columns.ravel()]))
    values = torch.full((places.shape[1],), columns.shape[1] ** -0.5)
    return torch.sparse_coo_tensor(places, values, (count, weight.in_features)).coalesce().to(weight.values.device)


def _directions(head: TreeHead, classes: Tensor) -> Tensor:
    """(S, D) vectors of length one: the direction in which the log-probability of each class rises fastest at zero.

    Those of a sparse head, whose features are not negative, have the largest values only.
    """
    start = torch.zeros(0) if head.bias is None else head.bias.detach().float()
    start = start if len(start) else torch.zeros(head.num_rows(head.taxonomy), device=head.device)
    parts = []
    for some in torch.split(classes, 64):
        scores = start.repeat(len(some), 1).requires_grad_()
        head.leaf_log_probs_from(scores)[torch.arange(len(some), device=head.device), some].sum().backward()  # type: ignore[no-untyped-call]
        assert scores.grad is not None
        parts.append(_times_rows(head, scores.grad))
    return torch.cat(parts)


def _times_rows(head: TreeHead, factors: Tensor) -> Tensor:
    """(S, D) the sum of the rows of a head, each times its factor (S, R), as vectors of length one."""
    if head.sparse_weight is None:
        return torch.nn.functional.normalize(factors @ head.weight.detach().float(), dim=1)
    weight = head.sparse_weight
    places = torch.stack([weight.columns, weight.rows.long()])
    shape = head.in_features, head.num_rows(head.taxonomy)
    transposed = torch.sparse_coo_tensor(places, weight.values.detach().float(), shape)
    values, columns = torch.sparse.mm(transposed, factors.T).T.topk(min(_TERMS, head.in_features), dim=1)
    values = torch.nn.functional.normalize(values.clamp(min=0), dim=1)
    rows = torch.arange(len(values), device=values.device)[:, None].expand_as(columns)
    places = torch.stack([rows.flatten(), columns.flatten()])
    return torch.sparse_coo_tensor(places, values.flatten(), (len(values), head.in_features)).coalesce()


def _draw_terms(vectors: Tensor, draw: np.random.Generator) -> Tensor:
    """Sparse vectors with some of their values, and dense ones as they are."""
    if vectors.layout == torch.strided:
        return vectors
    vectors = vectors.coalesce()
    values, rows = vectors.values().square(), vectors.indices()[0]
    totals = values.new_zeros(len(vectors)).index_add_(0, rows, values)
    chances = _DRAWN * values / totals[rows]
    is_kept = torch.from_numpy(draw.random(len(values))).to(values) < chances
    same = torch.full((int(is_kept.sum()),), _DRAWN**-0.5)
    return torch.sparse_coo_tensor(vectors.indices()[:, is_kept], same, vectors.shape).coalesce()


def _scale(head: TreeHead, items: Tensor, classes: Tensor) -> float:
    """The factor of the items with which the mean probability of their classes is usual."""
    classes = classes[:200]
    few = items.index_select(0, torch.arange(len(classes), device=head.device))
    with torch.no_grad():
        scores = [head((scale * few).to(head.dtype)).float() for scale in _SCALES]
    means = [float(logp.gather(1, classes[:, None]).exp().mean()) for logp in scores]
    return next(scale for scale, mean in zip(_SCALES, means, strict=True) if mean >= _USUAL * max(means))


def _mean_square(items: Tensor) -> float:
    values = items if items.layout == torch.strided else items.coalesce().values()
    return max(float(values.float().square().sum()) / max(len(items), 1), 1e-12)
