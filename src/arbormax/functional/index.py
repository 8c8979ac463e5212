"""A taxonomy as index tensors on one device, made once and shared by every function and head.

N nodes, M = N - 1 columns (column j is node j + 1), C classes, G sibling groups, K = depth, S = a group's size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from arbormax.taxonomy import Taxonomy

STOP = -100  # the position of a step that a short path does not have; cross entropy leaves it out
_TABLE_CELLS = 1 << 19  # up to here the windows of all nodes are looked up in a table, beyond they are computed
_LEVELS = 2  # levels up to which, and columns per cell of a path up to which, masked levels are cheaper than windows
_LEVEL_RATIO = 2
_PATH_RATIO = 32  # leaf paths are listed while they are this many times longer than the tree at most
_MATRIX_CELLS = 1 << 14  # up to here sums along the paths are a matrix product
_SLAB_CELLS = 1 << 12  # padding that is cheaper than one more round of kernels


@dataclass(frozen=True, eq=False)
class Buckets:
    """Sibling groups sorted by size, so that all groups of one size are one dense softmax."""

    order: Tensor | None  # rows in bucket order; None: they are in that order already
    shapes: tuple[tuple[int, int], ...]  # groups × size of each bucket


@dataclass(frozen=True, eq=False)
class Fold:
    """How the inner nodes of one level come from the level below, whose leaves and inner nodes stand in `buckets`."""

    classes: Tensor  # the classes of the lower level's leaves; its inner nodes follow, as its own fold gave them
    buckets: Buckets


class Windows(NamedTuple):
    """For each of B paths and each step of a slab of levels: the columns of the sibling group, padded to one width."""

    columns: Tensor  # (B, K * S) int64
    padding: Tensor  # (B, K * S) 0 on siblings, -inf on padding
    position: Tensor  # (B, K) where the path's own node stands in its group, STOP past the path's end
    width: int  # S

    @property
    def nodes(self) -> Tensor:
        """(B, K) the path's own node, the root past the path's end."""
        start_BK = self.columns[:, :: self.width]
        return torch.where(self.position < 0, 0, start_BK + self.position + 1)


class Level(NamedTuple):
    """For each of C classes, one level of the tree, its L columns side by side, as a softmax over one sibling group.

    A path that has ended before has a group of one there, which costs nothing.
    """

    mask: Tensor | None  # (C, L) 0 on the sibling group, -inf elsewhere; None: the level is one group
    position: Tensor | None  # (C,) the path's own node; None: the class ids themselves, which the mask has checked


@dataclass(frozen=True, eq=False)
class TreeIndex:
    num_nodes: int
    num_leaves: int
    depth: int
    leaves: Tensor  # (C,)
    parent: Tensor  # (N,), the root's own is 0
    class_of: Tensor  # (N,) -1 off leaves
    first_child: Tensor  # (N,) 0 on leaves
    num_children: Tensor  # (N,)
    node_depth: Tensor  # (N,)
    group_start: Tensor  # (N,) first column of the node's sibling group
    group_size: Tensor  # (N,)
    leaf_counts: Tensor  # (N,)
    path_width: float  # the siblings on the path to a class, all steps together, mean over the classes
    levels: tuple[int, ...]  # the number of nodes at depth 1, 2, …
    lifts: tuple[Tensor, ...]  # for depth 2, 3, …: each node's parent as a position in the level above
    leaf_paths: tuple[Tensor, Tensor] | None  # the columns on the way to each class, and where each class's begin
    path_matrix: Tensor | None  # (C, M) float32, 1 on the way to each class, in a small tree
    siblings: Buckets  # all groups, over columns
    siblings_back: Tensor | None  # (M,) where each column stands in bucket order
    folds: tuple[Fold, ...]  # for depth K - 1 up to 1
    folds_back: Tensor  # (M,) where each non-root node stands among the classes followed by what the folds give
    slabs: tuple[tuple[int, int, int], ...]  # (first depth, last depth, width) of the windows of each slab
    node_table: Windows | None  # the windows of every node, in a small tree
    class_table: Windows | None  # the windows of every class
    class_levels: tuple[Level, ...] | None  # the levels of every class, in a tree so small that masks are cheaper


def tree_index(tax: Taxonomy, device: torch.device) -> TreeIndex:
    """The index of a taxonomy on a device, made at the first call and kept with the taxonomy."""
    index: TreeIndex | None = tax.scratch.get(device)
    if index is None:
        # A first call while a graph is captured, or in inference mode, must still leave ordinary tensors behind.
        with _disable_current_modes(), torch.inference_mode(False):
            index = tax.scratch[device] = _build(tax, device)
    return index


# What torch.compiler.assume_constant_result does, without loading the whole compiler with `import arbormax`. Before
# torch 2.13 a taxonomy cannot be a constant: there the look-up is traced and finds what a head made when it was built.
_TAKES_CONSTANTS = [int(part) for part in torch.__version__.split(".")[:2]] >= [2, 13]
tree_index._dynamo_marked_constant = _TAKES_CONSTANTS  # type: ignore[attr-defined]  # noqa: SLF001


def path_windows(index: TreeIndex, target_B: Tensor, kind: Literal["class", "node"]) -> list[Windows]:
    """The sibling groups on the way to each target, one `Windows` per slab of levels.

    In eager CPU code a target that is out of range is an IndexError.
    """
    table = index.class_table if kind == "class" else index.node_table
    if table is None:
        return _compute_windows(index, target_B if kind == "node" else index.leaves.index_select(0, target_B))
    return [_rows(table, target_B)]


def _rows(table: Windows, rows_B: Tensor) -> Windows:
    return Windows(
        table.columns.index_select(0, rows_B),
        table.padding.index_select(0, rows_B),
        table.position.index_select(0, rows_B),
        table.width,
    )


def path_nodes(index: TreeIndex, nodes_B: Tensor) -> list[Tensor]:
    """For depth 1, 2, …: (B,) the node on the way to each of these nodes, the root past the path's end."""
    path = []
    for depth in range(index.depth, 0, -1):
        here = index.node_depth.index_select(0, nodes_B) == depth  # not [nodes_B], where -1 would be the last node
        path.append(torch.where(here, nodes_B, 0))
        nodes_B = torch.where(here, index.parent[nodes_B], nodes_B)
    return path[::-1]


