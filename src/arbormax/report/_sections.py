"""The page around the figures: heading, what it comes to, and the runs beside each other."""

from __future__ import annotations

from collections.abc import Sequence

from arbormax.report._chance import Interval
from arbormax.report._compared import Compared
from arbormax.report._figures import name_of
from arbormax.report._parts import PARTS, run_parts
from arbormax.report._runs import Run
from arbormax.report._words import (
    LOWER,
    MEANS,
    SHARES,
    TITLES,
    count,
    difference,
    figure,
    in_text,
    share,
    table,
    text,
    value,
    verdict,
)

_CARDS = ("accuracy", "macro_f1", "hf", "mistake_severity")


def title(runs: Sequence[Run]) -> str:
    """The heading where none was given."""
    data = runs[0].data.get("name")
    what = " and ".join(run.name for run in runs) if len(runs) <= 2 else f"{len(runs)} runs"
    return f"{name_of(what)} on {data}" if data else name_of(what)


def page(named: str, runs: Sequence[Run], against: Compared) -> str:
    """The body of the document."""
    several = len(runs) > 1
    blocks = [
        f'<div class="run" data-run="{place}"{" hidden" if place else ""}>{run_parts(run, place)}</div>'
        for place, run in enumerate(runs)
    ]
    links = [("summary", "Summary"), *([("compared", "Runs compared")] if several else [])]
    nav = "".join(f'<li><a href="#{name}">{label}</a></li>' for name, label in links)
    nav += "".join(f'<li><a href="#{name}-0" data-part="{name}">{label}</a></li>' for name, label in PARTS)
    return "\n".join(
        [
            '<a class="skip" href="#main">Skip to the results</a>',
            f'<header class="top"><div class="wide"><div><p class="kicker">arbormax report</p><h1>{text(named)}</h1>'
            f'<p class="lead">{_setting(runs[0])}</p></div>{_theme()}</div></header>',
            f'<nav aria-label="Parts of the report"><ul class="wide">{nav}</ul></nav>',
            '<main id="main" class="wide" tabindex="-1">',
            _summary(runs, against),
            _compared(runs, against) if several else "",
            _chooser(runs) if several else "",
            *blocks,
            "</main>",
            f'<footer class="wide"><p>{_footer(runs[0])}</p></footer>',
        ]
    )


def _setting(run: Run) -> str:
    tax = run.tree.tax
    date = str(run.made.get("date") or "")[:10]
    parts = [
        f"{count(run.texts, 'test text')}",
        f"{count(tax.num_leaves, 'class', 'classes')} in a tree of {count(tax.depth, 'level')}",
        *([text(date)] if date else []),
    ]
    return " · ".join(parts)


def _theme() -> str:
    options = "".join(
        f'<label><input type="radio" name="theme" value="{name}"{" checked" if name == "auto" else ""}>'
        f"<span>{label}</span></label>"
        for name, label in (("auto", "Auto"), ("light", "Light"), ("dark", "Dark"))
    )
    return f'<fieldset class="theme"><legend>Colours</legend>{options}</fieldset>'


def _chooser(runs: Sequence[Run]) -> str:
    options = "".join(f'<option value="{place}">{text(run.name)}</option>' for place, run in enumerate(runs))
    return (
        f'<div class="chooser"><label for="run">Below, the details of</label> <select id="run">{options}</select></div>'
    )


def _footer(run: Run) -> str:
    version = (run.made.get("versions") or {}).get("arbormax") if isinstance(run.made.get("versions"), dict) else None
    made = f"arbormax {text(version)}" if version else "arbormax"
    return f"Made by {made} with Plotly. This file holds all it needs and loads nothing from elsewhere."


def _summary(runs: Sequence[Run], against: Compared) -> str:
    best = max(range(len(runs)), key=lambda place: float(runs[place].measures.get("accuracy") or 0))
    run = runs[best]
    cards = "".join(_card(run, name, against.own[best].get(name)) for name in _CARDS if name in run.measures)
    which = f'<p class="which">The numbers of <strong>{text(run.name)}</strong>, the most accurate of {len(runs)}:</p>'
    return (
        '<section id="summary" aria-labelledby="h-summary"><h2 id="h-summary">Summary</h2>'
        f'<p class="headline">{_headline(run)}</p>{which if len(runs) > 1 else ""}<dl class="cards">{cards}</dl>'
        f"{_against_flat(runs, against)}</section>"
    )


def _headline(run: Run) -> str:
    """How it went in one or two sentences."""
    whole, wrong = int(run.tree.support[0]), run.errors
    told = f"<strong>{share(whole - wrong, whole)}</strong> of the test texts get exactly the right class."
    levels = run.tree.levels()
    if not wrong or len(levels) < 2:
        return told
    reached, right = levels[0]
    near = max(right - (whole - wrong), 0)
    return (
        f"{told} Of the {count(wrong, 'mistake')}, {share(near, wrong, 0)} stay in the right top branch, so "
        f"<strong>{share(right, reached)}</strong> of the texts land there."
    )


