"""Write the results of docs/trees.md from the records in experiments/trees/results; `--check` writes nothing."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from trees_study.page import page, read_records

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results"
PAGE = ROOT / "docs" / "trees.md"
START, END = "<!-- results of experiments/trees -->", "<!-- end of the results -->"


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page, or with --check report whether it would change; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page would change")
    check = parser.parse_args(argv).check
    before = PAGE.read_text("utf-8")
    start, rest = before.split(START)
    _, end = rest.split(END)
    after = f"{start}{START}\n\n{page(read_records(RESULTS), RESULTS)}\n\n{END}{end}"
    if before != after:
        print(f"{PAGE.relative_to(ROOT)}: {'out of date' if check else 'written'}")
    if not check:
        PAGE.write_text(after, "utf-8", newline="\n")
    return int(check and before != after)


if __name__ == "__main__":
    raise SystemExit(main())
