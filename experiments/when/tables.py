"""Write docs/when-the-tree-helps.md and its figure from the records in experiments/when/results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "experiments" / "heads"), str(ROOT / "docs" / "tools")]
from line_plot import Curve, panels_svg  # noqa: E402 - docs/tools is not a package
from when_study.page import MODELS, TITLES, page  # noqa: E402
from when_study.plan import HEADS, SHARES  # noqa: E402
from when_study.summary import Dataset, read_records, summarise  # noqa: E402

from arbormax.errors import ArbormaxError  # noqa: E402

COMMAND = "python experiments/when/tables.py"
FIGURE = "figures/when-the-tree-helps.svg"


def outputs(root: Path, *, write: bool) -> dict[Path, str]:
    """All generated files with their content."""
    folder = root / "experiments" / "when"
    datasets = summarise(read_records(folder / "results"), folder / "results", write=write)
    for dataset in datasets:
        if not dataset.current:
            print(
                f"{dataset.name}: the records are newer than the stored intervals, and the test texts are missing "
                "(set ARBORMAX_DATA)",
                file=sys.stderr,
            )
    panels = {
        f"{TITLES[dataset.name]}, {MODELS[model]}": curves
        for dataset in datasets
        for model, heads in HEADS.items()
        if (curves := coarse_curves(dataset, model, heads[-1]))
    }
    advice = (folder / "advice.md").read_text("utf-8")
    files = {root / "docs" / "when-the-tree-helps.md": page(datasets, advice, COMMAND, FIGURE if panels else None)}
    if panels:
        title = "Labels for all texts, classes for some: accuracy"
        files[root / "docs" / FIGURE] = panels_svg(panels, title, x="% of the texts with a class", y="accuracy, %")
    return files


def coarse_curves(dataset: Dataset, model: str, head: str) -> dict[str, Curve]:
    """Accuracy against the share of texts with a class: flat, and the default head with each kind of coarse label."""
    arms = {"flat, texts with a class alone": ("flat", "dropped")}
    arms |= {f"tree, {rest} labels for the rest": (head, rest) for rest in ("parent", "grandparent")}
    curves = {}
    for name, (kind, rest) in arms.items():
        keys = [(model, kind, f"{share:g}-{rest}") for share in SHARES]
        known = [(100 * share, key) for share, key in zip(SHARES, keys, strict=True) if key in dataset.means]
        if known:
            mean = [100 * dataset.means[key]["accuracy"] for _, key in known]
            std = [100 * dataset.stds[key]["accuracy"] for _, key in known]
            low = [value - spread for value, spread in zip(mean, std, strict=True)]
            high = [value + spread for value, spread in zip(mean, std, strict=True)]
            curves[name] = Curve([share for share, _ in known], mean, low, high)
    return curves


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
