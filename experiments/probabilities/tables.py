"""Write the tables of docs/calibration.md and its figure from the records of the study.

    python experiments/probabilities/tables.py
    python experiments/probabilities/tables.py --check    # list what is out of date, write nothing

Numbers are means over the seeds; ± is half the width of a 95 % interval of the mean (Student's t).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE, FIGURE = ROOT / "docs" / "calibration.md", ROOT / "docs" / "figures" / "set-sizes.svg"
NAMES = {
    "tfidf:trec": "TREC, linear",
    "tfidf:r52": "R52, linear",
    "tfidf:soc2020": "SOC 2020, linear",
    "tfidf:icd10cm": "ICD-10-CM, linear",
    "bag:trec": "TREC, bag",
    "bag:r52": "R52, bag",
}
METHODS = ("none", "temperature", "level", "parent", "vector")
STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
MARKED = re.compile(r"(<!-- table of (calibration-\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)

Record = dict[str, Any]


def read(name: str) -> list[Record]:
    """The records of a file, in its order."""
    return [json.loads(line) for line in (HERE / "results" / name).read_text("utf-8").splitlines()]


def spread(values: Iterable[float], digits: int = 3, factor: float = 1.0) -> str:
    """The mean with half the width of its interval."""
    found = factor * np.array(list(values))
    half = STUDENT[len(found)] * found.std(ddof=1) / np.sqrt(len(found)) if len(found) > 1 else float("nan")
    return f"{found.mean():.{digits}f} ± {half:.{digits}f}"


def mean(values: Iterable[float | None], digits: int = 1, factor: float = 100.0) -> str:
    """The mean of the numbers that there are."""
    found = [value for value in values if value is not None]
    return f"{factor * np.mean(found):.{digits}f}" if found else "–"


def markdown(columns: list[str], rows: Iterable[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def choice_table() -> str:
    """The likelihood of held-out texts, by which the default is chosen."""
    records = read("calibration.jsonl")
    rows = []
    for run, title in NAMES.items():
        own = [record for record in records if record["run"] == run]
        cells = [mean((r["valid_nll"] for r in own if r["method"] == method), 4, 1) for method in METHODS]
        rows.append([title, *cells])
    return markdown(["held-out NLL", *METHODS], rows)


def test_table() -> str:
    """The measures of the test texts."""
    records = read("calibration.jsonl")
    rows = []
    for run, title in NAMES.items():
        for method in METHODS:
            own = [record for record in records if (record["run"], record["method"]) == (run, method)]
            plain = {r["seed"]: r for r in records if (r["run"], r["method"]) == (run, "none")}
            gain = spread(r["nll"] - plain[r["seed"]]["nll"] for r in own) if method != "none" else ""
            debiased = [[100 * (level or 0.0) for level in r["ece_debiased"]] for r in own]
            rows.append(
                [
                    title if method == "none" else "",
                    method,
                    mean((r["nll"] for r in own), 3, 1),
                    gain,
                    mean((r["brier"] for r in own), 3, 1),
                    " / ".join(f"{x:.1f}" for x in np.mean(debiased, 0)),
                    mean(r["accuracy"] for r in own),
                    mean(r["macro_f1"] for r in own),
                    mean(r["changed"] for r in own),
                ]
            )
    columns = ["test texts", "method", "NLL", "difference", "Brier", "debiased ECE of each level, %"]
    return markdown([*columns, "accuracy, %", "macro-F1, %", "changed answers, %"], rows)


def coverage_table() -> str:
    """The coverage over random splits."""
    records = [record for record in read("conformal.jsonl") if record["kind"] == "coverage"]
    rows = []
    for run, title in NAMES.items():
        for alpha in sorted({record["alpha"] for record in records}):
            own = [r for r in records if (r["run"], r["alpha"]) == (run, alpha)]
            first = alpha == min(record["alpha"] for record in records)
            sizes = sorted({r["size"] for r in own})
            cells = [mean((r["coverage"] for r in own if r["size"] == size), 2) for size in sizes]
            single = [r for r in own if r["size"] == 1]
            branches = [mean((r[name] for r in single), 1) for name in ("lowest_branch", "lowest_branch_own")]
            rows.append([title if first else "", f"{100 * (1 - alpha):.0f}", *cells, *branches])
    columns = ["coverage, %", "asked for", "1 node", "3 nodes", "5 nodes"]
    return markdown([*columns, "worst branch", "worst branch, own thresholds"], rows)


def size_table() -> str:
    """The size of the sets of two coverages."""
    records = [record for record in read("conformal.jsonl") if record["kind"] == "size"]
    rows = []
    for run, title in NAMES.items():
        for place, method in enumerate(dict.fromkeys(record["method"] for record in records)):
            cells = []
            for alpha in (0.05, 0.1):
                own = [r for r in records if (r["run"], r["method"], r["alpha"]) == (run, method, alpha)]
                cells += [
                    spread((r["classes"] for r in own), 1),
                    mean((r["nodes"] for r in own), 1, 1),
                    mean((r["single"] for r in own), 0),
                ]
            rows.append(["" if place else title, method, *cells])
    columns = [f"{name}, {level} %" for level in (95, 90) for name in ("classes", "nodes", "single classes")]
    return markdown(["size of sets", "", *columns], rows)


TABLES: dict[str, Callable[[], str]] = {
    "calibration-choice": choice_table,
    "calibration-test": test_table,
    "calibration-coverage": coverage_table,
    "calibration-sizes": size_table,
}


def figure() -> str:
    """The mean number of classes against α."""
    sys.path.insert(0, str(ROOT / "docs" / "tools"))
    from line_plot import Curve, panels_svg

    records = [record for record in read("conformal.jsonl") if record["kind"] == "size"]
    panels: dict[str, dict[str, Curve]] = {}
    for run in list(NAMES)[:4]:
        panels[NAMES[run]] = {}
        for method in dict.fromkeys(record["method"] for record in records):
            own = [record for record in records if (record["run"], record["method"]) == (run, method)]
            alphas = sorted({record["alpha"] for record in own})
            classes = [np.mean([r["classes"] for r in own if r["alpha"] == alpha]) for alpha in alphas]
            means = [float(np.log2(max(each, 0.5))) for each in classes]
            panels[NAMES[run]][method] = Curve(alphas, means)
    drawn: str = panels_svg(panels, "Size of the sets", x="α", y="log₂ of the mean number of classes")
    return drawn


def main() -> int:
    """Write both files, or with --check list those that would change; returns the exit status."""
    check = "--check" in sys.argv
    before = PAGE.read_text("utf-8")
    page = MARKED.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n\n{found[3]}", before)
    changed = 0
    for path, content in ((PAGE, page), (FIGURE, figure())):
        if path.exists() and path.read_text("utf-8") == content:
            continue
        changed = 1
        print(f"{path.relative_to(ROOT)}: {'out of date' if check else 'written'}")
        if not check:
            path.write_text(content, "utf-8")
    return int(check and changed)


if __name__ == "__main__":
    raise SystemExit(main())
