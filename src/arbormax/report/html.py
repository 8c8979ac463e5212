"""One self-contained HTML file out of the JSON of runs: figures by Plotly, nothing loaded from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from html import escape
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

from arbormax._files import write_file
from arbormax.errors import InputError, MissingDependencyError, OptionError
from arbormax.report import _sections
from arbormax.report._compared import compared
from arbormax.report._figures import differences, drawings
from arbormax.report._runs import FILES, distinct, read
from arbormax.report._words import text

MOST_RUNS = 12
_SCRIPTS, _STYLE = ("draw.js", "page.js"), "report.css"


def report_html(runs: Sequence[Path | str], *, title: str | None = None, max_nodes: int = 4000) -> str:
    """The report of one run, of several beside each other, or of a comparison, as the text of an HTML file.

    A run is a model's folder, a file of `arbormax evaluate --out` or a folder of `arbormax compare --out`. At most
    `max_nodes` nodes of each tree are drawn; the parts with the fewest texts are folded.
    """
    if max_nodes < 10:
        raise OptionError(f"max_nodes is at least 10, found {max_nodes}")
    if not runs:
        raise InputError("a report needs at least one run")
    told, measured = distinct([read(Path(run)) for run in runs])
    if len(told) > MOST_RUNS:
        raise InputError(f"a report shows {MOST_RUNS} runs at most, found {len(told)}: make several reports")
    against = compared(told, measured)
    data = {
        "runs": [drawings(run, max_nodes) for run in told],
        "differences": differences(against.rows),
    }
    named = title or _sections.title(told)
    return _document(named, _sections.page(named, told, against), data)


def write_report(
    runs: Sequence[Path | str], out: Path | str | None = None, *, title: str | None = None, max_nodes: int = 4000
) -> Path:
    """Write the report, whole or not at all; gives back where it is, `report.html` beside the first run by default."""
    if not runs:
        raise InputError("a report needs at least one run")
    first = Path(runs[0])
    target = Path(out) if out is not None else (first if first.is_dir() else first.parent) / "report.html"
    if target.is_dir():
        raise OptionError(f"{target} is a folder: a report is one file, such as {target / 'report.html'}")
    if any(target.resolve() == file.resolve() for run in map(Path, runs) for file in (run, *map(run.joinpath, FILES))):
        raise OptionError(f"{target} is a run itself, which the report would replace: give another --out")
    content = report_html(runs, title=title, max_nodes=max_nodes).encode("utf-8", "replace")
    target.parent.mkdir(parents=True, exist_ok=True)
    write_file(target, content)
    return target


def embedded(data: Any) -> str:
    """JSON that may stand inside a script element, whatever the strings in it hold.

    >>> embedded({"a": "</script>"})
    '{"a":"\\\\u003c/script\\\\u003e"}'
    """
    written = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for char in "<>&\u2028\u2029":
        written = written.replace(char, f"\\u{ord(char):04x}")
    return written


def _document(title: str, body: str, data: Any) -> str:
    folder = files("arbormax.report") / "page"
    style = (folder / _STYLE).read_text("utf-8")
    own = "(()=>{'use strict';\n" + "\n".join((folder / name).read_text("utf-8") for name in _SCRIPTS) + "\n})();"
    plotly = _plotly()
    # only these two scripts may run, and nothing may be fetched: a defect in the escaping could do no harm
    allowed = " ".join(f"'sha256-{_digest(script)}'" for script in (plotly, own))
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'"
    )
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{text(title)}</title>",
            f"<style>{style}</style>",
            "</head>",
            "<body>",
            body,
            f'<script type="application/json" id="data">{embedded(data)}</script>',
            f"<script>{plotly}</script>",
            f"<script>{own}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _plotly() -> str:
    try:
        offline = import_module("plotly.offline")
    except ImportError as error:
        raise MissingDependencyError("the report", "plotly", "report") from error
    return str(offline.get_plotlyjs())


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
