"""A taxonomy as the path kernels read it, made once for each device."""

from __future__ import annotations

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from arbormax.kernels.path_tree import PathTree, room
from arbormax.taxonomy import Taxonomy


def path_tree(tax: Taxonomy, device: torch.device) -> PathTree:
    """The tree on a device, made at the first call and kept with the taxonomy."""
    kept: PathTree | None = tax.scratch.get(("paths", device))
    if kept is None:
        with _disable_current_modes(), torch.inference_mode(False):
            kept = tax.scratch["paths", device] = _build(tax, device)
    return kept


# as `functional._index.tree_index`
_TAKES_CONSTANTS = [int(part) for part in torch.__version__.split(".")[:2]] >= [2, 13]
path_tree._dynamo_marked_constant = _TAKES_CONSTANTS  # type: ignore[attr-defined]  # noqa: SLF001


def _build(tax: Taxonomy, device: torch.device) -> PathTree:
    parent = np.maximum(tax.parent, 0)
    first, after = _walk(tax)
    starts = tax.level_start
    widths, groups = [], []
    for depth in range(tax.depth):
        sizes = tax.num_children[starts[depth] : starts[depth + 1]]
        widths.append(int(sizes.max()))
        groups.append(int((sizes > 1).sum()))
    inner = np.flatnonzero(tax.num_children)
    of_nodes = (parent, tax.node_depth, tax.child_start[parent] - 1, tax.num_children[parent], first, after)
    of_inner = (inner, tax.child_start[inner] - 1, tax.num_children[inner])
    arrays = (*of_nodes, *of_inner, groups, np.cumsum([0, *map(room, widths[:-1])]))
    tensors = [torch.from_numpy(np.array(array)).to(device) for array in arrays]
    return PathTree(tuple(widths), tuple(groups), *tensors)


def _walk(tax: Taxonomy) -> tuple[np.ndarray, np.ndarray]:
    """(N,) each: the place of every node in a walk that goes deep first, and the first place behind its subtree."""
    count, starts = np.ones(tax.num_nodes, np.int64), tax.level_start
    for depth in range(tax.depth, 0, -1):
        level = slice(starts[depth], starts[depth + 1])
        np.add.at(count, tax.parent[level], count[level])
    before = np.cumsum(count) - count  # of all nodes that come earlier, level by level
    first = np.zeros(tax.num_nodes, np.int64)
    for depth in range(1, tax.depth + 1):
        level = slice(starts[depth], starts[depth + 1])
        parents = tax.parent[level]
        first[level] = first[parents] + 1 + before[level] - before[tax.child_start[parents]]
    return first.astype(np.int32), (first + count).astype(np.int32)
