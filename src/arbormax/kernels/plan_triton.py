"""The plan of a batch: which items share a sibling group. It is made on the device, without a look from the host.

The items are sorted by the depth-first position of their targets, so that the items below any node are one run. Then
one program for each level and block of items finds the runs and lists them: as tiles of a few items for the kernels
that work on items, and, where a group has several tiles, as segments for the kernel that works on rows. A group that
much of the batch shares has several segments, so that many programs work on it; such groups are also listed. Every
program has space for as many tiles as it can find, so that none waits for another. Segments are listed in the order in
which they are found, on which no result depends.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from arbormax.kernels.gpu import ceil_div, next_power_of_2
from arbormax.kernels.path_tree import PathTree

TILE = 16  # items of a tile
WIDTH = 128  # rows of a sibling group that are read together
_BLOCK = 256  # items for one program of the plan
_COUNTED = 1 << 13  # up to this many items are sorted by counting
_COUNT_BLOCK = 2048  # items that are counted together
_CLEAR_WIDTH = 32  # from this mean size of a sibling group on, rows without gradients are cleared group by group
_SEGMENT = 256  # items of a segment, at least

# first item, items, first row, rows, level, rows of the group if this is its first tile, whether it is its only tile
TILE_FIELDS = tl.constexpr(7)
# first item, end, first row, rows, level, first tile; -1 - part for a segment that is not a whole group
SEGMENT_FIELDS = tl.constexpr(6)


class Plan(NamedTuple):
    """The parts of a plan, all int32; None for a part that is not used."""

    order: Any  # (B,) the items, sorted
    nodes: Any  # (K, B) the node of each step, 0 where there is none
    tiles: Any  # (tiles, TILE_FIELDS)
    segments: Any  # (segments, SEGMENT_FIELDS) the groups of several tiles
    shared: Any  # (groups, SEGMENT_FIELDS) the groups of several segments
    found: Any  # (2,) the numbers of segments and shared groups
    visited: Any  # (N,) int8, whether the children of a node are on a path

    def only(self, *names: str) -> Plan:
        """Return the plan with these parts, for a kernel that reads no others.

        Triton compiles variants of a kernel for the alignment of each pointer that it is given.
        """
        return Plan(*(part if name in names else None for name, part in zip(self._fields, self, strict=True)))


class TreeNodes(NamedTuple):
    """The tensors of a `PathTree` that the plan reads."""

    parent: Tensor
    depth: Tensor
    group_start: Tensor
    group_size: Tensor
    first: Tensor
    after: Tensor
    counts: Tensor


def is_wide(tree: PathTree) -> bool:
    """Whether some sibling group is read in several parts."""
    return tree.max_width > WIDTH


def segment_length(tree: PathTree) -> int:
    """Return the items of a segment: more for wide groups, which many programs share and whose parts are large."""
    return _SEGMENT * ceil_div(tree.max_width, WIDTH)


def plan_sizes(items: int, tree: PathTree, sparse: bool) -> list[int]:
    """Return the sizes of the parts of a plan, in int32."""
    programs, most_groups = ceil_div(items, _BLOCK), items if is_wide(tree) else items // (TILE + 1)
    tiles = programs * sum(min(items, _BLOCK, groups + _BLOCK // TILE) if groups else 0 for groups in tree.groups)
    length, level_groups = segment_length(tree), [groups for groups in tree.groups if groups]
    segments = sum(min(most_groups, groups) + items // length for groups in level_groups)
    shared = sum(min(items // (length + 1), groups) for groups in level_groups)
    nodes, inner = len(tree.parent), len(tree.inner)
    visited = (nodes + 3) // 4 if not sparse and nodes >= _CLEAR_WIDTH * inner else 0
    tile_fields, segment_fields = TILE_FIELDS.value, SEGMENT_FIELDS.value
    return [
        items,
        items * tree.levels,
        tile_fields * tiles,
        segment_fields * segments,
        segment_fields * shared,
        2,
        visited,
    ]


def split_plan(buffer: Tensor, sizes: list[int]) -> Plan:
    """Return the parts of a plan that is stored in one tensor."""
    *parts, visited = torch.split(buffer, sizes)
    return Plan._make([*parts, visited.view(torch.int8) if len(visited) else None])


def make_plan(node: Tensor, tree: PathTree, sparse: bool, logp: Tensor, mean: Tensor) -> tuple[Tensor, Plan]:
    """Return the plan of (B,) target nodes, in one tensor and its parts.

    `logp` and `mean` (B, K) become 0 where there is no step.
    """
    items = len(node)
    sizes = plan_sizes(items, tree, sparse)
    buffer = torch.zeros(sum(sizes), dtype=torch.int32, device=node.device)
    plan = split_plan(buffer, sizes)
    position = _sort(node, tree, plan.order)
    nodes = TreeNodes(tree.parent, tree.depth, tree.group_start, tree.group_size, tree.first, tree.after, tree.counts)
    _list_tiles[(tree.levels, ceil_div(items, _BLOCK))](
        plan, position, node, nodes, logp, mean, items, tree.levels,
        TILE=TILE, SEGMENT=segment_length(tree), BLOCK=_BLOCK, IS_WIDE=is_wide(tree), num_warps=8,
    )  # fmt: skip
    return buffer, plan


def find_nodes(target: Tensor, leaves: Tensor | None, limit: int, ignored: int) -> Tensor:
    """Return the (B,) nodes of targets, the root for ignored ones; invalid targets are asserted on the device.

    `leaves` are the nodes of the classes; None: the targets are nodes.
    """
    node = torch.empty_like(target)
    if len(target):
        grid = (ceil_div(len(target), 1024),)
        _find_nodes[grid](target, leaves, node, len(target), limit, ignored, BLOCK=1024)
    return node


def _sort(node: Tensor, tree: PathTree, order: Tensor) -> Tensor:
    """Write the order of the items by depth-first position to `order`; return the sorted positions."""
    items = len(node)
    if items > _COUNTED:
        position, at = tree.first.index_select(0, node).sort(stable=True)
        order.copy_(at)
        return position
    position = torch.empty_like(order)
    _sort_by_counting[(ceil_div(items, 16),)](
        node, tree.first, order, position, items, OWN=16, BLOCK=max(16, min(_COUNT_BLOCK, next_power_of_2(items))),
        num_warps=8,
    )  # fmt: skip
    return position


@triton.jit(do_not_specialize=["items", "limit", "ignored"], debug=True)  # without debug it would not assert
def _find_nodes(target_ptr, leaves_ptr, node_ptr, items, limit, ignored, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    target = tl.load(target_ptr + at, mask=at < items, other=ignored)
    is_valid = (target >= 0) & (target < limit)
    tl.device_assert(is_valid | (target == ignored), "a target is not an id of the tree")
    is_valid = is_valid & (target != ignored)
    node = tl.where(is_valid, target, 0)
    if leaves_ptr is not None:
        node = tl.load(leaves_ptr + node, mask=is_valid, other=0)
    tl.store(node_ptr + at, node, mask=at < items)


@triton.jit(do_not_specialize=["items"])
def _sort_by_counting(
    node_ptr,  # (B,)
    first_ptr,  # (N,) the depth-first position of each node
    order_ptr,  # out: (B,) the items, sorted by position, stable
    position_ptr,  # out: (B,) the sorted positions
    items,
    OWN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Each item goes to the place given by the number of items before it: faster than sorting a few thousand."""
    at = tl.program_id(0) * OWN + tl.arange(0, OWN)
    is_item = at < items
    position = tl.load(first_ptr + tl.load(node_ptr + at, mask=is_item, other=0), mask=is_item, other=0)
    before = tl.zeros((OWN,), dtype=tl.int32)
    for base in range(0, items, BLOCK):
        other_at = base + tl.arange(0, BLOCK)
        is_other = other_at < items
        other = tl.load(first_ptr + tl.load(node_ptr + other_at, mask=is_other, other=0))
        is_before = (other[None, :] == position[:, None]) & (other_at[None, :] < at[:, None])
        is_before = (is_before | (other[None, :] < position[:, None])) & is_other[None, :]
        before += tl.sum(is_before.to(tl.int32), 1)
    tl.store(order_ptr + before, at, mask=is_item)
    tl.store(position_ptr + before, position, mask=is_item)