def _card(run: Run, name: str, interval: Interval | None) -> str:
    """One measure, large, with how sure it is and what it means."""
    if interval is not None:
        sure = f"{value(name, interval.low)} to {value(name, interval.high)}"
        sure = f'<dd class="sure">95\u202f% interval: {sure}</dd>'
    elif name in run.spread:
        digits = 2 if name in LOWER else 1
        spread = run.spread[name] * (1 if name in LOWER else 100)
        sure = f'<dd class="sure">± {spread:.{digits}f} over {count(run.seeds, "seed")}</dd>'
    else:
        sure = ""
    return (
        f'<div class="card"><dt>{TITLES[name]}</dt><dd class="big">{value(name, run.measures[name])}</dd>{sure}'
        f'<dd class="means">{MEANS[name]}</dd></div>'
    )


def _against_flat(runs: Sequence[Run], against: Compared) -> str:
    """How the runs do against a flat one, or what to do to know it."""
    flat = runs[against.baseline]
    if flat.head != "flat":
        return (
            '<p class="note">There is no flat run to compare with. Train one with <code>--head flat</code> on the same '
            "texts and give both: <code>arbormax report RUN FLAT-RUN</code>.</p>"
        )
    lines = []
    for row in against.rows:
        if row["baseline"] == flat.name and row["measure"] in _CARDS:
            name, bounds = str(row["measure"]), (float(row["low"]), float(row["high"]))
            found = verdict(name, *bounds)
            mark = {"better": "▲", "worse": "▼"}.get(found, "◆")
            told = difference(name, float(row["mean"]), *bounds)
            lines.append(
                f'<li class="{found.split()[0]}"><span aria-hidden="true">{mark}</span> '
                f"<strong>{text(row['head'])}</strong>, {in_text(name)}: {told}, {found}</li>"
            )
    if not lines:
        alone = len(runs) == 1
        why = "It is the only run of this report." if alone else "No other run was measured on the same texts."
        return f'<p class="note">{text(flat.name)} is flat. {why}</p>'
    return f'<h3>Against the flat run, {text(flat.name)}</h3><ul class="verdicts">{"".join(lines)}</ul>'


def _compared(runs: Sequence[Run], against: Compared) -> str:
    levels = max(run.tree.tax.depth for run in runs)
    names = [name for name in TITLES if any(name in run.measures for run in runs)]
    rows = [
        [TITLES[name], *(_cell(run, name, own) for run, own in zip(runs, against.own, strict=True))] for name in names
    ]
    tables = [run.tree.levels() for run in runs]
    for level in range(levels):
        cells = [share(own[level][1], own[level][0]) if level < len(own) else "–" for own in tables]
        rows.append([f"Right at level {level + 1}", *cells])
    measured = table("Measures of every run", ["Measure", *(text(run.name) for run in runs)], rows, "numbers")
    shown = [row for row in against.rows if row["measure"] in TITLES]
    listed = table(
        "Differences",
        ["Runs", "Measure", "Difference [interval]", "Verdict"],
        [
            [
                f"{text(row['head'])} − {text(row['baseline'])}",
                TITLES[row["measure"]],
                difference(row["measure"], float(row["mean"]), float(row["low"]), float(row["high"])),
                verdict(row["measure"], float(row["low"]), float(row["high"])),
            ]
            for row in shown
        ],
    )
    drawn = ""
    if shown:
        sure = f"{100 * float(shown[0]['level']):g}\u202f%"
        drawn = figure(
            "differences",
            "all",
            f"Differences between the runs with {sure} intervals, in points; the same numbers are in the table below.",
            note=f"Differences in points with {sure} intervals of a paired bootstrap: filled where the interval "
            "leaves 0 out, open where there is no clear difference.",
            data=listed,
            tall="short",
        )
    apart = ""
    if against.unpaired:
        apart = (
            f'<p class="note">Measured on other texts than {text(runs[against.baseline].name)}, so not compared pair '
            f"by pair: {text(', '.join(against.unpaired))}.</p>"
        )
    return (
        '<section id="compared" aria-labelledby="h-compared"><h2 id="h-compared">Runs compared</h2>'
        f"{measured}{drawn}{apart}</section>"
    )


def _cell(run: Run, name: str, own: dict[str, Interval]) -> str:
    told = value(name, run.measures.get(name))
    if name in own:
        return f"{told} <small>[{value(name, own[name].low)}, {value(name, own[name].high)}]</small>"
    if name in run.spread and name not in ("seconds", "parameters"):
        spread = run.spread[name] * (100 if name in SHARES else 1)
        return f"{told} <small>± {spread:.{1 if name in SHARES else 2}f}</small>"
    return told
