"""Load a service with twice its capacity and kill its workers: python benchmarks/overload.py --minutes 10

Starts `arbormax serve` on loopback with a small model, measures its capacity with a few clients, then keeps twice as
many requests in flight as its limit allows. Slow clients, connections that send nothing, oversized and malformed bodies
and a killed worker run beside. Then SIGTERM under load. Prints the answers by status and the memory; the exit status is
1 if an answer is lost, wrong or not a clean refusal, or if the memory grows by more than a quarter.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

LIMIT = 16  # requests at the same time that the service accepts, in each worker
WORKERS = 2
BODY = json.dumps({"texts": ["an owlish text by the road"] * 8}).encode()
BAD = [b"{", b'{"text": 5}', b"\xff" * 100, b'{"texts": [' + b'"a",' * 5000 + b'"a"]}']


def request(body: bytes, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    lines = [
        "POST /v1/predict HTTP/1.1",
        "host: localhost",
        "content-type: application/json",
        f"content-length: {size}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def ask(port: int, data: bytes) -> tuple[int, bytes]:
    """The status and the body of one answer on a connection of its own; 0 if the connection was closed without."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return -1, b""  # refused: the service does not listen any more
    try:
        writer.write(data)
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
        )
        return int(head.split()[1]), await reader.readexactly(length)
    except (OSError, asyncio.IncompleteReadError):
        return 0, b""
    finally:
        writer.close()


async def client(port: int, end: float, found: Counter[str], bodies: list[bytes], pause: float = 0.0) -> None:
    turn = 0
    while time.monotonic() < end:
        body, turn = bodies[turn % len(bodies)], turn + 1
        status, content = await ask(port, request(body))
        wrong = status == 200 and len(json.loads(content)["predictions"]) != 8
        found["wrong" if wrong else str(status)] += 1
        await asyncio.sleep(pause)


async def slow_client(port: int, end: float, found: Counter[str]) -> None:
    """Sends a head byte by byte, or nothing, or a body that never ends."""
    starts = [b"", request(BODY)[:40], request(BODY, 10_000)]
    turn = 0
    while time.monotonic() < end:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(starts[turn % 3])
        turn += 1
        try:
            answer = await asyncio.wait_for(reader.read(20), 60)
            found[f"slow {answer[9:12].decode() or 'closed'}"] += 1
        except (TimeoutError, OSError):
            found["slow lost"] += 1
        writer.close()


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def memory(pid: int) -> float:
    """Resident megabytes of a process and its children."""
    total = 0.0
    for each in (pid, *children(pid)):
        try:
            lines = Path(f"/proc/{each}/status").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024
        except OSError:
            pass
    return total


async def load(pid: int, port: int, seconds: float) -> bool:
    found: Counter[str] = Counter()
    sizes: list[float] = []
    begin, end = time.monotonic(), time.monotonic() + seconds
    tasks = [client(port, end, found, [BODY]) for _ in range(2 * LIMIT * WORKERS)]
    tasks += [client(port, end, found, BAD, pause=0.2), *(slow_client(port, end, found) for _ in range(4))]

    async def watch() -> None:
        killed = False
        while time.monotonic() < end:
            await asyncio.sleep(min(5.0, seconds / 20))
            sizes.append(memory(pid))
            if not killed and time.monotonic() - begin > seconds / 2:
                worker = max(children(pid), key=lambda child: memory(child))
                os.kill(worker, signal.SIGKILL)
                killed = True
                print(f"killed a worker; lost answers so far: {found['0']}", flush=True)

    await asyncio.gather(*tasks, watch())
    answered = sum(found.values())
    print(f"{seconds:.0f} s: {answered:,} requests, {answered / seconds:.0f} a second; {dict(sorted(found.items()))}")
    half = sizes[len(sizes) // 4 : len(sizes) // 2]
    print(f"memory: {min(half):.0f} MB in the second quarter, {max(sizes[3 * len(sizes) // 4 :]):.0f} MB at the end")
    is_bounded = max(sizes[3 * len(sizes) // 4 :]) < 1.25 * max(half)
    lost = found["0"] + found["-1"] + found["wrong"] + found["slow lost"] + found["500"]
    # the killed worker had at most its limit of requests, and as many connections that it had accepted
    return is_bounded and lost <= 4 * LIMIT and found["200"] > 0 and found["503"] > 0


async def stop(process: subprocess.Popen[bytes], port: int) -> bool:
    """SIGTERM under load: every accepted request is answered."""
    found: Counter[str] = Counter()
    end = time.monotonic() + 3
    tasks = [asyncio.create_task(client(port, end, found, [BODY])) for _ in range(LIMIT)]
    await asyncio.sleep(1)
    process.send_signal(signal.SIGTERM)
    await asyncio.gather(*tasks)
    code = await asyncio.to_thread(process.wait, 60)
    print(f"SIGTERM under load: exit status {code}; { ({k: v for k, v in found.items() if k != '-1'}) }, then refused")
    # a connection that the system accepted, and the service did not, is reset
    return code == 0 and found["wrong"] == 0 and found["0"] <= 2 * LIMIT


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    options = parser.parse_args()
    from arbormax.model import Model, save_model
    from toy import TREE, examples, settings

    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        model = save_model(Model.new(examples(60).inputs, TREE, settings().resolved()), Path(folder) / "model")
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        words = [sys.executable, "-m", "arbormax", "serve", str(model), "--port", str(port), "--workers", str(WORKERS)]
        words += ["--max-requests", str(LIMIT), "--request-seconds", "10", "--head-seconds", "5", "--max-texts", "4096"]
        process = subprocess.Popen(words)
        try:
            while asyncio.run(ask(port, b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n"))[0] != 200:
                time.sleep(0.2)
            passed = asyncio.run(load(process.pid, port, 60 * options.minutes))
            passed &= asyncio.run(stop(process, port))
        finally:
            if process.poll() is None:
                process.kill()
    print("passed" if passed else "failed")
    sys.exit(not passed)


if __name__ == "__main__":
    main()
