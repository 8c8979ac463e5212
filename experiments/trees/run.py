"""Train the same model on a human tree, induced trees, a shuffled tree and no tree; finished runs are kept.

    python experiments/trees/run.py                       # all datasets, in the order of `PLAN` and `STAGES`
    python experiments/trees/run.py --datasets trec r8    # some of them

Every tree is induced from the training part of a fold only.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from trees_study.jobs import run_fold
from trees_study.plan import FOLDS, PLAN, STAGES

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", choices=[*PLAN], default=[*PLAN])
    parser.add_argument("--folds", nargs="+", type=int, choices=range(FOLDS), default=[*range(FOLDS)])
    parser.add_argument("--stages", type=int, default=len(STAGES), help="number of stages of `STAGES`")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for arms in STAGES[: args.stages]:
        for dataset in args.datasets:
            for number in args.folds:
                run_fold(dataset, number, arms, args.out)


if __name__ == "__main__":
    main()
