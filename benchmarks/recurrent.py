"""Forward plus backward of a BiLSTM on a GPU: cuDNN against all steps in one launch, and the errors of both.

Milliseconds are medians between CUDA events; errors are the largest of the outputs and of all gradients, relative to
the largest value of each, against float64 on the processor. The tiles are tried at the longest and widest case; then
the module's own run on all cases. Rows are appended to benchmarks/results/recurrent.csv.

    python benchmarks/recurrent.py
    python benchmarks/recurrent.py --configs 0 3     # of the list below; none for the module's own alone
"""

from __future__ import annotations

import argparse
import copy
import platform
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import torch
import triton
from torch import Tensor, nn

import arbormax as am
from arbormax.functional.recurrent import lstm_last
from arbormax.kernels import lstm_triton
from arbormax.kernels.lstm_triton import Tiles
from common import append, circumstances

RESULTS = Path(__file__).parent / "results" / "recurrent.csv"
BATCH, DIM = 10, 100
HIDDEN, LENGTHS = (150, 100), (256, 80, 16)
# of the way forward, of the way back
CONFIGS = [
    (Tiles(64, 32, 4, 4), Tiles(64, 64, 4, 4)),
    (Tiles(64, 32, 4, 5), Tiles(64, 64, 4, 6)),
    (Tiles(64, 64, 4, 3), Tiles(64, 128, 8, 3)),
    (Tiles(64, 32, 8, 4), Tiles(64, 64, 8, 4)),
    (Tiles(32, 32, 4, 4), Tiles(32, 64, 4, 5)),
    (Tiles(128, 32, 8, 3), Tiles(128, 64, 8, 4)),
]


class Case:
    """Networks and one batch of uneven texts on the GPU."""

    def __init__(self, hidden: int, length: int) -> None:
        torch.manual_seed(0)
        self.hidden, self.length = hidden, length
        self.networks = [nn.LSTM(DIM, hidden, batch_first=True).cuda() for _ in range(2)]
        self.inputs = [torch.randn(BATCH, length, DIM, device="cuda", requires_grad=True) for _ in range(2)]
        self.last = torch.randint(length // 2, length, (BATCH,), device="cuda")
        self.grad = torch.randn(BATCH, 2 * hidden, device="cuda")

    def run(self, impl: str) -> list[Tensor]:
        return _run(self.networks, self.inputs, self.last, self.grad, impl)

    def exact(self) -> list[Tensor]:
        networks = [copy.deepcopy(network).cpu().double() for network in self.networks]
        inputs = [x.detach().cpu().double().requires_grad_() for x in self.inputs]
        return _run(networks, inputs, self.last.cpu(), self.grad.cpu().double(), "torch")


def _run(networks: list[nn.LSTM], inputs: list[Tensor], last: Tensor, grad: Tensor, impl: str) -> list[Tensor]:
    parameters = [parameter for network in networks for parameter in network.parameters()]
    out = lstm_last(networks, inputs, last, impl)  # type: ignore[arg-type]
    return [out.detach(), *torch.autograd.grad(out, [*inputs, *parameters], grad)]


def milliseconds(run: Callable[[], object], seconds: float = 0.4) -> tuple[float, float]:
    """The medians of the GPU's time of one run and of the time to start it."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    gpu, host = [], []
    end = time.perf_counter() + seconds
    while len(gpu) < 5 or (len(gpu) < 50 and time.perf_counter() < end):
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before.record()
        begin = time.perf_counter()
        run()
        host.append(1e3 * (time.perf_counter() - begin))
        after.record()
        torch.cuda.synchronize()
        gpu.append(before.elapsed_time(after))
    return statistics.median(gpu), statistics.median(host)


def launches(run: Callable[[], object]) -> int:
    """Kernels, copies and fills that one run starts on the GPU."""
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as profile:
        run()
        torch.cuda.synchronize()
    return sum(event.device_type.name == "CUDA" for event in profile.events())


def errors(found: list[Tensor], true: list[Tensor]) -> tuple[float, float]:
    """Of the outputs, and the largest of the gradients, relative to the largest value of each."""
    each = [
        ((one.cpu().double() - other).abs().max() / other.abs().max()).item()
        for one, other in zip(found, true, strict=True)
    ]
    return each[0], max(each[1:])


def measure(case: Case, impl: str, true: list[Tensor], tiles: str) -> dict[str, object]:
    begin = time.perf_counter()
    found = case.run(impl)
    torch.cuda.synchronize()
    first = time.perf_counter() - begin
    of_output, of_gradients = errors(found, true)
    ms, host_ms = milliseconds(lambda: case.run(impl))
    count = launches(lambda: case.run(impl))
    print(
        f"H {case.hidden:4} T {case.length:4} {impl:7} {tiles:34} {ms:8.3f} ms, host {host_ms:7.3f} ms,"
        f" {count:5} launches, first {first:5.2f} s, errors {of_output:.1e} {of_gradients:.1e}",
        flush=True,
    )
    return {
        "hidden": case.hidden,
        "length": case.length,
        "impl": impl,
        "tiles": tiles,
        "ms": round(ms, 4),
        "host_ms": round(host_ms, 4),
        "launches": count,
        "output_error": f"{of_output:.2e}",
        "gradient_error": f"{of_gradients:.2e}",
    }


def named(forward: Tiles, backward: Tiles) -> str:
    return " / ".join("x".join(map(str, tiles)) for tiles in (forward, backward))


def where() -> dict[str, str]:
    try:
        told = circumstances("torch")
    except PackageNotFoundError:  # run from its sources
        told = {
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "device": "",
            "python": platform.python_version(),
            "arbormax": am.__version__,
            "torch": torch.__version__,
        }
    return {**told, "device": torch.cuda.get_device_name(), "triton": triton.__version__}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configs", type=int, nargs="*", default=range(len(CONFIGS)), help="which of the tiles to try")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file to append the rows to")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("this needs a GPU")
    chosen = (lstm_triton.FORWARD, lstm_triton.BACKWARD)
    case, rows = Case(HIDDEN[0], LENGTHS[0]), []
    true = case.exact()
    for number in arguments.configs:
        lstm_triton.FORWARD, lstm_triton.BACKWARD = CONFIGS[number]
        try:
            rows.append(measure(case, "triton", true, named(*CONFIGS[number])))
        except Exception as trouble:  # too much shared memory on this GPU, say: the others still count
            print(f"configuration {number}, {named(*CONFIGS[number])}: {type(trouble).__name__}: {trouble}")
    lstm_triton.FORWARD, lstm_triton.BACKWARD = chosen
    for hidden in HIDDEN:
        for length in LENGTHS:
            case = Case(hidden, length)
            true = case.exact()
            rows.append(measure(case, "torch", true, "cuDNN"))
            rows.append(measure(case, "triton", true, named(*chosen)))
    append(arguments.results, [{**where(), "batch": BATCH, **row} for row in rows])


if __name__ == "__main__":
    main()
