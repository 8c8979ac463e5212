"""Requests per second and latency of `arbormax serve` on loopback, against the same model called in a loop.

For each encoder a service is started as a process of its own; this process is its clients, as many connections as are
asked for, each of which sends its next request when its last is answered. The bare model is called here, in one
process, 128 texts at a time and one by one, by `arbormax.model.predict`: rows with label, path, probabilities
and the five best classes. Both start as they do for anyone: the service with a process a core, torch with a thread a
core; `--workers` and `--threads` say otherwise. All of them take turns, so that what else runs on the machine hits all
alike; `to_bare` is the median over the turns of the texts per second over those of the bare model in batches. `cpu_us`
is what a request costs the service's processes. Weights are untrained, which none of this depends on. The transformer
is all-MiniLM-L6-v2 where it lies in the folder `models` of the data (ARBORMAX_DATA), else a BERT of its size that is
made here. Rows are appended to benchmarks/results/serve.csv.

    python benchmarks/serve.py
    python benchmarks/serve.py --encoders bag bilstm --turns 1 --seconds 3
    python benchmarks/serve.py --workers 1
    python benchmarks/serve.py --floor                          # Uvicorn with an application that does nothing
    python benchmarks/serve.py --encoders bag --minutes 10      # memory over time, and whether it is flat
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
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
except ImportError:  # as on Windows
    uvloop = None

T = TypeVar("T")
RESULTS = Path(__file__).parent / "results" / "serve.csv"
ENCODERS, BATCH, TOP_K = ("bag", "bilstm", "transformer"), 128, 5
LOADS = ((1, 1), (16, 1), (128, 1), (128, 16))  # clients, texts of a request
NOTHING = """
import sys, uvicorn

async def app(scope, receive, send):
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"900")]})
    await send({"type": "http.response.body", "body": bytes(900)})