def _compute_windows(index: TreeIndex, nodes_B: Tensor) -> list[Windows]:
    path = path_nodes(index, nodes_B)
    windows = []
    for first, last, width in index.slabs:
        nodes_BK = torch.stack(path[first - 1 : last], dim=-1)
        start_BK, size_BK = index.group_start[nodes_BK], index.group_size[nodes_BK]
        offset_S = torch.arange(width, device=nodes_B.device)
        columns_BKS = (start_BK.unsqueeze(-1) + offset_S).clamp(max=index.num_nodes - 2)
        padding_BKS = torch.where(offset_S < size_BK.unsqueeze(-1), 0.0, -torch.inf)
        position_BK = torch.where(nodes_BK > 0, nodes_BK - 1 - start_BK, STOP)
        windows.append(Windows(columns_BKS.flatten(1), padding_BKS.flatten(1), position_BK, width))
    return windows


def _build(tax: Taxonomy, device: torch.device) -> TreeIndex:
    def tensor(array: np.ndarray) -> Tensor:
        return _of_fixed_shape(torch.from_numpy(np.array(array)).to(device))

    group_start = tax.child_start[np.maximum(tax.parent, 0)] - 1
    group_size = tax.num_children[np.maximum(tax.parent, 0)]
    level_sizes = np.diff(tax.level_start)[1:]
    starts = tax.level_start.tolist()
    order, shapes = _bucket_order(tax.num_children[np.flatnonzero(tax.num_children)])
    in_order = np.array_equal(order, np.arange(len(order)))
    folds, folds_back = _folds(tax, tensor)
    slabs = _slabs([int(tax.num_children[starts[d] : starts[d + 1]].max()) for d in range(tax.depth)])
    index = TreeIndex(
        num_nodes=tax.num_nodes,
        num_leaves=tax.num_leaves,
        depth=tax.depth,
        leaves=tensor(tax.leaves),
        parent=tensor(np.maximum(tax.parent, 0)),
        class_of=tensor(tax.class_of),
        num_children=tensor(tax.num_children),
        first_child=tensor(np.where(tax.is_leaf, 0, tax.child_start[:-1])),
        node_depth=tensor(tax.node_depth),
        group_start=tensor(group_start),
        group_size=tensor(group_size),
        leaf_counts=tensor(tax.leaf_counts),
        path_width=float((tax.num_children * tax.leaf_counts).sum() / tax.num_leaves),
        levels=tuple(level_sizes.tolist()),
        lifts=tuple(tensor(tax.parent[starts[d] : starts[d + 1]] - starts[d - 1]) for d in range(2, tax.depth + 1)),
        leaf_paths=_leaf_paths(tax, tensor),
        path_matrix=tensor(_path_matrix(tax)) if tax.num_leaves * tax.num_nodes <= _MATRIX_CELLS else None,
        siblings=Buckets(None if in_order else tensor(order), shapes),
        siblings_back=None if in_order else tensor(np.argsort(order)),
        folds=folds,
        folds_back=folds_back,
        slabs=slabs,
        node_table=None,
        class_table=None,
        class_levels=None,
    )
    path_cells = sum((last - first + 1) * width for first, last, width in slabs)
    if len(slabs) == 1 and tax.num_nodes * path_cells <= _TABLE_CELLS:
        nodes_N = torch.arange(tax.num_nodes, device=device)
        (windows,) = _compute_windows(index, nodes_N)
        node_table, class_table = _rows(windows, nodes_N), _rows(windows, index.leaves)
        for table in (node_table, class_table):
            for part in (table.columns, table.padding, table.position):
                _of_fixed_shape(part)
        index = replace(index, node_table=node_table, class_table=class_table)
        if device.type == "cpu" and tax.depth <= _LEVELS and tax.num_nodes <= _LEVEL_RATIO * path_cells:
            index = replace(index, class_levels=_class_levels(index))
    return index


