"""Which items share a sibling group: no look from the host.

The items are sorted by their target's place in a walk of the tree that goes deep first, so that the items below any
node are one run of them. Then a program for each level and some items finds the runs and lists them: as tiles of a few
items for the kernels that go by items, and, where a group has several tiles, as segments for the one that goes by
rows. A group that much of the batch shares has several segments, so that many programs work on it at once; such groups
are listed, too. Every program has room for as many tiles as it can have, so that none waits for another; segments stand
in the order in which they were found, which nothing depends on.
"""

import triton
import triton.language as tl

TILE_FIELDS = 7  # first item, items, first row, rows, level, rows of the group if it is its first tile, is its only one
# first item, end, first row, rows, level, first tile; of a segment that is not its whole group -1 less its place among
# such segments. A shared group has the same fields.
SEGMENT_FIELDS = 6


@triton.jit(do_not_specialize=["items", "levels"])
def plan(
    order_ptr,  # (B,) the items, sorted
    place_ptr,  # (B,) rising: their places
    node_ptr,
    parent_ptr,
    depth_ptr,
    start_ptr,
    size_ptr,
    first_ptr,
    after_ptr,
    groups_ptr,  # (K,) the sibling groups of each level
    own_ptr,  # out: (K, B) the step's own node, 0 where there is none
    tile_ptr,  # out
    segment_ptr,  # out: the groups of several tiles, in segments
    shared_ptr,  # out: those of several segments
    found_ptr,  # out: how many there are of each
    touched_ptr,  # out: (N,) whether a node's children are on a path
    logp_ptr,  # (B, K) of these two, out: zeros where there is no step
    mean_ptr,
    items,
    levels,
    TILE_FIELDS: tl.constexpr,
    SEGMENT_FIELDS: tl.constexpr,
    TILE: tl.constexpr,
    SEGMENT: tl.constexpr,  # items of a segment
    BLOCK: tl.constexpr,
    MERGES: tl.constexpr,  # whether a group's only tile gives its rows their gradients
    TOUCHES: tl.constexpr,
):
    level = tl.program_id(0)
    tiles = 0  # where this program's begin
    for above in range(level + 1):
        groups = tl.load(groups_ptr + above).to(tl.int32)
        room = tl.where(groups > 0, tl.minimum(tl.minimum(items, BLOCK), groups + BLOCK // TILE), 0)
        programs = tl.where(above == level, tl.program_id(1), tl.num_programs(1))
        tiles += room * programs
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_item = at < items
    item = tl.load(order_ptr + at, mask=is_item, other=0)
    node = tl.load(node_ptr + item, mask=is_item, other=0)
    depth = tl.load(depth_ptr + node)
    for _ in range(level + 1, levels):
        node = tl.where(depth > level + 1, tl.load(parent_ptr + node), node)
        depth = tl.where(depth > level + 1, depth - 1, depth)
    size = tl.load(size_ptr + node)
    there = is_item & (depth == level + 1) & (size > 1)  # an only child is certain
    start = tl.load(start_ptr + node)
    parent = tl.load(parent_ptr + node)
    begin, end = _run(place_ptr, tl.load(first_ptr + parent) + 1, tl.load(after_ptr + parent), items)
    tl.store(own_ptr + level * items + at, tl.where(there, node, 0).to(tl.int32), mask=is_item)
    is_none = is_item & (there == 0)
    none = tl.zeros((BLOCK,), dtype=tl.float32)
    tl.store(logp_ptr + item * levels + level, none, mask=is_none)
    tl.store(mean_ptr + item * levels + level, none, mask=is_none)
    is_first = there & (at == begin)
    if TOUCHES:
        tl.store(touched_ptr + parent, tl.full((BLOCK,), 1, tl.int8), mask=is_first)

    is_tile = there & ((at - begin) % TILE == 0)
    tile = tiles + tl.cumsum(is_tile.to(tl.int32), 0) - 1
    is_several = there
    if MERGES:
        is_several = there & (end - begin > TILE)
    slot = tile_ptr + TILE_FIELDS * tile
    tl.store(slot, at, mask=is_tile)
    tl.store(slot + 1, tl.minimum(end - at, TILE), mask=is_tile)
    tl.store(slot + 2, start.to(tl.int32), mask=is_tile)
    tl.store(slot + 3, size.to(tl.int32), mask=is_tile)
    tl.store(slot + 4, level, mask=is_tile)
    tl.store(slot + 5, tl.where(is_first, size.to(tl.int32), 0), mask=is_tile)
    tl.store(slot + 6, (is_first & (is_several == 0)).to(tl.int32), mask=is_tile)

    is_segment = is_several & ((at - begin) % SEGMENT == 0)
    is_shared = is_segment & (end - begin > SEGMENT)
    last = tl.minimum(end, at + SEGMENT)
    where = tl.where(is_shared, -1 - part_of(at, begin, level, items, SEGMENT), tile)
    _list(segment_ptr, found_ptr, is_segment, at, last, start, size, level, where, SEGMENT_FIELDS)
    _list(shared_ptr, found_ptr + 1, is_shared & is_first, at, end, start, size, level, tile, SEGMENT_FIELDS)


@triton.jit
def part_of(at, begin, level, items, SEGMENT: tl.constexpr):
    """The place among all parts of shared groups of the one from an item on.

    Where the items are cut at every multiple of SEGMENT, at most two begin between two cuts: the last part of a group,
    and the first of another.
    """
    return (level * ((items + SEGMENT - 1) // SEGMENT) + at // SEGMENT) * 2 + (at == begin).to(tl.int32)


@triton.jit
def _list(list_ptr, count_ptr, is_one, begin, end, start, size, level, where, FIELDS: tl.constexpr):
    """Add those items that are one to a list of segments."""
    before = tl.atomic_add(count_ptr, tl.sum(is_one.to(tl.int32), 0))
    slot = list_ptr + FIELDS * (before + tl.cumsum(is_one.to(tl.int32), 0) - 1)
    tl.store(slot, begin, mask=is_one)
    tl.store(slot + 1, end, mask=is_one)
    tl.store(slot + 2, start.to(tl.int32), mask=is_one)
    tl.store(slot + 3, size.to(tl.int32), mask=is_one)
    tl.store(slot + 4, level, mask=is_one)
    tl.store(slot + 5, where, mask=is_one)


@triton.jit
def _run(place_ptr, first, after, items):
    """Where the rising places first reach the one, and the other: two searches whose looks at memory overlap."""
    begin = tl.zeros_like(first).to(tl.int32)
    begin_high = begin + items
    end, end_high = begin, begin_high
    left = items
    while left > 0:
        begin, begin_high = _halved(place_ptr, first, begin, begin_high)
        end, end_high = _halved(place_ptr, after, end, end_high)
        left = left // 2
    return begin, end


@triton.jit
def _halved(place_ptr, wanted, low, high):
    middle = (low + high) // 2
    open_ = low < high
    is_less = tl.load(place_ptr + middle, mask=open_, other=0) < wanted
    return tl.where(open_ & is_less, middle + 1, low), tl.where(open_ & (is_less == 0), middle, high)