uvicorn.run(app, port=int(sys.argv[1]), lifespan="off", log_level="error", access_log=False)
"""
FLAT = 0.02  # growth of memory, from the second quarter of the time to the last, that is none


class Client(asyncio.Protocol):
    """One connection that asks again as soon as it is answered; it reads just what it must."""

    def __init__(self, requests: list[bytes], first: int, until: float, times: list[float], errors: list[str]) -> None:
        self.requests, self.at, self.until, self.times, self.errors = requests, first, until, times, errors
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.ask()

    def ask(self) -> None:
        self.got, self.rest = b"", None
        self.begin = time.perf_counter()
        self.transport.write(self.requests[self.at % len(self.requests)])
        self.at += 1

    def data_received(self, data: bytes) -> None:
        self.got += data
        end = self.got.find(b"\r\n\r\n")
        if end < 0:
            return
        if self.rest is None:
            place = self.got.index(b"content-length: ") + 16
            self.rest = end + 4 + int(self.got[place : self.got.index(b"\r\n", place)])
        if len(self.got) < self.rest:
            return
        now = time.perf_counter()
        self.times.append(now - self.begin)
        if not self.got.startswith(b"HTTP/1.1 200 "):
            self.errors.append(self.got[:400].decode(errors="replace"))
        if now < self.until:
            self.ask()
        else:
            self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if time.perf_counter() < self.until:
            self.errors.append(f"the connection was lost: {error}")
        self.gone.set_result(None)


def requests_of(texts: list[str], size: int) -> list[bytes]:
    """Whole requests, ready to be sent."""
    found = []
    for start in range(0, len(texts), size):
        part = [texts[(start + i) % len(texts)] for i in range(size)]
        body = json.dumps({"texts": part, "top_k": TOP_K}).encode()
        head = f"POST /v1/predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
        found.append(head.encode() + b"content-type: application/json\r\n\r\n" + body)
    return found


def run(load: Coroutine[Any, Any, T]) -> T:
    """On the event loop that takes least of the machine away from the service."""
    with asyncio.Runner(loop_factory=None if uvloop is None else uvloop.new_event_loop) as runner:
        return runner.run(load)


async def load_with(port: int, requests: list[bytes], clients: int, seconds: float) -> tuple[list[float], list[str]]:
    """The seconds of each request, and what went wrong."""
    times: list[float] = []
    errors: list[str] = []
    loop, until = asyncio.get_running_loop(), time.perf_counter() + seconds
    made = [
        await loop.create_connection(
            lambda n=n: Client(requests, n * len(requests) // clients, until, times, errors), "127.0.0.1", port
        )
        for n in range(clients)
    ]
    await asyncio.gather(*(client.gone for _, client in made))
    return times, errors


@contextmanager
def service(folder: Path, arguments: argparse.Namespace) -> Iterator[tuple[int, int]]:
    """The port and the process id of a service of this model."""
    command = [sys.executable, "-m", "arbormax", "serve", str(folder), "--port", "0", "--device", "cpu"]
    for option in ("workers", "threads"):
        given = getattr(arguments, option)
        command += [] if given is None else [f"--{option}", str(given)]
    process = subprocess.Popen([*command, "--log-level", "warning"], stderr=subprocess.PIPE, text=True)
    try:
        line = process.stderr.readline()
        if not line.startswith("serving "):
            raise SystemExit(line + process.stderr.read())
        yield int(line.split(" at ")[1].split()[0].rstrip("/").rpartition(":")[2]), process.pid
    finally:
        process.terminate()
        told = process.communicate(timeout=60)[1]
        if "stopped" not in told:
            print(told, file=sys.stderr)


def bare(model: Model, texts: list[str], size: int, seconds: float) -> float:
    """Texts per second of the model in a loop."""
    count, at, begin = 0, 0, time.perf_counter()
    while (spent := time.perf_counter() - begin) < seconds:
        part = texts[at : at + size]
        for _ in predict(model, part, top_k=TOP_K, batch_size=size):
            count += 1
        at = (at + size) % max(1, len(texts) - size)
    return count / spent


def family(pid: int) -> list[int]:
    """A process and its children."""
    return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def cpu_seconds(pid: int) -> float:
    stats = [Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()[11:13] for one in family(pid)]
    return sum(int(user) + int(system) for user, system in stats) / os.sysconf("SC_CLK_TCK")


def megabytes(pid: int) -> float:
    told = [Path(f"/proc/{one}/status").read_text() for one in family(pid)]
    return sum(int(status.partition("VmRSS:")[2].split()[0]) for status in told) / 1024


def measure(model: Model, texts: list[str], folder: Path, arguments: argparse.Namespace) -> list[dict[str, object]]:
    """A row for each number of clients."""
    ready = {size: requests_of(texts, size) for size in {size for _, size in LOADS}}
    turns: dict[tuple[int, int], list[dict[str, float]]] = {load: [] for load in LOADS}
    latencies: dict[tuple[int, int], list[float]] = {load: [] for load in LOADS}
    wrong: dict[tuple[int, int], int] = dict.fromkeys(LOADS, 0)
    with service(folder, arguments) as (port, pid):
        run(load_with(port, ready[1], 16, 1.0))
        processes = max(1, sum(b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes() for one in family(pid)))
        for _ in range(arguments.turns):
            together = bare(model, texts, BATCH, arguments.seconds / 2)
            single = bare(model, texts, 1, arguments.seconds / 2)
            for clients, size in LOADS:
                cpu, begin = cpu_seconds(pid), time.perf_counter()
                times, errors = run(load_with(port, ready[size], clients, arguments.seconds))
                speed = len(times) / (time.perf_counter() - begin)
                for told in errors[:3]:
                    print(told, file=sys.stderr)
                turn = {"speed": speed, "together": together, "single": single, "to_bare": speed * size / together}
                turn["cpu"] = 1e6 * (cpu_seconds(pid) - cpu) / len(times)
                turns[clients, size].append(turn)
                latencies[clients, size] += times
                wrong[clients, size] += len(errors)
    rows = []
    for clients, size in LOADS:
        middle = {
            name: statistics.median(turn[name] for turn in turns[clients, size]) for name in turns[clients, size][0]
        }
        p50, p95, p99 = 1e3 * np.quantile(latencies[clients, size], [0.5, 0.95, 0.99])
        rows.append(
            {
                "workers": processes,
                "clients": clients,
                "texts_per_request": size,
                "requests_per_s": round(middle["speed"], 1),
                "texts_per_s": round(middle["speed"] * size, 1),
                "p50_ms": round(p50, 2),
                "p95_ms": round(p95, 2),
                "p99_ms": round(p99, 2),
                "errors": wrong[clients, size],
                "bare_batched_texts_per_s": round(middle["together"], 1),
                "bare_single_texts_per_s": round(middle["single"], 1),
                "to_bare": round(middle["to_bare"], 3),
                "cpu_us": round(middle["cpu"]),
            }
        )
    return rows


def answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def floor(texts: list[str], seconds: float) -> None:
    """Print what a request costs when there is nothing to do, for the server and for the client."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-c", NOTHING, str(port)])
    try:
        while not answers(port):
            if process.poll() is not None:
                raise SystemExit("Uvicorn did not start")
            time.sleep(0.1)
        cpu, own, begin = cpu_seconds(process.pid), time.process_time(), time.perf_counter()
        times, errors = run(load_with(port, requests_of(texts, 1), 128, seconds))
        spent, count = time.perf_counter() - begin, len(times)
        server, client = cpu_seconds(process.pid) - cpu, time.process_time() - own
        print(
            f"nothing to do, 128 clients: {count / spent:.0f} requests/s, {len(errors)} errors; processor time of a "
            f"request: {1e6 * server / count:.0f} us of the server, {1e6 * client / count:.0f} us of the clients"
        )
    finally:
        process.terminate()
        process.wait()


