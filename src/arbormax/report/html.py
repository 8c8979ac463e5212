"""The report: one self-contained HTML file from the JSON of runs, with figures by Plotly."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from arbormax._files import write_file
from arbormax.errors import InputError, OptionError, import_extra
from arbormax.metrics import MEASURES
from arbormax.report import overview
from arbormax.report.differences import compare_runs
from arbormax.report.figure_data import MIN_ITEMS, difference_rows, run_figures
from arbormax.report.runs import FILES, read_runs

MAX_RUNS = 12
_SCRIPTS = ("draw.js", "page.js")


def report_html(runs: Sequence[Path | str], *, title: str | None = None, max_nodes: int = 4000) -> str:
    """The report of one run, of several runs, or of a comparison, as the text of an HTML file.

    A run is a model's folder, a file of `arbormax evaluate --out` or a folder of `arbormax compare --out`. At most
    `max_nodes` nodes of each tree are drawn; the parts with the fewest test texts are folded.
    """
    if max_nodes < 10:
        raise OptionError(f"expected at least 10, found {max_nodes}", argument="max_nodes")
    if not runs:
        raise InputError("expected at least one run", argument="runs")
    found, known = read_runs([Path(run) for run in runs])
    if len(found) > MAX_RUNS:
        raise InputError(
            f"a report shows at most {MAX_RUNS} runs, found {len(found)}: write several reports", argument="runs"
        )
    differences = compare_runs(found, known)
    data = {
        "runs": [run_figures(run, max_nodes) for run in found],
        "differences": difference_rows(differences.rows),
        "minimum": MIN_ITEMS,
        "titles": {name: MEASURES[name].title for name in MEASURES},  # of the learning curves
    }
    return _document(overview.page_parts(title, found, differences), data)


def write_report(
    runs: Sequence[Path | str], out: Path | str | None = None, *, title: str | None = None, max_nodes: int = 4000
) -> Path:
    """Write the report and return its path, by default `report.html` next to the first run."""
    if not runs:
        raise InputError("expected at least one run", argument="runs")
    first = Path(runs[0])
    target = Path(out) if out is not None else (first if first.is_dir() else first.parent) / "report.html"
    if target.is_dir():
        raise OptionError(f"{target} is a folder, expected a file such as {target / 'report.html'}", argument="out")
    if any(target.resolve() == file.resolve() for run in map(Path, runs) for file in (run, *map(run.joinpath, FILES))):
        raise OptionError(f"{target} is one of the runs and would be overwritten: choose another file", argument="out")
    content = report_html(runs, title=title, max_nodes=max_nodes).encode("utf-8", "replace")
    target.parent.mkdir(parents=True, exist_ok=True)
    write_file(target, content)
    return target


def embed_json(data: Any) -> str:
    """JSON that is safe inside a script element, whatever strings it contains.

    >>> embed_json({"a": "</script>"})
    '{"a":"\\\\u003c/script\\\\u003e"}'
    """
    encoded = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for char in "<>&\u2028\u2029":
        encoded = encoded.replace(char, f"\\u{ord(char):04x}")
    return encoded


def _document(parts: dict[str, str], data: Any) -> str:
    folder = files("arbormax.report") / "page"
    own = "(()=>{'use strict';\n" + "\n".join((folder / name).read_text("utf-8") for name in _SCRIPTS) + "\n})();"
    plotly = str(import_extra("plotly.offline", "the report", "plotly", "report").get_plotlyjs())
    # only these two scripts may run, and nothing may be fetched, so that a missed escape does no harm
    allowed = " ".join(f"'sha256-{_digest(script)}'" for script in (plotly, own))
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'"
    )
    return Template((folder / "report.html").read_text("utf-8")).substitute(
        parts,
        policy=escape(policy),
        style=(folder / "report.css").read_text("utf-8"),
        data=embed_json(data),
        plotly=plotly,
        script=own,
    )


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
