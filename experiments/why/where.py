"""Where the heads go wrong: for rare and frequent classes, how many test texts get another branch, or just a sibling.

It reads the predictions in experiments/paper/results and the texts in ARBORMAX_DATA, and prints a table in Markdown.

    python experiments/why/where.py trec r52
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from arbormax.data import Dataset, load
from arbormax.errors import ArbormaxError
from arbormax.training.study.markdown import TITLES, config_title
from arbormax.training.study.summary import DATASETS, Results, read_results

RESULTS = Path(__file__).parents[1] / "paper" / "results"
COUNTS = (20, 100)  # of training texts, between which a class is neither rare nor frequent
HEADS = ("flat", "hierarchical", "shared")


def where(results: Results, name: str, arm: str, data: Dataset) -> list[str]:
    """A line for each head: of each kind of class, % of the test texts put in another branch, and in a sibling."""
    tax = data.taxonomy
    truth_n = tax.class_of[data.test.nodes]
    branch_C = tax.ancestor_at(tax.leaves, np.ones_like(tax.leaves))
    count_C = np.bincount(tax.class_of[data.train.nodes], minlength=tax.num_leaves)
    kind_n = np.digitize(count_C[truth_n], COUNTS)
    lines = []
    for head in HEADS:
        runs = results.runs_of(name, arm, head)
        if not runs:
            continue
        found_Sn = np.array([run["predicted"] for run in runs])
        other_Sn = branch_C[found_Sn] != branch_C[truth_n]
        sibling_Sn = (found_Sn != truth_n) & ~other_Sn
        cells = []
        for kind in range(len(COUNTS) + 1):
            mine_n = kind_n == kind
            shares = [100 * wrong_Sn[:, mine_n].mean() if mine_n.any() else None for wrong_Sn in (other_Sn, sibling_Sn)]
            cells += ["–" if share is None else f"{share:.1f}" for share in shares]
        lines.append(f"| {TITLES[name]}, {config_title(arm, head)} | {len(runs)} | {' | '.join(cells)} |")
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("datasets", nargs="+", choices=DATASETS)
    parser.add_argument("--arms", nargs="+", default=["bilstm", "lstm", "tfidf", "minilm"])
    given = parser.parse_args(argv)
    few, many = COUNTS
    kinds = (f"under {few} training texts", f"{few} to {many - 1}", f"{many} and more")
    print(f"| | seeds | {' | '.join(f'{kind}: other branch | sibling' for kind in kinds)} |")
    print("|---|---|" + "---|" * 2 * len(kinds))
    try:
        results = read_results(RESULTS)
        for name in given.datasets:
            data = load(name)
            for arm in given.arms:
                print("\n".join(where(results, name, arm, data)))
    except ArbormaxError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
