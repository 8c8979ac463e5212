"""The parts of the report about all runs: heading, navigation, summary, and the table that compares them."""

from __future__ import annotations

from collections.abc import Sequence

from arbormax.metrics import MEASURES
from arbormax.metrics.bootstrap import Interval
from arbormax.metrics.registry import COSTS, shown_measures
from arbormax.report.differences import LEVEL, Differences
from arbormax.report.markup import (
    collapsible,
    count,
    figure,
    heading,
    measure,
    one_line,
    section,
    share,
    table,
    text,
    value,
)
from arbormax.report.run_sections import SECTIONS, run_sections
from arbormax.report.runs import Run


def page_parts(title: str | None, runs: Sequence[Run], differences: Differences) -> dict[str, str]:
    """The parts of the document about all runs, for the template of the page."""
    several = len(runs) > 1
    links = [("summary", "Summary"), *([("compared", "Comparison")] if several else [])]
    sections = [f'<li><a href="#{name}">{label}</a></li>' for name, label in links]
    sections += [f'<li><a href="#{name}-0" data-part="{name}">{label}</a></li>' for name, label, *_ in SECTIONS]
    blocks = [
        f'<div class="run" data-run="{place}"{" hidden" if place else ""}>{run_sections(run, place)}</div>'
        for place, run in enumerate(runs)
    ]
    overall = [_summary(runs, differences), *([_comparison(runs, differences), _run_selector(runs)] if several else [])]
    versions = runs[0].origin.get("versions") or {}
    return {
        "title": text(title or _default_title(runs, differences.baseline)),
        "lead": _data_line(runs[0]),
        "links": "".join(sections),
        "main": "\n".join([*overall, *blocks]),
        "version": text(versions.get("arbormax", "")),
    }


def _default_title(runs: Sequence[Run], baseline: int) -> str:
    """The runs, the baseline, and what they were tested on."""
    others = [run.name for place, run in enumerate(runs) if place != baseline]
    names = " and ".join(others) if len(others) <= 2 else f"{len(others)} runs"
    title = f"{one_line(names)} compared with {one_line(runs[baseline].name)}" if others else one_line(runs[0].name)
    tested = {str(run.data.get("test") or run.data.get("name") or "") for run in runs}
    return f"{title} on {one_line(tested.pop())}" if len(tested) == 1 and "" not in tested else title


def _data_line(run: Run) -> str:
    tax = run.tree.tax
    date = str(run.origin.get("date") or "")[:10]
    kind = "a graph" if run.is_graph else f"a tree of {count(tax.depth, 'level')}"
    parts = [
        f"{count(run.texts, 'test text')}",
        f"{count(tax.num_leaves, 'class', 'classes')} in {kind}",
        *([text(date)] if date else []),
    ]
    return " · ".join(parts)


def _run_selector(runs: Sequence[Run]) -> str:
    options = "".join(f'<option value="{place}">{text(run.name)}</option>' for place, run in enumerate(runs))
    return f'<div class="chooser"><label for="run">Show details of</label> <select id="run">{options}</select></div>'


def _summary(runs: Sequence[Run], differences: Differences) -> str:
    best = max(range(len(runs)), key=lambda place: float(runs[place].measures.get("accuracy") or 0))
    run = runs[best]
    cards = "".join(
        _card(run, name, differences.own[best].get(name)) for name in shown_measures("headline") if name in run.measures
    )
    which = (
        f'<p class="which">These are the numbers of <strong>{text(run.name)}</strong>, the most accurate of '
        f"{len(runs)} runs:</p>"
    )
    return section(
        "summary",
        "Summary",
        f'<p class="headline">{_headline(run)}</p>{which if len(runs) > 1 else ""}<dl class="cards">{cards}</dl>'
        f"{_against_flat(runs, differences)}"
        + ("" if len(runs) > 1 else collapsible("All measures", _measure_table(runs, differences))),
    )


def _headline(run: Run) -> str:
    """The result in one or two sentences."""
    whole, wrong = int(run.tree.support[0]), run.errors
    sentence = f"<strong>{share(whole - wrong, whole)}</strong> of the test texts get exactly the right class."
    if run.config.get("names") == "only":
        sentence = f"Built from the texts of the nodes alone, without training data (zero-shot). {sentence}"
    levels = run.tree.levels()
    if run.is_graph:
        return (
            f"{sentence} The taxonomy is a graph: the measures are those of the graph, and the figures show the tree "
            "in which every node keeps its first parent."
        )
    if not wrong or len(levels) < 2:
        return sentence
    reached, right = levels[0]
    near = max(right - (whole - wrong), 0)
    return (
        f"{sentence} Of the {count(wrong, 'mistake')}, {share(near, wrong, 0)} stay in the right top-level branch, so "
        f"<strong>{share(right, reached)}</strong> of the texts end up in the right branch."
    )


