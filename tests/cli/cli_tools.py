"""Helpers of the command-line tests: tiny texts, and the program as a process."""

import csv
import os
import random
import subprocess
import sys
from pathlib import Path

WORDS = {
    "news > sport": "goal match team player score",
    "news > weather": "rain sun wind storm cloud",
    "shop > shoes": "boot heel sole lace leather",
    "shop > hats": "brim cap felt straw wool",
}
SMALL = ["--epochs", "2", "--batch-size", "16", "--encoder", "bag", "-o", "dim=8", "--accelerator", "cpu"]


def rows(count, seed=0):
    draw = random.Random(seed)
    for _ in range(count):
        label = draw.choice(list(WORDS))
        yield " ".join(draw.choices(WORDS[label].split(), k=4)), label


def write_csv(path: Path, count: int, seed: int = 0, header=("text", "label")) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows(count, seed))
    return path


class Result:
    """The output and the exit code of a command."""

    def __init__(self, result):
        self.code, self.out, self.err, self.exception = result.exit_code, result.stdout, result.stderr, result.exception


def program(*words, start=False, **options):
    """Run the program as a separate process, or only start it."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    command = [sys.executable, "-m", "arbormax", *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment, **options}
    return subprocess.Popen(command, **pipes) if start else subprocess.run(command, timeout=120, **pipes)