def _class_levels(index: TreeIndex) -> tuple[Level, ...]:
    levels, nodes_C1, stop = [], index.leaves.unsqueeze(1), index.num_nodes
    for depth, size in zip(range(index.depth, 0, -1), reversed(index.levels), strict=True):
        first, here_C1 = stop - size, index.node_depth[nodes_C1] == depth
        own_C1 = torch.where(here_C1, nodes_C1, first) - first
        start_C1 = torch.where(here_C1, index.group_start[nodes_C1] + 1 - first, 0)
        width_C1 = torch.where(here_C1, index.group_size[nodes_C1], 1)
        offset_CL = torch.arange(size, device=nodes_C1.device) - start_C1
        mask_CL = torch.where((offset_CL >= 0) & (offset_CL < width_C1), 0.0, -torch.inf)
        mask, position = mask_CL if bool(mask_CL.any()) else None, own_C1.squeeze(1)
        in_order = mask is not None and torch.equal(position, torch.arange(index.num_leaves, device=position.device))
        levels.append(Level(mask, None if in_order else position))
        nodes_C1, stop = torch.where(here_C1, index.parent[nodes_C1], nodes_C1), first
    return tuple(reversed(levels))


def _of_fixed_shape(tensor: Tensor) -> Tensor:
    """The tensor, marked as torch._dynamo.mark_static does: a compiler told that shapes vary means the batch."""
    tensor._dynamo_static_indices = set(range(tensor.dim()))  # type: ignore[attr-defined]  # noqa: SLF001
    return tensor