def _card(run: Run, name: str, interval: Interval | None) -> str:
    """One measure in large print, with its interval or deviation and its meaning."""
    spread = ""
    if interval is not None:
        bounds = f"{value(name, interval.low)} to {value(name, interval.high)}"
        spread = f'<dd class="sure">{100 * LEVEL:g}\u202f% interval: {bounds}</dd>'
    elif name in run.spread:
        deviation = MEASURES[name].format_spread(run.spread[name])
        spread = f'<dd class="sure">± {deviation} over {count(run.seeds, "seed")}</dd>'
    return (
        f'<div class="card"><dt>{heading(name)}</dt><dd class="big">{value(name, run.measures[name])}</dd>{spread}'
        f'<dd class="means">{text(MEASURES[name].meaning)}</dd></div>'
    )


def _against_flat(runs: Sequence[Run], differences: Differences) -> str:
    """The differences from the flat run, or how to add one."""
    flat = runs[differences.baseline]
    if flat.head != "flat":
        return (
            '<p class="note">There is no flat run to compare with. Train one with <code>--head flat</code> on the same '
            "texts and pass both: <code>arbormax report RUN FLAT-RUN</code>.</p>"
        )
    lines = []
    for row in differences.rows:
        if row["baseline"] == flat.name and row["measure"] in shown_measures("headline"):
            entry = MEASURES[str(row["measure"])]
            mean, low, high = (float(row[key]) for key in ("mean", "low", "high"))
            verdict = entry.verdict(low, high)
            mark = {"better": "▲", "worse": "▼"}.get(verdict, "◆")
            lines.append(
                f'<li class="{verdict.split()[0]}"><span aria-hidden="true">{mark}</span> '
                f"<strong>{text(row['head'])}</strong>, {text(entry.title)}: "
                f"{entry.format_difference(mean, low, high)}, {verdict}</li>"
            )
    if not lines:
        alone = len(runs) == 1
        why = "It is the only run of this report." if alone else "No other run was evaluated on the same texts."
        return f'<p class="note">{text(flat.name)} is flat. {why}</p>'
    return f'<h3>Difference from the flat run, {text(flat.name)}</h3><ul class="verdicts">{"".join(lines)}</ul>'


def _measure_table(runs: Sequence[Run], differences: Differences) -> str:
    names = [name for name in (*shown_measures("table"), *COSTS) if any(name in run.measures for run in runs)]
    rows = [
        [heading(name), *(_cell(run, name, own) for run, own in zip(runs, differences.own, strict=True))]
        for name in names
    ]
    levels = [run.tree.levels() for run in runs]
    for level in range(max(run.tree.tax.depth for run in runs)):
        cells = [share(own[level][1], own[level][0]) if level < len(own) else "–" for own in levels]
        rows.append([f"Accuracy at level {level + 1}", *cells])
    return table("Measures of every run", ["Measure", *(text(run.name) for run in runs)], rows, "numbers")


def _comparison(runs: Sequence[Run], differences: Differences) -> str:
    rows = [row for row in differences.rows if row["measure"] in MEASURES]
    listed = table(
        "Differences",
        ["Runs", "Measure", "Difference [interval]", "Verdict"],
        [
            [
                f"{text(row['head'])} − {text(row['baseline'])}",
                heading(row["measure"]),
                measure(row["measure"]).format_difference(float(row["mean"]), float(row["low"]), float(row["high"])),
                measure(row["measure"]).verdict(float(row["low"]), float(row["high"])),
            ]
            for row in rows
        ],
    )
    drawing, base = "", runs[differences.baseline]
    if rows:
        level = f"{100 * float(rows[0]['level']):g}\u202f%"
        drawing = figure(
            "differences",
            "all",
            f"Differences between the runs with {level} intervals, in points; the table below has the numbers.",
            note=f"Differences in points with {level} intervals of a paired bootstrap "
            f"(n = {count(base.texts, 'text')}). A filled dot means that the interval excludes 0 as the table shows "
            "it; an open dot means no clear difference.",
            data=listed,
            tall="short",
        )
    unpaired = ""
    if differences.unpaired:
        unpaired = (
            f'<p class="note">Not compared, because they were evaluated on other texts than '
            f"{text(runs[differences.baseline].name)}: {text(', '.join(differences.unpaired))}.</p>"
        )
    return section("compared", "Comparison of the runs", f"{_measure_table(runs, differences)}{drawing}{unpaired}")


def _cell(run: Run, name: str, own: dict[str, Interval]) -> str:
    shown = value(name, run.measures.get(name))
    if name in own:
        return f"{shown} <small>[{value(name, own[name].low)}, {value(name, own[name].high)}]</small>"
    if name in run.spread and name not in COSTS:
        return f"{shown} <small>± {MEASURES[name].format_spread(run.spread[name])}</small>"
    return shown
