"""Fill the tables of registered names in the documentation: `python docs/tools/tables.py`.

A table stands between `<!-- table of heads -->` and `<!-- end of table -->`. With `--check`, pages that are out of date
are listed and not written.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from arbormax.data.datasets import DATASETS
from arbormax.decode import DECODERS
from arbormax.encoders import ENCODERS
from arbormax.heads import HEADS
from arbormax.induce import INDUCERS
from arbormax.metrics import MEASURES
from arbormax.taxonomy.formats import FORMATS

ROOT = Path(__file__).parents[2]
REGISTRIES = {
    "heads": HEADS,
    "decoders": DECODERS,
    "measures": MEASURES,
    "encoders": ENCODERS,
    "formats": FORMATS,
    "datasets": DATASETS,
    "methods": INDUCERS,
}
MARKED = re.compile(r"(<!-- table of (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def fill_tables(text: str) -> str:
    """The text of a page with its tables written anew."""
    return MARKED.sub(lambda found: f"{found[1]}\n{table(found[2])}\n{found[3]}", text)


def table(kind: str) -> str:
    """A Markdown table of the names in a registry, with their summaries."""
    if kind == "formats":
        return formats_table()
    if kind == "measures":
        return measure_table()
    registry = REGISTRIES[kind]
    rows = [f"| `{name}` | {registry.summary(name)} |" for name in registry]
    return "\n".join([f"| {registry.kind} | |", "|---|---|", *rows, ""])


def formats_table() -> str:
    """A Markdown table of the taxonomy formats, with their suffixes and options."""

    def code(words: tuple[str, ...]) -> str:
        return ", ".join(f"`{word}`" for word in words)

    rows = [
        f"| `{name}` | {code(FORMATS[name].suffixes)} | {FORMATS.summary(name)} | {code(FORMATS[name].options)} |"
        for name in FORMATS
    ]
    return "\n".join(["| format | suffix | content | options |", "|---|---|---|---|", *rows, ""])


def measure_table() -> str:
    """A Markdown table of the measures, with unit and direction."""
    rows = [
        f"| `{name}` | {MEASURES[name].unit} | {MEASURES[name].better or ''} | {MEASURES.summary(name)} |"
        for name in MEASURES
    ]
    return "\n".join(["| measure | unit | better | definition |", "|---|---|---|---|", *rows, ""])


def main() -> None:
    """Write every page whose tables have changed, and print its name."""
    check = "--check" in sys.argv
    for page in sorted((ROOT / "docs").rglob("*.md")):
        before = page.read_text("utf-8")
        after = fill_tables(before)
        if after != before:
            if not check:
                page.write_text(after, "utf-8")
            print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
