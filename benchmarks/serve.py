"""Requests per second and latency of `arbormax serve` on loopback, compared with the same model in a loop.

For each encoder the service runs in its own processes; this process is the clients. Every client has one connection and
sends its next request when it has the response to the last one. For comparison, `arbormax.model.predict` runs in this
process, with batches of 128 texts and with single texts, and with the five most probable classes. The service starts
with one worker per core and torch with one thread per core, unless `--workers` and `--threads` are given. Service and
loop take turns, so that other load on the machine affects both. `to_bare` is the median, over the turns, of the ratio
of texts per second of the service and of the loop in batches. `cpu_us` is the processor time per request of all
processes of the service. The weights are untrained, which does not affect the results. The transformer is
all-MiniLM-L6-v2 from the folder `models` of the data (ARBORMAX_DATA), or else a random BERT of the same size. Rows are
appended to benchmarks/results/serve.csv. All requests go to 127.0.0.1.

    python benchmarks/serve.py
    python benchmarks/serve.py --encoders bag bilstm --turns 1 --seconds 3
    python benchmarks/serve.py --workers 1
    python benchmarks/serve.py --encoders bag --minutes 10      # memory over time
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from arbormax.data import Dataset, load
from arbormax.model import Model, TrainConfig, save_model
from arbormax.model.predict import predict
from common import append, circumstances
from export import transformer

try:
    import uvloop
except ImportError:  # not available on Windows
    uvloop = None

T = TypeVar("T")
RESULTS = Path(__file__).parent / "results" / "serve.csv"
ENCODERS, BATCH, TOP_K = ("bag", "bilstm", "transformer"), 128, 5
LOADS = ((1, 1), (16, 1), (128, 1), (128, 16))  # clients, texts per request
MAX_GROWTH = 0.02  # of the memory, from the second quarter of the time to the last


class Client(asyncio.Protocol):
    """One connection that sends its next request after each response; it parses as little as possible."""

    def __init__(self, requests: list[bytes], first: int, until: float, times: list[float], errors: list[str]) -> None:
        self.requests, self.next, self.until, self.times, self.errors = requests, first, until, times, errors
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.send()

    def send(self) -> None:
        self.received, self.length = b"", None
        self.begin = time.perf_counter()
        self.transport.write(self.requests[self.next % len(self.requests)])
        self.next += 1

    def data_received(self, data: bytes) -> None:
        self.received += data
        end = self.received.find(b"\r\n\r\n")
        if end < 0:
            return
        if self.length is None:
            start = self.received.index(b"content-length: ") + 16
            self.length = end + 4 + int(self.received[start : self.received.index(b"\r\n", start)])
        if len(self.received) < self.length:
            return
        now = time.perf_counter()
        self.times.append(now - self.begin)
        if not self.received.startswith(b"HTTP/1.1 200 "):
            self.errors.append(self.received[:400].decode(errors="replace"))
        if now < self.until:
            self.send()
        else:
            self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if time.perf_counter() < self.until:
            self.errors.append(f"connection lost: {error}")
        self.closed.set_result(None)


def build_requests(texts: list[str], size: int) -> list[bytes]:
    """Complete requests as bytes."""
    requests = []
    for start in range(0, len(texts), size):
        part = [texts[(start + i) % len(texts)] for i in range(size)]
        body = json.dumps({"texts": part, "top_k": TOP_K}).encode()
        head = f"POST /v1/predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
        requests.append(head.encode() + b"content-type: application/json\r\n\r\n" + body)
    return requests


def run(load: Coroutine[Any, Any, T]) -> T:
    """Run on the fastest event loop, which leaves most of the machine to the service."""
    with asyncio.Runner(loop_factory=None if uvloop is None else uvloop.new_event_loop) as runner:
        return runner.run(load)


async def send_load(port: int, requests: list[bytes], clients: int, seconds: float) -> tuple[list[float], list[str]]:
    """The seconds of each request, and all errors."""
    times: list[float] = []
    errors: list[str] = []
    loop, until = asyncio.get_running_loop(), time.perf_counter() + seconds
    connections = [
        await loop.create_connection(
            lambda n=n: Client(requests, n * len(requests) // clients, until, times, errors), "127.0.0.1", port
        )
        for n in range(clients)
    ]
    await asyncio.gather(*(client.closed for _, client in connections))
    return times, errors


@contextmanager
def service(folder: Path, arguments: argparse.Namespace) -> Iterator[tuple[int, int]]:
    """The port and the process id of a service of this model."""
    command = [sys.executable, "-m", "arbormax", "serve", str(folder), "--port", "0", "--device", "cpu"]
    for option in ("workers", "threads"):
        value = getattr(arguments, option)
        command += [] if value is None else [f"--{option}", str(value)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stderr.readline()
        if not line.startswith("serving "):
            raise SystemExit(line + process.stderr.read())
        yield int(line.split(" at ")[1].split()[0].rstrip("/").rpartition(":")[2]), process.pid
    finally:
        process.terminate()
        output = process.communicate(timeout=60)[1]
        if output.strip() != "stopped":
            print(output, file=sys.stderr)


def measure_model(model: Model, texts: list[str], size: int, seconds: float) -> float:
    """Texts per second of the model in a loop."""
    count, start, begin = 0, 0, time.perf_counter()
    while (spent := time.perf_counter() - begin) < seconds:
        count += sum(1 for _ in predict(model, texts[start : start + size], top_k=TOP_K, batch_size=size))
        start = (start + size) % max(1, len(texts) - size)
    return count / spent


def process_family(pid: int) -> list[int]:
    """A process and its children."""
    return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def cpu_seconds(pid: int) -> float:
    stats = [Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()[11:13] for one in process_family(pid)]
    return sum(int(user) + int(system) for user, system in stats) / os.sysconf("SC_CLK_TCK")


def megabytes(pid: int) -> float:
    statuses = [Path(f"/proc/{one}/status").read_text() for one in process_family(pid)]
    return sum(int(status.partition("VmRSS:")[2].split()[0]) for status in statuses) / 1024


def measure(model: Model, texts: list[str], folder: Path, arguments: argparse.Namespace) -> list[dict[str, object]]:
    """One row for each load."""
    requests = {size: build_requests(texts, size) for size in {size for _, size in LOADS}}
    turns: dict[tuple[int, int], list[dict[str, float]]] = {load: [] for load in LOADS}
    latencies: dict[tuple[int, int], list[float]] = {load: [] for load in LOADS}
    error_counts: dict[tuple[int, int], int] = dict.fromkeys(LOADS, 0)
    with service(folder, arguments) as (port, pid):
        run(send_load(port, requests[1], 16, 1.0))
        children = process_family(pid)
        workers = max(1, sum(b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes() for one in children))
        for _ in range(arguments.turns):
            batched = measure_model(model, texts, BATCH, arguments.seconds / 2)
            single = measure_model(model, texts, 1, arguments.seconds / 2)
            for clients, size in LOADS:
                cpu, begin = cpu_seconds(pid), time.perf_counter()
                times, errors = run(send_load(port, requests[size], clients, arguments.seconds))
                speed = len(times) / (time.perf_counter() - begin)
                for error in errors[:3]:
                    print(error, file=sys.stderr)
                turn = {"speed": speed, "batched": batched, "single": single, "to_bare": speed * size / batched}
                turn["cpu"] = 1e6 * (cpu_seconds(pid) - cpu) / len(times)
                turns[clients, size].append(turn)
                latencies[clients, size] += times
                error_counts[clients, size] += len(errors)
    rows = []
    for clients, size in LOADS:
        median = {
            name: statistics.median(turn[name] for turn in turns[clients, size]) for name in turns[clients, size][0]
        }
        p50, p95, p99 = 1e3 * np.quantile(latencies[clients, size], [0.5, 0.95, 0.99])
        rows.append(
            {
                "workers": workers,
                "clients": clients,
                "texts_per_request": size,
                "requests_per_s": round(median["speed"], 1),
                "texts_per_s": round(median["speed"] * size, 1),
                "p50_ms": round(p50, 2),
                "p95_ms": round(p95, 2),
                "p99_ms": round(p99, 2),
                "errors": error_counts[clients, size],
                "bare_batched_texts_per_s": round(median["batched"], 1),
                "bare_single_texts_per_s": round(median["single"], 1),
                "to_bare": round(median["to_bare"], 3),
                "cpu_us": round(median["cpu"]),
            }
        )
    return rows


def measure_memory(texts: list[str], folder: Path, arguments: argparse.Namespace) -> None:
    """Print the memory of a service under load; exit with an error if it grows."""
    requests, found = build_requests(texts, 1), []
    with service(folder, arguments) as (port, pid):
        begin = time.perf_counter()
        errors = 0
        while (spent := time.perf_counter() - begin) < 60 * arguments.minutes:
            left = 60 * arguments.minutes - spent
            errors += len(run(send_load(port, requests, 128, min(10.0, max(1.0, left))))[1])
            found.append(megabytes(pid))
            print(f"{(time.perf_counter() - begin) / 60:6.2f} min {found[-1]:9.1f} MB", flush=True)
    quarter = max(1, len(found) // 4)
    early, late = statistics.median(found[quarter : 2 * quarter] or found), statistics.median(found[-quarter:])
    is_constant = late <= early * (1 + MAX_GROWTH)
    print(f"{'constant' if is_constant else 'GROWING'}: {early:.1f} MB, then {late:.1f} MB; {errors} errors")
    if not is_constant or errors:
        raise SystemExit(1)


def create_model(encoder: str, data: Dataset, folder: Path) -> tuple[str, Model]:
    """The name of an encoder, and an untrained model with it."""
    name, options = encoder, {}
    if encoder == "transformer":
        name, source = transformer(data, folder / "transformer")
        options = {"encoder_options": {"model": str(source)}}
    config = TrainConfig.make(encoder=encoder, head="hierarchical", **options)
    return name, Model.new(data.train.inputs, data.taxonomy, config).eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoders", nargs="+", choices=ENCODERS, default=ENCODERS)
    parser.add_argument("--data", default="trec", help="dataset with the texts and the tree")
    parser.add_argument("--threads", type=int, help="threads of torch, in each worker and in the loop")
    parser.add_argument("--workers", type=int, help="number of worker processes")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6.0, help="duration of each load in a turn")
    parser.add_argument("--minutes", type=float, help="measure the memory for this time instead")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file to append the rows to")
    arguments = parser.parse_args()
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    data = load(arguments.data)
    texts = list(data.test.inputs)
    environment, rows = circumstances("torch", "fastapi", "uvicorn"), []
    for encoder in arguments.encoders:
        with tempfile.TemporaryDirectory() as folder:
            name, model = create_model(encoder, data, Path(folder))
            save_model(model, Path(folder) / "model")
            if arguments.minutes:
                measure_memory(texts, Path(folder) / "model", arguments)
                continue
            setup = {"encoder": name, "classes": data.taxonomy.num_leaves, "threads": torch.get_num_threads()}
            for row in measure(model, texts, Path(folder) / "model", arguments):
                print(
                    f"{name:20} {row['clients']:4} clients x {row['texts_per_request']:2} texts "
                    f"{row['texts_per_s']:10} texts/s, p50 {row['p50_ms']:8} p95 {row['p95_ms']:8} "
                    f"p99 {row['p99_ms']:8} ms, {row['to_bare']:6} of bare, {row['errors']} errors",
                    flush=True,
                )
                rows.append({**setup, **row, "turns": arguments.turns, "seconds": arguments.seconds, **environment})
    if rows:
        append(arguments.results, rows)


if __name__ == "__main__":
    main()
