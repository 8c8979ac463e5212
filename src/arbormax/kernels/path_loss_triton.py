"""The usual loss: all steps of all items added up."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["items", "levels", "ignored"])
def add_up(
    logp_ptr,  # (B, K)
    target_ptr,  # (B,)
    loss_ptr,  # out: one number
    factor_ptr,  # out: what its gradient is multiplied by for that of a log-probability, and zero for that of a mean
    items,
    levels,
    ignored,
    IS_MEAN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The loss: minus the sum of all steps, over the number of items that count if it is the mean."""
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for base in range(0, items * levels, BLOCK):
        at = base + tl.arange(0, BLOCK)
        total += tl.load(logp_ptr + at, mask=at < items * levels, other=0.0)
    loss = -tl.sum(total, 0)
    factor = -1.0
    if IS_MEAN:
        count = tl.zeros((BLOCK,), dtype=tl.int32)
        for base in range(0, items, BLOCK):
            at = base + tl.arange(0, BLOCK)
            target = tl.load(target_ptr + at, mask=at < items, other=ignored)
            count += (target != ignored).to(tl.int32)
        counted = tl.sum(count, 0).to(tl.float32)
        loss = loss / counted
        factor = factor / counted
    tl.store(loss_ptr, loss)
    tl.store(factor_ptr, factor)
    tl.store(factor_ptr + 1, 0.0)