@triton.jit(do_not_specialize=["items", "levels"])
def _list_tiles(
    plan,  # Plan; its order is read, the rest is written
    position_ptr,  # (B,) the sorted depth-first positions
    node_ptr,  # (B,) the target nodes
    nodes,  # TreeNodes
    logp_ptr,  # (B, K) out: 0 where there is no step
    mean_ptr,
    items,
    levels,
    TILE: tl.constexpr,
    SEGMENT: tl.constexpr,  # items of a segment
    BLOCK: tl.constexpr,
    IS_WIDE: tl.constexpr,  # if not, the only tile of a group computes the gradients of its rows
):
    level = tl.program_id(0)
    tiles = 0  # where the tiles of this program begin
    for above in range(level + 1):
        groups = tl.load(nodes.counts + above).to(tl.int32)
        space = tl.where(groups > 0, tl.minimum(tl.minimum(items, BLOCK), groups + BLOCK // TILE), 0)
        programs = tl.where(above == level, tl.program_id(1), tl.num_programs(1))
        tiles += space * programs
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_item = at < items
    item = tl.load(plan.order + at, mask=is_item, other=0)
    node = tl.load(node_ptr + item, mask=is_item, other=0)
    depth = tl.load(nodes.depth + node)
    for _ in range(level + 1, levels):
        node = tl.where(depth > level + 1, tl.load(nodes.parent + node), node)
        depth = tl.where(depth > level + 1, depth - 1, depth)
    size = tl.load(nodes.group_size + node)
    is_step = is_item & (depth == level + 1) & (size > 1)  # an only child is certain
    start = tl.load(nodes.group_start + node)
    parent = tl.load(nodes.parent + node)
    begin, end = _find_run(position_ptr, tl.load(nodes.first + parent) + 1, tl.load(nodes.after + parent), items)
    tl.store(plan.nodes + level * items + at, tl.where(is_step, node, 0).to(tl.int32), mask=is_item)
    is_none = is_item & (is_step == 0)
    none = tl.zeros((BLOCK,), dtype=tl.float32)
    tl.store(logp_ptr + item * levels + level, none, mask=is_none)
    tl.store(mean_ptr + item * levels + level, none, mask=is_none)
    is_first = is_step & (at == begin)
    if plan.visited is not None:
        tl.store(plan.visited + parent, tl.full((BLOCK,), 1, tl.int8), mask=is_first)

    is_tile = is_step & ((at - begin) % TILE == 0)
    tile = tiles + tl.cumsum(is_tile.to(tl.int32), 0) - 1
    has_segments = is_step
    if not IS_WIDE:
        has_segments = is_step & (end - begin > TILE)
    slot = plan.tiles + TILE_FIELDS * tile
    tl.store(slot, at, mask=is_tile)
    tl.store(slot + 1, tl.minimum(end - at, TILE), mask=is_tile)
    tl.store(slot + 2, start.to(tl.int32), mask=is_tile)
    tl.store(slot + 3, size.to(tl.int32), mask=is_tile)
    tl.store(slot + 4, level, mask=is_tile)
    tl.store(slot + 5, tl.where(is_first, size.to(tl.int32), 0), mask=is_tile)
    tl.store(slot + 6, (is_first & (has_segments == 0)).to(tl.int32), mask=is_tile)

    is_segment = has_segments & ((at - begin) % SEGMENT == 0)
    is_shared = is_segment & (end - begin > SEGMENT)
    last = tl.minimum(end, at + SEGMENT)
    where = tl.where(is_shared, -1 - part_index(at, begin, level, items, SEGMENT), tile)
    _append(plan.segments, plan.found, is_segment, at, last, start, size, level, where)
    _append(plan.shared, plan.found + 1, is_shared & is_first, at, end, start, size, level, tile)


@triton.jit
def part_index(at, begin, level, items, SEGMENT: tl.constexpr):
    """Return the index, among the parts of all shared groups, of the part that begins with an item.

    If the items are cut at every multiple of SEGMENT, at most two parts begin between two cuts: the last part of one
    group and the first part of another.
    """
    return (level * ((items + SEGMENT - 1) // SEGMENT) + at // SEGMENT) * 2 + (at == begin).to(tl.int32)


@triton.jit
def _append(list_ptr, count_ptr, is_one, begin, end, start, size, level, where):
    """Append a segment for each item that begins one."""
    before = tl.atomic_add(count_ptr, tl.sum(is_one.to(tl.int32), 0))
    slot = list_ptr + SEGMENT_FIELDS * (before + tl.cumsum(is_one.to(tl.int32), 0) - 1)
    tl.store(slot, begin, mask=is_one)
    tl.store(slot + 1, end, mask=is_one)
    tl.store(slot + 2, start.to(tl.int32), mask=is_one)
    tl.store(slot + 3, size.to(tl.int32), mask=is_one)
    tl.store(slot + 4, level, mask=is_one)
    tl.store(slot + 5, where, mask=is_one)


@triton.jit
def _find_run(position_ptr, first, after, items):
    """Find where the sorted positions reach `first` and `after`: two binary searches whose loads overlap."""
    begin = tl.zeros_like(first).to(tl.int32)
    begin_high = begin + items
    end, end_high = begin, begin_high
    left = items
    while left > 0:
        begin, begin_high = _halve(position_ptr, first, begin, begin_high)
        end, end_high = _halve(position_ptr, after, end, end_high)
        left = left // 2
    return begin, end


@triton.jit
def _halve(position_ptr, wanted, low, high):
    middle = (low + high) // 2
    is_open = low < high
    is_less = tl.load(position_ptr + middle, mask=is_open, other=0) < wanted
    return tl.where(is_open & is_less, middle + 1, low), tl.where(is_open & (is_less == 0), middle, high)
