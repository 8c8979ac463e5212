"""Print the tables of the README: cross-validated macro-F1 of each setting, and errors by class frequency.

The first table uses the folds in results/ and ../paper/results. The second table counts, for rare and frequent classes,
the test texts with a wrong branch and with a wrong sibling; it uses the predictions in ../paper/results and the texts
in ARBORMAX_DATA.

    python experiments/why/tables.py trec
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from arbormax.data import Dataset, load
from arbormax.errors import ArbormaxError

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "paper"))  # for the package `study`

from study.choice import fold_curves, select_curves  # noqa: E402
from study.markdown import TITLES, config_title  # noqa: E402
from study.plan import Study  # noqa: E402
from study.summary import DATASETS, Results, read_results  # noqa: E402

PAPER = HERE.parent / "paper" / "results"
COUNTS = (20, 100)  # training texts of a class: fewer than the first are rare, the second or more are frequent
HEADS = ("flat", "hierarchical", "shared")


def scores(studied: Results, paper: Results, study: Study) -> list[str]:
    """A line for each setting: macro-F1 of both heads, and the difference with its standard error over the folds."""
    name, hidden = study.dataset, {"encoder_options.hidden": 100}
    flat, usual = (_folds(paper, name, "bilstm", head, hidden, study.folds) for head in HEADS[:2])
    lines = ["| | flat | hierarchical | difference |", "|---|---|---|---|", _line("the paper's settings", flat, usual)]
    tuned = [_folds(paper, name, "bilstm-tuned", head, {"learning_rate": 0.004}, study.folds) for head in HEADS[:2]]
    if all(side is not None for side in tuned):
        lines.append(_line("learning_rate 0.004, clip 1.0", *tuned))
    for arm in study.arms:
        for point in arm.points:
            changed = {key: value for key, value in arm.settings.items() if key in ("learning_rate", "clip")} | point
            settings = ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in changed.items())
            both = [_folds(studied, name, arm.name, head, point, study.folds) for head in HEADS[:2]]
            if any(side is not None for side in both):
                # settings of the hierarchical head only are compared with flat in the paper's settings
                lines.append(_line(settings, both[0] if "flat" in (arm.heads or HEADS) else flat, both[1]))
    return lines


def _folds(
    results: Results, dataset: str, arm: str, head: str, point: Mapping[str, Any], folds: int
) -> np.ndarray | None:
    """(folds,) macro-F1 in percent at the epoch with the best mean; None if a fold is missing."""
    matching = [fold for fold in results.folds.get(dataset, ()) if (fold["arm"], fold["head"]) == (arm, head)]
    curves = select_curves(matching, point)
    if len(curves) < folds:
        return None
    table = fold_curves(curves, "macro_f1")
    found: np.ndarray = 100 * table[:, table.mean(0).argmax()]
    return found


def _line(settings: str, flat: np.ndarray | None, hierarchical: np.ndarray | None) -> str:
    cells = ["–" if side is None else f"{side.mean():.1f}" for side in (flat, hierarchical)]
    if flat is None or hierarchical is None:
        return f"| {settings} | {' | '.join(cells)} | – |"
    gap = hierarchical - flat
    return f"| {settings} | {' | '.join(cells)} | {gap.mean():+.1f} ± {gap.std(ddof=1) / len(gap) ** 0.5:.1f} |"


def error_rates(results: Results, name: str, arm: str, data: Dataset) -> list[str]:
    """A line for each head: the percentage of test texts with a wrong branch and with a wrong sibling."""
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
            of_kind_n = kind_n == kind
            shares = [
                100 * wrong_Sn[:, of_kind_n].mean() if of_kind_n.any() else None for wrong_Sn in (other_Sn, sibling_Sn)
            ]
            cells += ["–" if share is None else f"{share:.1f}" for share in shares]
        lines.append(f"| {TITLES[name]}, {config_title(arm, head)} | {len(runs)} | {' | '.join(cells)} |")
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("datasets", nargs="+", choices=DATASETS)
    parser.add_argument(
        "--arms", nargs="+", default=["bilstm", "lstm", "tfidf", "minilm"], help="arms of the second table"
    )
    given = parser.parse_args(argv)
    few, many = COUNTS
    kinds = (f"under {few} training texts", f"{few} to {many - 1}", f"{many} and more")
    try:
        paper = read_results(PAPER)
        for name in given.datasets:
            if (HERE / f"{name}.json").is_file():
                print("\n".join(scores(read_results(HERE / "results"), paper, Study.load(HERE / f"{name}.json"))), "\n")
        print(f"| | seeds | {' | '.join(f'{kind}: other branch | sibling' for kind in kinds)} |")
        print("|---|---|" + "---|" * 2 * len(kinds))
        for name in given.datasets:
            data = load(name)
            for arm in given.arms:
                for line in error_rates(paper, name, arm, data):
                    print(line)
    except ArbormaxError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
