"""Write the table of this study into docs/edits.md.

python experiments/edits/tables.py
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "edits.md"
ARMS = ("blended", "hierarchical", "flat", "bag-shared")
KINDS = ("moved", "merged", "split", "added", "others")
TIMES = ("before", "edited", "edited with texts", "continued 1 %", "continued 10 %")
TITLES = {
    "blended": "blended (the default)",
    "bag-shared": "shared, on `bag`, trained with Adam",
    "edited": "edited without texts",
    "edited with texts": "edited with texts",
    "continued 1 %": "and 1 % new texts",
    "continued 10 %": "and 10 % new texts",
}


def main() -> None:
    records = [json.loads(path.read_text()) for path in (HERE / "results").glob("*.json")]
    lines = []
    pairs = {(record["dataset"], record["arm"]) for record in records}
    for name, arm in sorted(pairs, key=lambda pair: (pair[0] != "soc2020", ARMS.index(pair[1]))):
        own = [record for record in records if (record["dataset"], record["arm"]) == (name, arm)]
        lines += ["", f"`{name}`, {TITLES.get(arm, arm)}, {len(own)} seeds:", ""]
        items = {kind: np.mean([record["accuracy"][kind]["items"] for record in own]) for kind in KINDS}
        lines.append("| accuracy on | " + " | ".join(f"{kind} (n = {items[kind]:.0f})" for kind in KINDS) + " |")
        lines.append("|---" * (len(KINDS) + 1) + "|")
        for when in TIMES:
            cells = [_cell([record["accuracy"][kind][when] for record in own]) for kind in KINDS]
            lines.append(f"| {TITLES.get(when, when)} | {' | '.join(cells)} |")
    begin, end = "<!-- edits:begin -->", "<!-- edits:end -->"
    text = PAGE.read_text("utf-8")
    before, rest = text.split(begin)
    PAGE.write_text("\n".join([f"{before}{begin}", *lines, "", end]) + rest.split(end)[1], "utf-8")


def _cell(values: list[float]) -> str:
    spread = f" ± {100 * np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
    return f"{100 * np.mean(values):.1f}{spread}"


if __name__ == "__main__":
    main()