def watch(texts: list[str], folder: Path, arguments: argparse.Namespace) -> None:
    """Print the memory of a service under load, and whether it is flat."""
    ready, found = requests_of(texts, 1), []
    with service(folder, arguments) as (port, pid):
        begin = time.perf_counter()
        errors = 0
        while (spent := time.perf_counter() - begin) < 60 * arguments.minutes:
            left = 60 * arguments.minutes - spent
            errors += len(run(load_with(port, ready, 128, min(10.0, max(1.0, left))))[1])
            found.append(megabytes(pid))
            print(f"{(time.perf_counter() - begin) / 60:6.2f} min {found[-1]:9.1f} MB", flush=True)
    quarter = max(1, len(found) // 4)
    early, late = statistics.median(found[quarter : 2 * quarter] or found), statistics.median(found[-quarter:])
    flat = late <= early * (1 + FLAT)
    print(f"{'flat' if flat else 'GROWING'}: {early:.1f} MB, then {late:.1f} MB; {errors} errors")
    if not flat or errors:
        raise SystemExit(1)


def made(encoder: str, data: Dataset, room: Path) -> tuple[str, Model]:
    """An untrained model, and what to call it."""
    named, options = encoder, {}
    if encoder == "transformer":
        named, source = transformer(data, room / "transformer")
        options = {"encoder_options": {"model": str(source)}}
    config = TrainConfig.make(encoder=encoder, head="hierarchical", **options)
    return named, Model.new(data.train.inputs, data.taxonomy, config).eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoders", nargs="+", choices=ENCODERS, default=ENCODERS)
    parser.add_argument("--data", default="trec", help="dataset whose texts and tree are taken")
    parser.add_argument("--threads", type=int, help="of torch, in each process of the service and bare")
    parser.add_argument("--workers", type=int, help="processes of the service")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each load in a turn")
    parser.add_argument("--minutes", type=float, help="watch the memory for so long instead")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file to append the rows to")
    parser.add_argument("--floor", action="store_true", help="measure a service that does nothing instead")
    arguments = parser.parse_args()
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    data = load(arguments.data)
    texts = list(data.test.inputs)
    if arguments.floor:
        floor(texts, arguments.seconds)
        return
    where, rows = circumstances("torch", "fastapi", "uvicorn"), []
    for encoder in arguments.encoders:
        with tempfile.TemporaryDirectory() as folder:
            named, model = made(encoder, data, Path(folder))
            save_model(model, Path(folder) / "model")
            if arguments.minutes:
                watch(texts, Path(folder) / "model", arguments)
                continue
            about = {"encoder": named, "classes": data.taxonomy.num_leaves, "threads": torch.get_num_threads()}
            for row in measure(model, texts, Path(folder) / "model", arguments):
                print(
                    f"{named:20} {row['clients']:4} clients x {row['texts_per_request']:2} texts "
                    f"{row['texts_per_s']:10} texts/s, p50 {row['p50_ms']:8} p95 {row['p95_ms']:8} "
                    f"p99 {row['p99_ms']:8} ms, {row['to_bare']:6} of bare, {row['errors']} errors",
                    flush=True,
                )
                rows.append({**about, **row, "turns": arguments.turns, "seconds": arguments.seconds, **where})
    if rows:
        append(arguments.results, rows)


if __name__ == "__main__":
    main()
