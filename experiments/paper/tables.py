"""Write docs/results.md and its figures from the records in experiments/paper/results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from study.differences import Found, differences_text, store_differences
from study.markdown import MAIN, TITLES, arm_title, page
from study.plan import Study
from study.summary import DATASETS, Results, mean_curves, read_results

from arbormax.data.datasets.trees import tree
from arbormax.errors import ArbormaxError
from arbormax.report import tree_svg

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs" / "tools"))
from interval_plot import Interval, intervals_svg  # noqa: E402 - docs/tools is not a package
from line_plot import Curve, panels_svg  # noqa: E402

COMMAND = "python experiments/paper/tables.py"


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
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files[path], "utf-8", newline="\n")
    if check and changed:
        print(f"run `{COMMAND}`", file=sys.stderr)
    return int(check and bool(changed))


def outputs(root: Path, *, write: bool) -> dict[Path, str]:
    """All generated files with their content."""
    folder = root / "experiments" / "paper" / "results"
    results = read_results(folder)
    found = store_differences(results, folder, write=write)
    for dataset, arms in found.items():
        if old := [arm for arm, entry in arms.items() if not entry.current]:
            print(
                f"{dataset}: the records of {', '.join(old)} are newer than the stored intervals, and the test texts "
                "are missing (set ARBORMAX_DATA)",
                file=sys.stderr,
            )
    files = {folder / dataset / "differences.json": differences_text(dataset, arms) for dataset, arms in found.items()}
    images = figures(results, found)
    files |= {root / "docs" / "figures" / f"{name}.svg": svg for name, svg in images.items()}
    places = {name: f"figures/{name}.svg" for name in images}
    plan = planned(folder.parent)
    files[root / "docs" / "results.md"] = page(results, found, places, COMMAND, plan)
    return files


def planned(folder: Path) -> dict[str, dict[tuple[str, str], int]]:
    """The plan of each dataset: arm and head → number of seeds."""
    studies = {name: folder / f"{name}.json" for name in DATASETS}
    return {
        name: {(arm.name, head): arm.seeds for arm, head in Study.load(path).groups()}
        for name, path in studies.items()
        if path.is_file()
    }


def figures(results: Results, found: Found) -> dict[str, str]:
    """Name → SVG of the trees, and of the curves and differences with records."""
    images = {f"tree-{name}": tree_svg(tree(name), f"The tree of {TITLES[name]}") for name in DATASETS}
    panels = {TITLES[name]: lines for name in DATASETS if (lines := curves(results, name))}
    if panels:
        title = "BiLSTM: macro-F1 on the held-out folds"
        images["curves"] = panels_svg(panels, title, columns=2, x="epoch", y="macro-F1, points")
    if rows := intervals(found):
        images["differences"] = intervals_svg(rows, "Macro-F1 minus that of the flat softmax, points, 95 % intervals")
    return images


def curves(results: Results, dataset: str) -> Mapping[str, Curve]:
    """Head → the curve of the BiLSTM with the selected settings and a marker at the selected epoch."""
    lines = {}
    for head in ("flat", "hierarchical", "shared"):
        choice = results.choice(dataset, MAIN, head)
        curve = mean_curves(results, dataset, MAIN, head, choice["point"]) if choice else None
        if choice and curve:
            mean, low, high = ([100 * value for value in values] for values in (curve.mean, curve.low, curve.high))
            mark = epochs if (epochs := choice.get("epochs")) in curve.epochs else None
            lines[head] = Curve(x=curve.epochs, mean=mean, low=low, high=high, mark=mark)
    return lines


def intervals(found: Found) -> list[Interval]:
    """The current differences in macro-F1 of each arm and head, in percent."""
    return [
        Interval(
            label=f"{arm_title(arm)}, {difference.head} − flat",
            group=TITLES[dataset],
            mean=100 * difference.mean,
            low=100 * difference.low,
            high=100 * difference.high,
        )
        for dataset, arms in found.items()
        for arm, entry in arms.items()
        for difference in entry.differences
        if difference.measure == "macro_f1" and entry.current
    ]


if __name__ == "__main__":
    sys.exit(main())
