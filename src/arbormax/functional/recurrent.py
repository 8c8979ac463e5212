"""The last hidden states of LSTMs: torch's own networks, or all their steps in one launch where a GPU would idle.

S networks, B batch, T tokens, E size of a word's vector, H hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, library, nn

from arbormax.errors import OptionError
from arbormax.kernels.gpu import shared_memory

Impl = Literal["auto", "torch", "triton"]

# Larger ones keep a GPU busy through cuDNN, too, and up to so many hidden units it has one launch of its own, which is
# the faster one for long texts: benchmarks/recurrent.py
_BATCH, _HIDDEN, _CUDNN_HIDDEN, _CUDNN_WORDS = 64, 512, 128, 128
# Of shared memory, for tiles of weights: data-centre GPUs from the A100 on have it.
_SHARED_MEMORY = 160 * 1024


def lstm_last(networks: Sequence[nn.LSTM], inputs: Sequence[Tensor], last: Tensor, impl: Impl = "auto") -> Tensor:
    """(B, S·H): each network's hidden state after each text's word number `last` (B,), side by side.

    Every network reads its own input (B, T, E). All have one layer, one direction and the same hidden size.

    >>> networks = [nn.LSTM(3, 2, batch_first=True), nn.LSTM(3, 2, batch_first=True)]
    >>> lstm_last(networks, [torch.zeros(5, 4, 3)] * 2, torch.tensor([3, 0, 2, 1, 3])).shape
    torch.Size([5, 4])
    """
    if impl not in get_args(Impl):
        raise OptionError(f"impl is one of {', '.join(map(repr, get_args(Impl)))}, not {impl!r}")
    if impl == "torch" or (impl == "auto" and not _suits(networks, inputs)):
        states = [_torch_last(network, x_BTE, last) for network, x_BTE in zip(networks, inputs, strict=True)]
        return torch.cat(states, -1) if len(states) > 1 else states[0]
    if not all(map(_is_plain, networks)):
        raise OptionError("impl='triton' takes LSTMs of one layer and direction, batch_first, with a bias")
    weights = [
        [getattr(network, f"{name}_l0") for network in networks]
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    ]
    out_BH: Tensor = lstm_states(list(inputs), *weights, last, "tf32" if _allows_tf32() else "ieee")[0]
    return out_BH


def _torch_last(network: nn.LSTM, x_BTE: Tensor, last_B: Tensor) -> Tensor:
    states_BTH: Tensor = network(x_BTE)[0]
    places_B1H = last_B.view(-1, 1, 1).expand(-1, 1, states_BTH.shape[-1])
    return states_BTH.gather(1, places_B1H).squeeze(1)


def _suits(networks: Sequence[nn.LSTM], inputs: Sequence[Tensor]) -> bool:
    x_BTE = inputs[0]
    return (
        x_BTE.is_cuda
        and not torch.compiler.is_exporting()
        and not torch.is_autocast_enabled("cuda")
        and 1 <= x_BTE.shape[0] <= _BATCH
        and x_BTE.shape[1] >= 1
        and networks[0].hidden_size <= _HIDDEN
        and (networks[0].hidden_size > _CUDNN_HIDDEN or x_BTE.shape[1] <= _CUDNN_WORDS)
        and all(x.dtype == torch.float32 and x.shape == x_BTE.shape for x in inputs)
        and all(_is_plain(network) and network.weight_hh_l0.dtype == torch.float32 for network in networks)
        and shared_memory(x_BTE.device.index or 0) >= _SHARED_MEMORY
        and not _is_transformed()
    )


def _is_plain(network: nn.LSTM) -> bool:
    hooks = network._forward_hooks or network._forward_pre_hooks or network._backward_hooks  # noqa: SLF001
    layers = network.num_layers == 1 and not network.bidirectional and network.proj_size == 0
    return layers and network.bias and network.batch_first and not hooks


def _is_transformed() -> bool:
    """Whether within torch.func's `vmap`, `grad` or the like."""
    return not torch.compiler.is_compiling() and torch._C._functorch.maybe_current_level() is not None  # noqa: SLF001


