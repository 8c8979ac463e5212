"""Write docs/heads-study.md and its figure from the records in experiments/heads/results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from heads_study.page import MODELS, TITLES, default_differences, page
from heads_study.summary import read_records, summarise

from arbormax.errors import ArbormaxError

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs" / "tools"))
from interval_plot import Interval, intervals_svg  # noqa: E402 - docs/tools is not a package

COMMAND = "python experiments/heads/tables.py"
FIGURE = "figures/heads-study.svg"


def outputs(root: Path, *, write: bool) -> dict[Path, str]:
    """All generated files with their content."""
    folder = root / "experiments" / "heads" / "results"
    datasets = summarise(read_records(folder), folder, write=write)
    for dataset in datasets:
        if not dataset.current:
            print(
                f"{dataset.name}: the records are newer than the stored intervals, and the test texts are missing "
                "(set ARBORMAX_DATA)",
                file=sys.stderr,
            )
    rows = [
        Interval(MODELS[model], TITLES[dataset.name], *(100 * value for value in found["macro_f1"][3:]))
        for dataset in datasets
        for model, found in default_differences(dataset).items()
    ]
    files = {root / "docs" / "heads-study.md": page(datasets, COMMAND, FIGURE if rows else None)}
    if rows:
        files[root / "docs" / FIGURE] = intervals_svg(rows, "The default head minus the flat head, macro-F1")
    return files


def main(argv: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Write all files, or with --check list those that would change; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file would change")
    check = parser.parse_args(argv).check
    try:
        files = outputs(root, write=not check)
    except ArbormaxError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    changed = [path for path, text in files.items() if not path.is_file() or path.read_text("utf-8") != text]
    for path in changed:
        print(f"{path.relative_to(root)}: {'out of date' if check else 'written'}")
        if not check:
            path.write_text(files[path], "utf-8", newline="\n")
    return int(check and bool(changed))


if __name__ == "__main__":
    raise SystemExit(main())
