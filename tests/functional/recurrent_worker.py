"""The LSTM kernels' differences from float64, as JSON: a process of its own can be started as an interpreter."""

import copy
import json
import sys

import torch
from torch import nn

from arbormax.functional.recurrent import lstm_last


def results(networks, inputs, last, grad, impl, function=lstm_last):
    """The outputs, and the gradients of the inputs and all parameters."""
    tensors = [*inputs, *(parameter for network in networks for parameter in network.parameters())]
    out = function(networks, inputs, last, impl)
    return [out.detach(), *torch.autograd.grad(out, tensors, grad)]


def example(batch, length, hidden, count, device="cpu", dim=6):
    """Networks, inputs, last places of uneven texts, and a gradient."""
    torch.manual_seed(batch * 1000 + length * 100 + hidden + count)
    networks = [nn.LSTM(dim, hidden, batch_first=True) for _ in range(count)]
    inputs = [torch.randn(batch, length, dim, requires_grad=True) for _ in range(count)]
    last = torch.randint(0, length, (batch,))
    last[0] = length - 1
    grad = torch.randn(batch, count * hidden)
    if device != "cpu":
        networks = [network.to(device) for network in networks]
        inputs = [x.detach().to(device).requires_grad_() for x in inputs]
    return networks, inputs, last.to(device), grad.to(device)


def exact(networks, inputs, last, grad):
    """The results in float64 on the processor."""
    networks = [copy.deepcopy(network).cpu().double() for network in networks]
    inputs = [x.detach().cpu().double().requires_grad_() for x in inputs]
    return results(networks, inputs, last.cpu(), grad.cpu().double(), "torch")


def errors(found, true):
    return [(a.detach().cpu().double() - b).abs().max().item() for a, b in zip(found, true, strict=True)]


def compiled(backend="inductor"):
    torch._dynamo.config.allow_rnn = True  # else dynamo refuses to look at an nn.LSTM at all
    return torch.compile(lstm_last, fullgraph=True, backend=backend)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = False
    function = compiled("aot_eager") if "compile" in sys.argv else lstm_last
    cases = [example(*case) for case in json.loads(sys.argv[1])]
    print(json.dumps([errors(results(*case, "triton", function), exact(*case)) for case in cases]))
