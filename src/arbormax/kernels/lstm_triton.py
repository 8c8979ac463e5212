"""All time steps of LSTMs in one launch, for batches too small to keep a GPU busy.

A program runs 16 texts of one network from the first word to the last; programs never wait for one another. What one
step writes the next one reads back through memory, behind a barrier of the program's own threads. Tiles lie as
(hidden, batch), so that the hidden size is the long side of the products.

S networks, B batch, T tokens, H hidden size. Gates are in torch's order: in, forget, cell, out.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

_TEXTS = 16


class Tiles(NamedTuple):
    """Hidden units and summands per tile, warps of a program, and how many tiles of weights are under way."""

    hidden: int
    summands: int
    warps: int
    stages: int


FORWARD = Tiles(64, 32, 4, 4)
BACKWARD = Tiles(64, 64, 4, 4)


@triton.jit
def _tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit(do_not_specialize=["B", "T"])
def _forward(
    x_gates,  # (S, B, T, 4H)
    weight,  # (S, 4H, STRIDE), zeros right of H
    last,  # (B,)
    hidden,  # (S, B, T, H), the state before each step
    cell,  # likewise
    gates,  # (S, B, T, 4H), after their activations
    out,  # (B, S, H)
    B,
    T,
    H: tl.constexpr,
    STRIDE: tl.constexpr,
    TEXTS: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    network = tl.program_id(0).to(tl.int64)
    text = tl.program_id(1) * TEXTS + tl.arange(0, TEXTS)
    live = text < B
    last_t = tl.load(last + text, mask=live, other=-1)
    start = (network * B + text) * T
    out_at = (text * tl.num_programs(0) + network) * H
    weight += network * (4 * H * STRIDE)

    for n0 in range(0, H, BN):
        n = n0 + tl.arange(0, BN)
        at = (start * H)[None, :] + n[:, None]
        nought = tl.zeros((BN, TEXTS), tl.float32)
        tl.store(hidden + at, nought, mask=(n < H)[:, None] & live[None, :])
        tl.store(cell + at, nought, mask=(n < H)[:, None] & live[None, :])
    tl.debug_barrier()

    t = 0
    # Not a `for`: software pipelining must not load a state before the step that writes it.
    while t < T:
        step = start + t
        for n0 in range(0, H, BN):
            n = n0 + tl.arange(0, BN)
            real = (n < H)[:, None] & live[None, :]
            gate_at = (step * (4 * H))[None, :] + n[:, None]
            at = (step * H)[None, :] + n[:, None]
            x_i = tl.load(x_gates + gate_at, mask=real, other=0.0)
            x_f = tl.load(x_gates + gate_at + H, mask=real, other=0.0)
            x_g = tl.load(x_gates + gate_at + 2 * H, mask=real, other=0.0)
            x_o = tl.load(x_gates + gate_at + 3 * H, mask=real, other=0.0)
            c = tl.load(cell + at, mask=real, other=0.0)
            i = tl.zeros((BN, TEXTS), tl.float32)
            f = tl.zeros((BN, TEXTS), tl.float32)
            g = tl.zeros((BN, TEXTS), tl.float32)
            o = tl.zeros((BN, TEXTS), tl.float32)
            for k0 in range(0, H, BK):
                k = k0 + tl.arange(0, BK)
                h = tl.load(hidden + (step * H)[None, :] + k[:, None], mask=(k < H)[:, None] & live[None, :], other=0.0)
                w = weight + n[:, None] * STRIDE + k[None, :]
                there = (n < H)[:, None] & (k < STRIDE)[None, :]
                w_i = tl.load(w, mask=there, other=0.0)
                w_f = tl.load(w + H * STRIDE, mask=there, other=0.0)
                w_g = tl.load(w + 2 * H * STRIDE, mask=there, other=0.0)
                w_o = tl.load(w + 3 * H * STRIDE, mask=there, other=0.0)
                i = tl.dot(w_i, h, i, input_precision=PRECISION)
                f = tl.dot(w_f, h, f, input_precision=PRECISION)
                g = tl.dot(w_g, h, g, input_precision=PRECISION)
                o = tl.dot(w_o, h, o, input_precision=PRECISION)
            i = tl.sigmoid(i + x_i)
            f = tl.sigmoid(f + x_f)
            g = _tanh(g + x_g)
            o = tl.sigmoid(o + x_o)
            c = f * c + i * g
            h_new = o * _tanh(c)
            tl.store(gates + gate_at, i, mask=real)
            tl.store(gates + gate_at + H, f, mask=real)
            tl.store(gates + gate_at + 2 * H, g, mask=real)
            tl.store(gates + gate_at + 3 * H, o, mask=real)
            following = real & (step + 1 < start + T)[None, :]
            tl.store(cell + at + H, c, mask=following)
            tl.store(hidden + at + H, h_new, mask=following)
            tl.store(out + out_at[None, :] + n[:, None], h_new, mask=real & (last_t == t)[None, :])
        tl.debug_barrier()
        t += 1


@triton.jit(do_not_specialize=["B", "T"])
def _backward(
    grad,  # (B, S, H)
    weight,  # (S, H, 4H), transposed
    last,  # (B,)
    cell,  # (S, B, T, H), the state before each step
    gates,  # (S, B, T, 4H)
    grad_cell,  # (S, B, H), room for what is carried from step to step
    grad_gates,  # (S, B, T, 4H), before their activations
    B,
    T,
    H: tl.constexpr,
    TEXTS: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    network = tl.program_id(0).to(tl.int64)
    text = tl.program_id(1) * TEXTS + tl.arange(0, TEXTS)
    live = text < B
    last_t = tl.load(last + text, mask=live, other=-1)
    start = (network * B + text) * T
    grad_at = (text * tl.num_programs(0) + network) * H
    carried_at = (network * B + text) * H
    weight += network * (4 * H * H)

    t = T - 1
    while t >= 0:
        step = start + t
        later = live & (step + 1 < start + T)
        for n0 in range(0, H, BN):
            n = n0 + tl.arange(0, BN)
            real = (n < H)[:, None] & live[None, :]
            gate_at = (step * (4 * H))[None, :] + n[:, None]
            carried = grad_cell + carried_at[None, :] + n[:, None]
            i = tl.load(gates + gate_at, mask=real, other=0.0)
            f = tl.load(gates + gate_at + H, mask=real, other=0.0)
            g = tl.load(gates + gate_at + 2 * H, mask=real, other=0.0)
            o = tl.load(gates + gate_at + 3 * H, mask=real, other=0.0)
            c_old = tl.load(cell + (step * H)[None, :] + n[:, None], mask=real, other=0.0)
            d_c = tl.load(carried, mask=(n < H)[:, None] & later[None, :], other=0.0)
            d_out = tl.load(grad + grad_at[None, :] + n[:, None], mask=real & (last_t == t)[None, :], other=0.0)
            d_h = tl.zeros((BN, TEXTS), tl.float32)
            for k0 in range(0, 4 * H, BK):
                k = k0 + tl.arange(0, BK)
                d_gates = tl.load(
                    grad_gates + ((step + 1) * (4 * H))[None, :] + k[:, None],
                    mask=(k < 4 * H)[:, None] & later[None, :],
                    other=0.0,
                )
                w = tl.load(
                    weight + n[:, None] * (4 * H) + k[None, :],
                    mask=(n < H)[:, None] & (k < 4 * H)[None, :],
                    other=0.0,
                )
                d_h = tl.dot(w, d_gates, d_h, input_precision=PRECISION)
            d_h += d_out
            tanh_c = _tanh(f * c_old + i * g)
            d_c += d_h * o * (1 - tanh_c * tanh_c)
            tl.store(grad_gates + gate_at, d_c * g * i * (1 - i), mask=real)
            tl.store(grad_gates + gate_at + H, d_c * c_old * f * (1 - f), mask=real)
            tl.store(grad_gates + gate_at + 2 * H, d_c * i * (1 - g * g), mask=real)
            tl.store(grad_gates + gate_at + 3 * H, d_h * tanh_c * o * (1 - o), mask=real)
            tl.store(carried, d_c * f, mask=real)
        tl.debug_barrier()
        t -= 1


def states(x_gates: Tensor, weights: list[Tensor], last: Tensor, precision: str) -> tuple[Tensor, ...]:
    """(B, S·H) the states after each text's last word; then what the way back needs: states, cells and gates."""
    networks, batch, length, width = x_gates.shape
    size = width // 4
    stride = -(-size // 4) * 4  # rows that start at multiples of 16 bytes are loaded fastest
    weight = _stacked(weights, stride)
    hidden = x_gates.new_empty((networks, batch, length, size))
    cell, gates = torch.empty_like(hidden), torch.empty_like(x_gates)
    out = x_gates.new_empty((batch, networks * size))
    sizes = {"H": size, "STRIDE": stride, **_settings(FORWARD, precision)}
    with torch.cuda.device_of(x_gates):
        _forward[_grid(networks, batch)](x_gates, weight, last, hidden, cell, gates, out, batch, length, **sizes)
    return out, hidden, cell, gates


def gate_gradients(
    grad: Tensor, weights: list[Tensor], last: Tensor, cell: Tensor, gates: Tensor, precision: str
) -> Tensor:
    """(S, B, T, 4H) the gradients of the gates before their activations."""
    networks, batch, length, size = cell.shape
    weight = torch.stack([weight.t() for weight in weights])
    grad_cell, grad_gates = cell.new_empty((networks, batch, size)), torch.empty_like(gates)
    sizes = {"H": size, **_settings(BACKWARD, precision)}
    with torch.cuda.device_of(gates):
        _backward[_grid(networks, batch)](
            grad, weight, last, cell, gates, grad_cell, grad_gates, batch, length, **sizes
        )
    return grad_gates


def _stacked(weights: list[Tensor], stride: int) -> Tensor:
    rows, size = weights[0].shape
    if size == stride:
        return torch.stack(weights)
    stacked = weights[0].new_zeros((len(weights), rows, stride))
    for room, weight in zip(stacked.unbind(), weights, strict=True):
        room[:, :size].copy_(weight)
    return stacked


def _grid(networks: int, batch: int) -> tuple[int, int]:
    return networks, -(-batch // _TEXTS)


def _settings(tiles: Tiles, precision: str) -> dict[str, Any]:
    return {
        "TEXTS": _TEXTS,
        "BN": tiles.hidden,
        "BK": tiles.summands,
        "PRECISION": precision,
        "num_warps": tiles.warps,
        "num_stages": tiles.stages,
    }