def _bucket_order(sizes: np.ndarray) -> tuple[np.ndarray, tuple[tuple[int, int], ...]]:
    """The rows of contiguous groups of these sizes, group by group from the smallest size to the largest."""
    groups = np.argsort(sizes, kind="stable")
    widths, counts = np.unique(sizes, return_counts=True)
    starts = (np.cumsum(sizes) - sizes)[groups]
    order = np.repeat(starts - np.cumsum(sizes[groups]) + sizes[groups], sizes[groups]) + np.arange(sizes.sum())
    return order, tuple(zip(counts.tolist(), widths.tolist(), strict=True))


def _leaf_paths(tax: Taxonomy, tensor: Callable[[np.ndarray], Tensor]) -> tuple[Tensor, Tensor] | None:
    lengths = tax.node_depth[tax.leaves]
    if lengths.sum() > _PATH_RATIO * tax.num_nodes:
        return None
    starts = np.cumsum(lengths) - lengths
    columns = np.empty(lengths.sum(), np.int64)
    nodes, at = tax.leaves, starts + lengths
    while len(nodes):
        at = at - 1
        columns[at] = nodes - 1
        nodes = tax.parent[nodes]
        nodes, at = nodes[nodes > 0], at[nodes > 0]
    return tensor(columns), tensor(starts)


def _path_matrix(tax: Taxonomy) -> np.ndarray:
    matrix, rows, nodes = (
        np.zeros((tax.num_leaves, tax.num_nodes - 1), np.float32),
        np.arange(tax.num_leaves),
        tax.leaves,
    )
    while len(nodes):
        matrix[rows, nodes - 1] = 1.0
        nodes = tax.parent[nodes]
        rows, nodes = rows[nodes > 0], nodes[nodes > 0]
    return matrix


def _folds(tax: Taxonomy, tensor: Callable[[np.ndarray], Tensor]) -> tuple[tuple[Fold, ...], Tensor]:
    folds, place = [], tax.class_of.copy()  # where each node's value is, among the classes and all folded groups
    done = tax.num_leaves
    for depth in range(tax.depth - 1, 0, -1):
        level = np.arange(tax.level_start[depth], tax.level_start[depth + 1])
        below = np.arange(tax.level_start[depth + 1], tax.level_start[depth + 2])
        inner, leaves_below = level[tax.num_children[level] > 0], below[tax.is_leaf[below]]
        local = np.empty(
            len(below), np.int64
        )  # where each node below stands among its level's leaves and folded groups
        local[tax.is_leaf[below]] = np.arange(len(leaves_below))
        folded_below = below[~tax.is_leaf[below]]
        local[~tax.is_leaf[below]] = len(leaves_below) + place[folded_below] - (done - len(folded_below))
        order, shapes = _bucket_order(tax.num_children[inner])
        folds.append(Fold(tensor(tax.class_of[leaves_below]), Buckets(tensor(local[order]), shapes)))
        place[inner[np.argsort(tax.num_children[inner], kind="stable")]] = done + np.arange(len(inner))
        done += len(inner)
    return tuple(folds), tensor(place[1:])


def _slabs(widths: list[int]) -> tuple[tuple[int, int, int], ...]:
    """Group neighbouring levels whose widest groups are alike, so that padding at most doubles the work."""
    slabs: list[tuple[int, int, int]] = []
    first, width, cells = 1, 0, 0
    for depth, level_width in enumerate(widths, start=1):
        wider = max(width, level_width)
        if depth > first and (depth - first + 1) * wider > max(2 * (cells + level_width), _SLAB_CELLS):
            slabs.append((first, depth - 1, width))
            first, wider, cells = depth, level_width, 0
        width, cells = wider, cells + level_width
    slabs.append((first, len(widths), width))
    return tuple(slabs)
