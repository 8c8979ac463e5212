"""The LSTMs in one launch against torch's: in Triton's interpreter on the processor, compiled on a GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from recurrent_worker import compiled, errors, exact, example, results
from torch import nn

from arbormax.errors import OptionError
from arbormax.functional.recurrent import lstm_last

# Triton 3.9 tells at the first compilation that a default of its own will change.
pytestmark = pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")

WORKER = Path(__file__).with_name("recurrent_worker.py")
# batch, length, hidden, networks
CASES = [
    (1, 1, 5, 1),
    (1, 7, 16, 2),
    (10, 1, 100, 2),
    (10, 2, 16, 1),
    (10, 7, 5, 2),
    (17, 1, 16, 1),
    (17, 2, 5, 2),
    (2, 2, 100, 1),
    (17, 3, 100, 1),
]


def interpreted(cases, *more):
    """The errors of each case in Triton's interpreter, which must be chosen before Triton is first imported."""
    pytest.importorskip("triton")
    command = [sys.executable, "-W", "ignore", str(WORKER), json.dumps(cases), *more]
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "TRITON_INTERPRET": "1"})
    assert run.returncode == 0, run.stderr
    return dict(zip(cases, json.loads(run.stdout.splitlines()[-1]), strict=True))


@pytest.mark.parametrize("more", [(), ("compile",)], ids=["eager", "compiled"])
def test_outputs_and_gradients_are_torchs(more):
    for case, found in interpreted(CASES[:2] if more else CASES, *more).items():
        assert len(found) == 1 + 5 * case[-1], case
        assert max(found) < 1e-5, (case, found)


@pytest.mark.parametrize("count", [1, 2])
def test_on_the_processor_it_is_torchs_network_bit_for_bit(count):
    networks = [nn.LSTM(3, 4, batch_first=True) for _ in range(count)]
    inputs, last = [torch.randn(5, 6, 3) for _ in range(count)], torch.tensor([5, 0, 2, 3, 5])
    rows = torch.arange(5)
    expected = torch.cat([network(x)[0][rows, last] for network, x in zip(networks, inputs, strict=True)], -1)
    assert torch.equal(lstm_last(networks, inputs, last), expected)


def test_deep_networks_are_left_to_torch():
    network, x = nn.LSTM(3, 4, 2, batch_first=True), torch.randn(2, 3, 3)
    with pytest.raises(OptionError, match="one layer"):
        lstm_last([network], [x], torch.tensor([2, 0]), "triton")
    assert lstm_last([network], [x], torch.tensor([2, 0])).shape == (2, 4)


def test_an_unknown_implementation_is_refused():
    with pytest.raises(OptionError, match="'cudnn'"):
        lstm_last([nn.LSTM(3, 4)], [torch.zeros(1, 1, 3)], torch.tensor([0]), "cudnn")


@pytest.fixture
def gpu(monkeypatch):
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    pytest.importorskip("triton")
    if os.environ.get("TRITON_INTERPRET") == "1":
        pytest.skip("Triton is interpreted in this process")
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("case", [(10, 256, 150, 2), (10, 80, 100, 2), (17, 33, 37, 1), (64, 5, 512, 1), (1, 1, 5, 2)])
@pytest.mark.parametrize("tf32", [True, False])
def test_errors_on_a_gpu_are_those_of_the_precision(case, tf32):
    torch.backends.cudnn.allow_tf32 = tf32
    given = example(*case, "cuda", 100)
    true = exact(*given)
    cudnn, ours = (errors(results(*given, impl), true) for impl in ("torch", "triton"))
    for own, theirs, values in zip(ours, cudnn, true, strict=True):
        assert own <= 4 * theirs + (5e-3 if tf32 else 2e-5) * values.abs().max().item(), (ours, cudnn)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.usefixtures("gpu")
def test_a_small_batch_on_a_gpu_takes_the_kernels_and_never_waits_for_them():
    given = example(10, 20, 150, 2, "cuda", 100)
    expected = results(*given, "triton")
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = results(*given, "auto")
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


@pytest.mark.filterwarnings("ignore")  # of the compiler, about settings that would be faster
@pytest.mark.usefixtures("gpu")
@torch._dynamo.config.patch(allow_rnn=True)
def test_a_compiled_network_on_a_gpu_is_the_same():
    given = example(10, 20, 150, 2, "cuda", 100)
    expected = results(*given, "auto")
    for one, other in zip(results(*given, "auto", compiled()), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


@pytest.mark.usefixtures("gpu")
def test_half_precision_and_large_batches_on_a_gpu_are_left_to_cudnn():
    networks, inputs, last, _ = example(65, 3, 8, 1, "cuda")
    assert torch.equal(lstm_last(networks, inputs, last), lstm_last(networks, inputs, last, "torch"))
    networks, inputs, last, _ = example(4, 3, 8, 1, "cuda")
    with torch.autocast("cuda", torch.bfloat16):
        assert lstm_last(networks, inputs, last).dtype in (torch.bfloat16, torch.float16)  # older torch: float16
