"""Trees in the form that the kernels read: tensors of nodes, and sizes that are known before any batch."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class PathTree(NamedTuple):
    """The tree of the path kernels: N nodes, P of them with children, K levels below the root.

    An operator of torch takes `tensors` and `sizes` as two lists.
    """

    widths: tuple[int, ...]  # the largest sibling group of each level
    groups: tuple[int, ...]  # the number of sibling groups of two or more nodes of each level
    parent: Tensor  # (N,) 0 for the root
    depth: Tensor  # (N,)
    group_start: Tensor  # (N,) first row of the node's sibling group
    group_size: Tensor  # (N,)
    first: Tensor  # (N,) int32, the depth-first position of the node; a subtree is one run of positions
    after: Tensor  # (N,) int32, the first position after its subtree
    inner: Tensor  # (P,) the nodes with children
    inner_start: Tensor  # (P,) the first row of their children
    inner_size: Tensor  # (P,)
    counts: Tensor  # (K,) `groups` on the device
    cells: Tensor  # (K,) where the cells of each level begin, of the `num_cells` of an item

    @property
    def tensors(self) -> list[Tensor]:
        return list(self[2:])

    @property
    def sizes(self) -> list[int]:
        return [*self.widths, *self.groups]

    @property
    def levels(self) -> int:
        return len(self.widths)

    @property
    def max_width(self) -> int:
        return max(self.widths)

    @property
    def num_cells(self) -> int:
        """The number of cells of an item, enough for the largest sibling group of each level."""
        return sum(map(padded_width, self.widths))

    @classmethod
    def from_lists(cls, tensors: list[Tensor], sizes: list[int]) -> PathTree:
        levels = len(sizes) // 2
        return cls(tuple(sizes[:levels]), tuple(sizes[levels:]), *tensors)


class SearchTree(NamedTuple):
    """The tree of the search kernel."""

    first_child: Tensor  # (N,)
    num_children: Tensor  # (N,)
    class_of: Tensor  # (N,) -1 for nodes with children
    levels: int
    max_children: int
    root_children: int


def padded_width(width: int) -> int:
    """Round the width of a level up to a multiple of 16, so that each level begins at an aligned address.

    >>> padded_width(16), padded_width(17)
    (16, 32)
    """
    return -(-width // 16) * 16
