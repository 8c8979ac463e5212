"""Which items share a sibling group: one launch, no look from the host.

The items come sorted by their target's place in a walk of the tree that goes deep first, so that the items below any
node are one run of them. Each level's program finds the runs and lists them: as tiles of a few items for the kernels
that go by items, as whole segments for those that go by rows.
"""

import triton
import triton.language as tl

# of a tile: first item, items, first row, rows, level; of a segment: first item, end, first row, rows, level
FIELDS = 5


@triton.jit(do_not_specialize=["items", "levels"])
def plan(
    order_ptr,
    place_ptr,  # (B,) rising: of the sorted items
    node_ptr,
    parent_ptr,
    depth_ptr,
    start_ptr,
    size_ptr,
    first_ptr,
    after_ptr,
    groups_ptr,  # (K,) the sibling groups of each level
    own_ptr,  # (K, B) out: the step's own node, 0 where there is none
    tile_ptr,  # out
    segment_ptr,  # out
    items,
    levels,
    FIELDS: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    level = tl.program_id(0)
    tiles = 0  # where this level's begin: every level has room for as many as it can have
    segments = 0
    for above in range(level):
        groups = tl.load(groups_ptr + above).to(tl.int32)
        tiles += tl.where(groups > 0, tl.minimum(items, groups + items // TILE), 0)
        segments += tl.where(above > 0, tl.minimum(items, groups), 0)
    for base in range(0, items, BLOCK):
        at = base + tl.arange(0, BLOCK)
        there = at < items
        item = tl.load(order_ptr + at, mask=there, other=0)
        node = tl.load(node_ptr + item, mask=there, other=0)
        depth = tl.load(depth_ptr + node)
        for _ in range(level + 1, levels):
            node = tl.where(depth > level + 1, tl.load(parent_ptr + node), node)
            depth = tl.where(depth > level + 1, depth - 1, depth)
        size = tl.load(size_ptr + node)
        there = there & (depth == level + 1) & (size > 1)  # an only child is certain
        start = tl.load(start_ptr + node)
        parent = tl.load(parent_ptr + node)
        begin = _first_at_least(place_ptr, tl.load(first_ptr + parent) + 1, items)
        end = _first_at_least(place_ptr, tl.load(after_ptr + parent), items)
        tl.store(own_ptr + level * items + at, tl.where(there, node, 0).to(tl.int32), mask=at < items)

        is_tile = there & ((at - begin) % TILE == 0)
        slot = tile_ptr + FIELDS * (tiles + tl.cumsum(is_tile.to(tl.int32), 0) - 1)
        tl.store(slot, at, mask=is_tile)
        tl.store(slot + 1, tl.minimum(end - at, TILE), mask=is_tile)
        tl.store(slot + 2, start.to(tl.int32), mask=is_tile)
        tl.store(slot + 3, size.to(tl.int32), mask=is_tile)
        tl.store(slot + 4, level, mask=is_tile)
        tiles += tl.sum(is_tile.to(tl.int32), 0)

        # the root's group goes by a dense product
        is_segment = there & (at == tl.where(level > 0, begin, -1))
        slot = segment_ptr + FIELDS * (segments + tl.cumsum(is_segment.to(tl.int32), 0) - 1)
        tl.store(slot, at, mask=is_segment)
        tl.store(slot + 1, end, mask=is_segment)
        tl.store(slot + 2, start.to(tl.int32), mask=is_segment)
        tl.store(slot + 3, size.to(tl.int32), mask=is_segment)
        tl.store(slot + 4, level, mask=is_segment)
        segments += tl.sum(is_segment.to(tl.int32), 0)


@triton.jit
def _first_at_least(place_ptr, wanted, items):
    """Where the rising places first reach the one wanted."""
    low = tl.zeros_like(wanted).to(tl.int32)
    high = low + items
    left = items
    while left > 0:
        middle = (low + high) // 2
        open_ = low < high
        is_less = tl.load(place_ptr + middle, mask=open_, other=0) < wanted
        low = tl.where(open_ & is_less, middle + 1, low)
        high = tl.where(open_ & (is_less == 0), middle, high)
        left = left // 2
    return low