def _allows_tf32() -> bool:
    try:
        return torch.backends.cudnn.allow_tf32
    except RuntimeError:  # set through torch's newer names
        return bool(torch.backends.cudnn.rnn.fp32_precision == "tf32")  # type: ignore[attr-defined]


@library.custom_op("arbormax::lstm_states", mutates_args=())
def lstm_states(
    inputs: list[Tensor],
    weight_ih: list[Tensor],
    weight_hh: list[Tensor],
    bias_ih: list[Tensor],
    bias_hh: list[Tensor],
    last: Tensor,
    precision: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(B, S·H) the last states; then (S, B, T, ·) the states and cells before each step, and its gates."""
    from arbormax.kernels import lstm_triton

    batch, length, dim = inputs[0].shape
    x_gates = inputs[0].new_empty((len(inputs), batch, length, len(weight_hh[0])))
    for room, x, weight, bias, more in zip(x_gates.unbind(), inputs, weight_ih, bias_ih, bias_hh, strict=True):
        torch.addmm(bias + more, x.reshape(-1, dim), weight.t(), out=room.view(batch * length, -1))
    out, hidden, cell, gates = lstm_triton.states(x_gates, weight_hh, last.contiguous(), precision)
    return out, hidden, cell, gates


@lstm_states.register_fake
def _(inputs: list[Tensor], _: Any, weight_hh: list[Tensor], *rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # noqa: ARG001
    (batch, length, _dim), (width, size) = inputs[0].shape, weight_hh[0].shape
    out = inputs[0].new_empty((batch, len(inputs) * size))
    hidden, cell, gates = (inputs[0].new_empty((len(inputs), batch, length, each)) for each in (size, size, width))
    return out, hidden, cell, gates


@library.custom_op("arbormax::lstm_gate_gradients", mutates_args=())
def lstm_gate_gradients(
    grad: Tensor, weight_hh: list[Tensor], last: Tensor, cell: Tensor, gates: Tensor, precision: str
) -> Tensor:
    """(S, B, T, 4H) the gradients of the gates before their activations."""
    from arbormax.kernels import lstm_triton

    return lstm_triton.gate_gradients(grad.contiguous(), weight_hh, last.contiguous(), cell, gates, precision)


@lstm_gate_gradients.register_fake
def _(grad: Tensor, weight_hh: Any, last: Tensor, cell: Tensor, gates: Tensor, precision: str) -> Tensor:  # noqa: ARG001
    return torch.empty_like(gates)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    words, weight_ih, weight_hh, _, _, last, ctx.precision = inputs
    ctx.wants_words = [x.requires_grad for x in words]
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*words, *weight_ih, *weight_hh, last, *output[1:])


def _backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Any, ...]:
    networks = len(ctx.wants_words)
    nothing = [None] * networks
    if grad is None:
        return nothing, nothing, nothing, nothing, nothing, None, None
    *given, last, hidden, cell, gates = ctx.saved_tensors
    words, weight_ih, weight_hh = given[:networks], given[networks : 2 * networks], given[2 * networks :]
    found = lstm_gate_gradients(grad, weight_hh, last, cell, gates, ctx.precision)
    flat = found.flatten(1, 2)
    grad_words = [
        (g @ weight).view(x.shape) if wanted else None
        for g, weight, x, wanted in zip(flat, weight_ih, words, ctx.wants_words, strict=True)
    ]
    grad_ih = [g.t() @ x.reshape(-1, x.shape[-1]) for g, x in zip(flat, words, strict=True)]
    grad_hh = list(torch.bmm(flat.transpose(1, 2), hidden.flatten(1, 2)))
    grad_bias = list(flat.sum(1))
    return grad_words, grad_ih, grad_hh, grad_bias, grad_bias, None, None


lstm_states.register_autograd(_backward, setup_context=_setup)
