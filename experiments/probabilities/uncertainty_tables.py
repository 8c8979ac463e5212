"""Write the tables of docs/uncertainty.md from the records of `uncertainty.py`.

    python experiments/probabilities/uncertainty_tables.py
    python experiments/probabilities/uncertainty_tables.py --check    # is the page up to date? writes nothing

Numbers are means over the seeds; ± is half the width of a 95 % interval of the mean (Student's t). Differences are
from the plain model of the same seed.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from tables import HERE, ROOT, markdown, spread
from tables import NAMES as CALIBRATED

RESULTS, PAGE = HERE / "results" / "uncertainty", ROOT / "docs" / "uncertainty.md"
NAMES = {
    **CALIBRATED,
    "bag:soc2020": "SOC 2020, bag",
    "bag:icd10cm": "ICD-10-CM, bag",
    "bilstm:trec": "TREC, BiLSTM",
}
ORDER = (
    *("plain", "temperature", "laplace", "laplace, evidence", "laplace, kronecker", "laplace, diagonal"),
    *("dropout", "bbb", "bbb, KL × 1", "ensemble", "ensemble, snapshots", "last snapshot"),
)
MARKED = re.compile(r"(<!-- table of (uncertainty-\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)

Row = dict[str, Any]


def read() -> dict[str, list[Row]]:
    """The records of each run, one for each seed."""
    found: dict[str, list[Row]] = {run: [] for run in NAMES}
    for path in sorted(RESULTS.glob("*.json")):
        record = json.loads(path.read_text("utf-8"))
        found[record["run"]].append({**record, "methods": {row["method"]: row for row in record["methods"]}})
    return {run: records for run, records in found.items() if records}


def table(columns: dict[str, Callable[[list[Row], list[Row]], str]]) -> str:
    """One line for each run and method; a column is computed from the rows of the method and of the plain model."""
    rows = []
    for run, records in read().items():
        for place, method in enumerate(sorted(records[0]["methods"], key=ORDER.index)):
            own, plain = ([record["methods"][name] for record in records] for name in (method, "plain"))
            cells = [column(own, plain) for column in columns.values()]
            rows.append(["" if place else NAMES[run], method, *cells])
    return markdown(["test texts", "method", *columns], rows)


def mean(name: str, digits: int, factor: float = 1.0) -> Callable[[list[Row], list[Row]], str]:
    return lambda own, _: f"{factor * np.mean([row[name] for row in own]):.{digits}f}"


def difference(value: Callable[[Row], float | None], digits: int, factor: float = 1.0, of: Any = None) -> Any:
    """The mean difference of a value from that of the plain model, or from another value `of` it."""

    def column(own: list[Row], plain: list[Row]) -> str:
        if own is plain or own[0]["method"] == "plain" or value(own[0]) is None:
            return ""
        pairs = zip(own, plain, strict=True)
        return spread(((value(row) or 0.0) - ((of or value)(base) or 0.0) for row, base in pairs), digits, factor)

    return column


def by(measure: str, sureness: str) -> Callable[[Row], float | None]:
    return lambda row: row[measure].get(sureness)


def share(measure: str, sureness: str) -> Callable[[list[Row], list[Row]], str]:
    value = by(measure, sureness)
    return lambda own, _: "" if value(own[0]) is None else f"{100 * np.mean([value(row) for row in own]):.1f}"


def levels(own: list[Row], _: list[Row]) -> str:
    found = [[100 * (level or 0.0) for level in row["ece_debiased"]] for row in own]
    return " / ".join(f"{value:.1f}" for value in np.mean(found, 0))


def likelihood_table() -> str:
    return table(
        {
            "NLL": mean("nll", 3),
            "difference": difference(lambda row: row["nll"], 3),
            "Brier": mean("brier", 3),
            "debiased ECE of each level, %": levels,
            "accuracy, %": mean("accuracy", 1, 100),
            "difference, points": difference(lambda row: row["accuracy"], 1, 100),
        }
    )


def decision_table() -> str:
    base_80, base_auroc = by("accuracy_80", "max_probability"), by("auroc", "max_probability")
    return table(
        {
            "accuracy at 80 % coverage, %: max. probability": share("accuracy_80", "max_probability"),
            "epistemic": share("accuracy_80", "epistemic"),
            "difference": difference(by("accuracy_80", "epistemic"), 1, 100, of=base_80),
            "AUROC of unknown texts, %: max. probability": share("auroc", "max_probability"),
            "total": share("auroc", "total"),
            "epistemic ": share("auroc", "epistemic"),
            "difference ": difference(by("auroc", "epistemic"), 1, 100, of=base_auroc),
        }
    )


def cost_table() -> str:
    def ratio(name: str) -> Callable[[list[Row], list[Row]], str]:
        return lambda own, plain: f"{np.sum([r[name] for r in own]) / np.sum([r[name] for r in plain]):.1f} ×"

    return table(
        {
            "training, s": mean("train_seconds", 1),
            "of plain": ratio("train_seconds"),
            "prediction, ms a text": mean("predict_ms", 2),
            "of plain ": ratio("predict_ms"),
            "model, MiB": mean("stored", 1),
            "peak of training, MiB": mean("train_memory", 0),
            "peak of prediction, MiB": mean("predict_memory", 0),
        }
    )


TABLES: dict[str, Callable[[], str]] = {
    "uncertainty-likelihood": likelihood_table,
    "uncertainty-decisions": decision_table,
    "uncertainty-cost": cost_table,
}


def main() -> int:
    """Write the page, or with --check say whether it is up to date; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page is out of date")
    args = parser.parse_args()
    before = PAGE.read_text("utf-8")
    page = MARKED.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n\n{found[3]}", before)
    if not args.check:
        PAGE.write_text(page, "utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {'up to date' if page == before else 'out of date' if args.check else 'written'}")
    return int(args.check and page != before)


if __name__ == "__main__":
    raise SystemExit(main())
