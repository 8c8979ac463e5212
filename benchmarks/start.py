"""The first answer of `arbormax predict` and `arbormax --help`, against `import torch`: CPU seconds of processes.

Run with: python benchmarks/start.py MODEL
"""

from __future__ import annotations

import resource
import subprocess
import sys
from statistics import median

ROUNDS = 5


def cpu_seconds(command: list[str]) -> float:
    """User and system time of a process; unlike elapsed time, other programs hardly change it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main(model: str) -> None:
    program = [sys.executable, "-m", "arbormax"]
    commands = {
        "import torch": [sys.executable, "-c", "import torch"],
        "arbormax predict": [*program, "predict", model, "--message", "a text"],
        "arbormax predict --help": [*program, "predict", "--help"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, command in commands.items():
            times[name].append(cpu_seconds(command))
    torch = median(times["import torch"])
    for name, found in times.items():
        spread = f"{min(found):.2f} to {max(found):.2f}"
        print(f"{name:24} {median(found):.2f} s ({spread}), {median(found) / torch:.2f} of import torch")


if __name__ == "__main__":
    main(*sys.argv[1:])
