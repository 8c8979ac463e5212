"""Kill trainings and studies at random moments and continue them: python benchmarks/kills.py --kills 50

Each run is a fork of this process that SIGKILL ends after a random time, again and again until it finishes by itself.
After every kill, each file must be whole: JSON can be parsed, and what has a digest matches it. The result must be that
of a run that was never killed. Prints one line per kind of run; the exit status is 1 if a result differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import torch

from arbormax.studies import train_model
from arbormax.studies.compare import compare
from arbormax.studies.crossval import crossval
from arbormax.studies.search import search
from toy import TREE, examples, settings

DATA = examples(80)
CONFIG = settings(epochs=10, refit=True, patience=10, encoder_options={"dropout": 0.3})


def train(folder: Path) -> object:
    out = folder / "model"
    if not (out / "config.json").exists() or (out / "checkpoints").exists():
        train_model(CONFIG, TREE, DATA, out, resume=True, every_steps=2)
    return hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()


def run_search(folder: Path) -> object:
    config = settings(epochs=4, validation=0.2)
    found = search(config, TREE, DATA, trials=6, storage=folder / "search.db", seed=1)
    return [found.value, found.config.model_dump_json(), found.complete]


def run_compare(folder: Path) -> object:
    found = compare(settings(epochs=3), TREE, DATA, examples(30, seed=9), seeds=(0, 1), folder=folder, resamples=50)
    return [(row["head"], row["seed"], row["macro_f1"], row["nll"]) for row in found.records]


def run_crossval(folder: Path) -> object:
    found = crossval(settings(epochs=3), TREE, DATA, folds=3, folder=folder)
    return [found.predicted.tolist(), found.pooled["macro_f1"], found.pooled["nll"]]


RUNS: dict[str, Callable[[Path], object]] = {
    "train": train,
    "compare": run_compare,
    "crossval": run_crossval,
    "search": run_search,
}


def forked(work: Callable[[], object], seconds: float | None = None) -> object:
    """What the work returns, or None if it was killed after this time."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        code = 1
        try:
            os.write(write, json.dumps(work()).encode())
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(write)
    end = None if seconds is None else time.monotonic() + seconds
    while not (done := os.waitpid(child, os.WNOHANG))[0]:
        if end is not None and time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            done = os.waitpid(child, 0)
            break
        time.sleep(0.001)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    if os.WIFEXITED(done[1]) and os.WEXITSTATUS(done[1]):
        raise SystemExit("a run failed")
    return json.loads(text) if os.WIFEXITED(done[1]) else None


def check_files(folder: Path) -> None:
    """Raise if a file is half-written."""
    for path in folder.rglob("*.json"):
        if ".arbormax-" not in str(path):  # temporary files have no readers
            json.loads(path.read_text("utf-8"))
    for path in folder.rglob("*.ckpt"):
        digests = path.with_suffix(".sha256").read_text().split()
        assert hashlib.sha256(path.read_bytes()).hexdigest() in digests, f"{path} is not whole"


def run_killed(work: Callable[[Path], object], kills: int, draw: random.Random) -> tuple[int, int, int]:
    """The number of kills, of runs, and of runs with another result than one that was never killed."""
    with tempfile.TemporaryDirectory() as whole:
        begin = time.monotonic()
        expected = forked(lambda: work(Path(whole)))
        usual = time.monotonic() - begin
    done = runs = wrong = 0
    while done < kills:
        with tempfile.TemporaryDirectory() as folder:
            while (result := forked(lambda folder=folder: work(Path(folder)), draw.uniform(0, usual))) is None:
                done += 1
                check_files(Path(folder))
                if done >= kills:
                    result = forked(lambda folder=folder: work(Path(folder)))
                    break
            runs += 1
            wrong += result != expected
            if result != expected:
                print(f"expected {str(expected)[:300]}\nfound    {str(result)[:300]}", flush=True)
            left = list(Path(folder).rglob(".arbormax-*"))
            assert not left, f"left behind: {left}"
    return done, runs, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50, help="for each kind of run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", choices=RUNS, default=list(RUNS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    failed = 0
    for name in options.only:
        kills, runs, wrong = run_killed(RUNS[name], options.kills, random.Random(f"{options.seed} {name}"))
        print(f"{name}: killed {kills} times in {runs} runs, {wrong} of them with another result", flush=True)
        failed += wrong
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
