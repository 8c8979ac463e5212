"""A taxonomy as index tensors on one device.

N nodes, M = N - 1 columns (column j is node j + 1), C classes, G sibling groups, K = depth, S = size of a group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from arbormax.taxonomy import Taxonomy

STOP = -100  # the position of a step past the end of a path, which cross entropy ignores
_TABLE_CELLS = 1 << 19  # up to this size the windows of all nodes are stored; in larger trees they are computed
_SLAB_CELLS = 1 << 12  # this much padding is cheaper than one more round of kernels


T = TypeVar("T")

# Before torch 2.13 a compiler cannot treat a taxonomy as a constant. There it traces the look-up, which finds what a
# head has built.
_IS_CONSTANT = [int(part) for part in torch.__version__.split(".")[:2]] >= [2, 13]


def cached_per_device(build: Callable[[Taxonomy, torch.device], T]) -> Callable[[Taxonomy, torch.device], T]:
    """Return a function that builds its result at the first call and stores it on the taxonomy."""

    @wraps(build)
    def lookup(tax: Taxonomy, device: torch.device) -> T:
        key = build.__name__, device
        found: T | None = tax.scratch.get(key)
        if found is None:
            # A first call while a graph is captured, or in inference mode, must still build ordinary tensors; torch
            # has no public name for leaving the modes of a capture.
            with _disable_current_modes(), torch.inference_mode(False):
                found = tax.scratch[key] = build(tax, device)
        return found

    # What torch.compiler.assume_constant_result does, without loading the compiler when arbormax is imported.
    lookup._dynamo_marked_constant = _IS_CONSTANT  # type: ignore[attr-defined]  # noqa: SLF001
    return lookup


def mark_static(tensor: Tensor) -> Tensor:
    """Mark all dimensions of a tensor as fixed, also if the compiler treats other shapes as dynamic."""
    # What torch._dynamo.mark_static does, without loading the compiler.
    tensor._dynamo_static_indices = set(range(tensor.dim()))  # type: ignore[attr-defined]  # noqa: SLF001
    return tensor


@dataclass(frozen=True, eq=False)
class Buckets:
    """Sibling groups sorted by size: all groups of one size are one dense softmax."""

    order: Tensor  # rows in bucket order
    shapes: tuple[tuple[int, int], ...]  # groups × size of each bucket


@dataclass(frozen=True, eq=False)
class Fold:
    """How the sums over leaves of one level are computed: its leaves come first, then its inner nodes by size."""

    classes: Tensor  # the classes of the level's leaves
    buckets: Buckets  # the groups of the level below
    back: Tensor  # the position of each node of the level among its leaves and inner nodes


class Windows(NamedTuple):
    """The columns of the sibling groups of B paths on a slab of levels, padded to one width."""

    columns: Tensor  # (B, K * S) int64
    padding: Tensor  # (B, K * S) 0 on siblings, -inf on padding
    position: Tensor  # (B, K) the position of the path's node in its group, STOP past the end of the path
    width: int  # S

    @property
    def nodes(self) -> Tensor:
        """The (B, K) nodes of the paths, the root past the end."""
        start_BK = self.columns[:, :: self.width]
        return torch.where(self.position < 0, 0, start_BK + self.position + 1)


@dataclass(frozen=True, eq=False)
class NodeIndex:
    """The index tensors that trees and graphs have."""

    num_nodes: int
    num_leaves: int
    depth: int
    max_children: int
    leaves: Tensor  # (C,)
    parent: Tensor  # (N,) the parent, in a graph the first one; 0 for the root
    class_of: Tensor  # (N,) -1 off leaves
    node_depth: Tensor  # (N,)
    levels: tuple[int, ...]  # the number of nodes at depth 1, 2, …
    siblings: Buckets  # the children of each parent, over columns
    siblings_back: Tensor  # (M,) the position of each column in bucket order


@dataclass(frozen=True, eq=False)
class TreeIndex(NodeIndex):
    """The index tensors of one tree on one device."""

    first_child: Tensor  # (N,) 0 on leaves
    num_children: Tensor  # (N,)
    group_start: Tensor  # (N,) first column of the node's sibling group
    group_size: Tensor  # (N,)
    leaf_counts: Tensor  # (N,)
    path_width: float  # the number of siblings on all steps of a path, mean over the classes
    lifts: tuple[Tensor, ...]  # for depth 2, 3, …: the position of each node's parent in the level above
    folds: tuple[Fold, ...]  # for depth K up to 1
    slabs: tuple[tuple[int, int, int], ...]  # (first depth, last depth, width) of the windows of each slab
    node_table: Windows | None  # the windows of every node, in a small tree


def leaf_means(index: TreeIndex, values_C: Tensor) -> Tensor:
    """Return the (N,) mean of the values of the classes at or below each node."""
    totals_N = values_C.new_zeros(index.num_nodes).index_copy(0, index.leaves, values_C)
    stop = index.num_nodes
    for size in reversed(index.levels):
        level = slice(stop - size, stop)
        totals_N = totals_N.index_add(0, index.parent[level], totals_N[level])
        stop -= size
    return totals_N / index.leaf_counts


def path_windows(index: TreeIndex, nodes_B: Tensor) -> list[Windows]:
    """Return the sibling groups on the paths to these nodes, one `Windows` per slab of levels."""
    table = index.node_table
    if table is None:
        return _compute_windows(index, nodes_B)
    columns, padding, position = (
        part.index_select(0, nodes_B) for part in (table.columns, table.padding, table.position)
    )
    return [Windows(columns, padding, position, table.width)]


def path_nodes(index: TreeIndex, nodes_B: Tensor) -> list[Tensor]:
    """Return the (B,) nodes at depth 1, 2, … on the paths to these nodes, the root past the end of a path."""
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


@cached_per_device
def tree_index(tax: Taxonomy, device: torch.device) -> TreeIndex:
    """Return the index of a taxonomy on a device, which is built at the first call and stored on the taxonomy."""

    def tensor(array: np.ndarray) -> Tensor:
        return mark_static(torch.from_numpy(np.array(array)).to(device))

    group_start = tax.child_start[np.maximum(tax.parent, 0)] - 1
    group_size = tax.num_children[np.maximum(tax.parent, 0)]
    level_sizes = np.diff(tax.level_start)[1:]
    starts = tax.level_start.tolist()
    order, shapes = bucket_order(tax.num_children[np.flatnonzero(tax.num_children)])
    slabs = _slabs([int(tax.num_children[starts[d] : starts[d + 1]].max()) for d in range(tax.depth)])
    index = TreeIndex(
        num_nodes=tax.num_nodes,
        num_leaves=tax.num_leaves,
        depth=tax.depth,
        max_children=int(tax.num_children.max()),
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
        siblings=Buckets(tensor(order), shapes),
        siblings_back=tensor(np.argsort(order)),
        folds=tuple(_fold(tax, starts[d], starts[d + 1], tensor) for d in range(tax.depth, 0, -1)),
        slabs=slabs,
        node_table=None,
    )
    path_cells = sum((last - first + 1) * width for first, last, width in slabs)
    if len(slabs) == 1 and tax.num_nodes * path_cells <= _TABLE_CELLS:
        (table,) = _compute_windows(index, torch.arange(tax.num_nodes, device=device))
        for part in (table.columns, table.padding, table.position):
            mark_static(part)
        index = replace(index, node_table=table)
    return index


def bucket_order(sizes: np.ndarray) -> tuple[np.ndarray, tuple[tuple[int, int], ...]]:
    """Return the rows of contiguous groups of these sizes, ordered from the smallest group to the largest."""
    groups = np.argsort(sizes, kind="stable")
    widths, counts = np.unique(sizes, return_counts=True)
    starts = (np.cumsum(sizes) - sizes)[groups]
    order = np.repeat(starts - np.cumsum(sizes[groups]) + sizes[groups], sizes[groups]) + np.arange(sizes.sum())
    return order, tuple(zip(counts.tolist(), widths.tolist(), strict=True))


def _fold(tax: Taxonomy, start: int, stop: int, tensor: Callable[[np.ndarray], Tensor]) -> Fold:
    sizes = tax.num_children[start:stop]
    leaves, inner = np.flatnonzero(sizes == 0), np.flatnonzero(sizes)
    order, shapes = bucket_order(sizes[inner])
    by_size = inner[np.argsort(sizes[inner], kind="stable")]
    back = np.argsort(np.concatenate([leaves, by_size]))
    return Fold(tensor(tax.class_of[start + leaves]), Buckets(tensor(order), shapes), tensor(back))


def _slabs(widths: list[int]) -> tuple[tuple[int, int, int], ...]:
    """Join adjacent levels whose widest groups have similar sizes, so that padding at most doubles the work."""
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
