"""A taxonomy in the form that the path kernels read."""

from __future__ import annotations

import numpy as np
import torch

from arbormax.functional.index import cached_per_device
from arbormax.kernels.path_tree import PathTree, padded_width
from arbormax.taxonomy import Taxonomy


@cached_per_device
def path_tree(tax: Taxonomy, device: torch.device) -> PathTree:
    """Return the tree on a device, which is built at the first call and stored on the taxonomy."""
    parent = np.maximum(tax.parent, 0)
    first, after = _depth_first(tax)
    starts = tax.level_start
    widths, groups = [], []
    for depth in range(tax.depth):
        sizes = tax.num_children[starts[depth] : starts[depth + 1]]
        widths.append(int(sizes.max()))
        groups.append(int((sizes > 1).sum()))
    inner = np.flatnonzero(tax.num_children)
    per_node = (parent, tax.node_depth, tax.child_start[parent] - 1, tax.num_children[parent], first, after)
    per_inner = (inner, tax.child_start[inner] - 1, tax.num_children[inner])
    arrays = (*per_node, *per_inner, groups, np.cumsum([0, *map(padded_width, widths[:-1])]))
    tensors = [torch.from_numpy(np.array(array)).to(device) for array in arrays]
    return PathTree(tuple(widths), tuple(groups), *tensors)


@cached_per_device
def step_tree(tax: Taxonomy, device: torch.device) -> PathTree:
    """Return a tree of one level in which the path of a node is its last step, for features that differ by level.

    Only the torch implementation reads it: depth-first positions have no meaning there.
    """
    tree = path_tree(tax, device)
    return tree._replace(
        widths=(max(tree.widths),),
        groups=(sum(tree.groups),),
        parent=torch.zeros_like(tree.parent),
        depth=tree.depth.clamp(max=1),
        counts=tree.counts.sum(0, keepdim=True),
        cells=tree.cells[:1],
    )


def _depth_first(tax: Taxonomy) -> tuple[np.ndarray, np.ndarray]:
    """Return the (N,) depth-first position of every node, and the first position after its subtree."""
    count, starts = tax.sum_up(np.ones(tax.num_nodes, np.int64)), tax.level_start
    before = np.cumsum(count) - count  # the sizes of all subtrees that precede in level order
    first = np.zeros(tax.num_nodes, np.int64)
    for depth in range(1, tax.depth + 1):
        level = slice(starts[depth], starts[depth + 1])
        parents = tax.parent[level]
        first[level] = first[parents] + 1 + before[level] - before[tax.child_start[parents]]
    return first.astype(np.int32), (first + count).astype(np.int32)
