"""What the path kernels read of a tree: tensors of its nodes, and a few numbers known before any batch."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class PathTree(NamedTuple):
    """N nodes; K levels below the root. An operator takes `tensors` and `sizes` apart."""

    widths: tuple[int, ...]  # the largest sibling group of each level
    groups: tuple[int, ...]  # as `counts`, known to the host
    parent: Tensor  # (N,) the root's own is 0
    depth: Tensor  # (N,)
    group_start: Tensor  # (N,) first row of the node's sibling group
    group_size: Tensor  # (N,)
    first: Tensor  # (N,) int32, the node's place when the tree is walked depth first: a subtree is one run of places
    after: Tensor  # (N,) int32, the first place behind its subtree
    inner: Tensor  # (P,) the nodes with children
    inner_start: Tensor  # (P,) the first row of their children
    inner_size: Tensor  # (P,)
    counts: Tensor  # (K,) the sibling groups of two or more of each level
    cells: Tensor  # (K,) where each level's cells begin, when an item's are side by side, `num_cells` of them

    @property
    def tensors(self) -> list[Tensor]:
        return list(self[2:])

    @property
    def sizes(self) -> list[int]:
        return [*self.widths, *self.groups]

    @property
    def num_cells(self) -> int:
        """Of an item, with room on each level for the largest sibling group."""
        return sum(map(room, self.widths))

    @classmethod
    def of(cls, tensors: list[Tensor], sizes: list[int]) -> PathTree:
        levels = len(sizes) // 2
        return cls(tuple(sizes[:levels]), tuple(sizes[levels:]), *tensors)


def room(width: int) -> int:
    """Cells of a level with such a sibling group: so many that those of the next begin where several are read at once.

    >>> room(16), room(17)
    (16, 32)
    """
    return -(-width // 16) * 16
