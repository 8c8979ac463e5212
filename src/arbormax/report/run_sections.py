"""The sections of the report about one run: each has a heading, an explanation, a figure and its numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from arbormax.report.figure_data import MIN_ITEMS, confusion_matrices, enough, levels_shown, omitted
from arbormax.report.markup import collapsible, count, figure, heading, section, share, table, text
from arbormax.report.runs import Run
from arbormax.report.training import training

_WORST_PAIRS, _MORE_PAIRS, _FORKS = 12, 28, 25  # pairs with examples, further pairs, and rows of the table of forks


_ONE_TEXT = {"text": ["text"], "template": None, "also": []}  # the columns of most trainings


def run_sections(run: Run, place: int) -> str:
    """All sections of one run, in order."""
    return "\n".join(section(f"{name}-{place}", title, build(run, place)) for name, _, title, build in SECTIONS)


def _select(key: str, label: str, options: list[tuple[str, str]]) -> str:
    inner = "".join(f'<option value="{value}">{name}</option>' for value, name in options)
    return f'<span class="field"><label for="{key}">{label}</label> <select id="{key}">{inner}</select></span>'


def _tree(run: Run, place: int) -> str:
    tax = run.tree.tax
    explanation = (
        "Each box is a node, with its children to the right. The number is the share of its test texts that were "
        "assigned to it or to a node below it. Click a box to zoom in and the strip on the left to zoom out, or use "
        "the list below."
    )
    if run.seeds > 1:
        explanation += f" All counts are totals over {run.seeds} seeds."
    tools = _select(
        f"colour-{place}", "Colour", [("accuracy", "accuracy"), ("f1", "F1"), ("support", "test texts")]
    ) + _select(f"size-{place}", "Size", [("support", "test texts"), ("classes", "classes")])
    label = f"The tree of {count(tax.num_leaves, 'class', 'classes')} as nested boxes; the list below has the numbers."
    return (
        f'<p>{explanation}</p><div class="tools">{tools}</div>'
        f"{figure('icicle', place, label, note=f'n = {_texts(run)}.', tall='tall')}"
        f'<div class="key" data-key="{place}" aria-hidden="true"></div>'
        f'<div class="browser" data-browser="{place}"></div>'
    )


def _texts(run: Run) -> str:
    """The number of test texts, as a figure states it."""
    seeds = f" × {run.seeds} seeds" if run.seeds > 1 else ""
    return count(run.texts, "test text") + seeds


def _confusion(run: Run, place: int) -> str:
    if not run.errors:
        return '<p class="note">There are no mistakes to show.</p>'
    tree, tax = run.tree, run.tree.tax
    nodes = [
        (str(at), f"{text(matrix['label'], 70)} ({count(matrix['mistakes'], 'mistake')})")
        for at, matrix in enumerate(confusion_matrices(run))
    ]
    chooser = _select(f"fork-{place}", "Node", nodes)
    rows = []
    for true, taken, number in run.forks[:_FORKS].tolist():
        meet = int(tax.lca(true, taken))
        rows.append(
            [
                f'{text(tax.names[true], 80)} <span class="to">predicted as</span> {text(tax.names[taken], 80)}',
                text(tree.label(meet), 90),
                "siblings" if tax.is_leaf[true] and tax.is_leaf[taken] else "branches",
                f"{number:,}",
                share(number, int(tree.support[true])),
                f"{number * int(tax.height[meet]):,}",
            ]
        )
    columns = ["Confusion", "Below", "Between", "Mistakes", "Share of the texts", "Cost"]
    rest = len(run.forks) - len(rows)
    listed = table("Confusions between children of one node, the costliest first", columns, rows, "numbers")
    more = f'<p class="note">{count(rest, "more confusion")} with lower cost not shown.</p>' if rest > 0 else ""
    label = "Confusion matrix of the children of one node: rows are true, columns are predicted; see the table."
    return (
        "<p>Every mistake happens at one node: the lowest one above both the true and the predicted class. Its cost is "
        "the number of levels from that node down to its deepest class, so confusing siblings costs little and "
        f'confusing whole branches costs much.</p><div class="tools">{chooser}</div>'
        + figure("matrix", place, label, note='<span data-note="matrix"></span>')
        + collapsible("The costliest confusions as a table", listed + more)
    )


def _pairs(run: Run, _: int) -> str:
    if not len(run.confusions):
        return '<p class="note">There are no mistakes to show.</p>'
    tree, tax = run.tree, run.tree.tax
    sentences = []
    for at, (true, taken, number) in enumerate(run.confusions[:_WORST_PAIRS].tolist()):
        meet = int(tax.lca(true, taken))
        siblings = int(tax.parent[true]) == int(tax.parent[taken])
        below = "at the root" if meet == 0 else f"below <em>{text(tree.label(meet), 90)}</em>"
        where = f"they are siblings {below}" if siblings else f"their paths diverge {below}"
        support = int(tree.support[true])
        quotes = run.quotes[at] if at < len(run.quotes) else ()
        sentences.append(
            f"<li><p><strong>{text(tree.label(true), 160)}</strong> was predicted as "
            f"<strong>{text(tree.label(taken), 160)}</strong> {_times(number)}, in {share(number, support, 0)} of its "
            f"{count(support, 'text')}; {where}.</p>{_quote_list(quotes)}</li>"
        )
    more = [
        [
            f'{text(tree.label(true), 120)} <span class="to">predicted as</span> {text(tree.label(taken), 120)}',
            f"{number:,}",
            f"{number * int(tax.height[int(tax.lca(true, taken))]):,}",
        ]
        for true, taken, number in run.confusions[_WORST_PAIRS : _WORST_PAIRS + _MORE_PAIRS].tolist()
    ]
    after = ""
    if more:
        after = collapsible("More pairs", table("More pairs", ["Pair", "Mistakes", "Cost"], more, "numbers"))
    total = len(run.confusions) + run.left_out[0]
    hidden = "" if run.quotes else " Example texts were not recorded."
    return (
        f"<p>{count(total, 'pair')} of classes were confused, {count(run.errors, 'time')} in total. These cost most."
        f"{hidden}</p>"
        f'<ol class="pairs">{"".join(sentences)}</ol>{after}'
    )


def _quote_list(quotes: Any) -> str:
    lines = []
    for quote in quotes:
        probability = quote.get("probability")
        shown = (
            f" <small>probability {share(probability, None, 0)}</small>"
            if isinstance(probability, (int, float))
            else ""
        )
        lines.append(f"<li><q>{text(quote['text'])}</q>{shown}</li>")
    return f'<ul class="quotes">{"".join(lines)}</ul>' if lines else ""


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number:,} times")


def _levels(run: Run, place: int) -> str:
    levels, errors = levels_shown(run), run.errors
    by_level = table(
        "Accuracy at each level",
        ["Level", "Texts that reach it", "Correct", "Accuracy"],
        [[str(at), f"{n:,}", f"{right:,}", share(right, n)] for at, n, right in levels],
        "numbers",
    )
    left = f'<p class="note">No level has {MIN_ITEMS} test texts.</p>'
    if levels:
        left = figure(
            "levels",
            place,
            "Accuracy at each level of the tree: "
            + ", ".join(f"level {at} {share(right, n)}" for at, n, right in levels),
            note="Accuracy at each level: the share of texts whose path is correct down to that level; n is the number "
            f"of texts that reach it.{omitted(run.tree.tax.depth - len(levels), 'level')}",
            data=by_level,
            tall="short",
        )
    by_height = table(
        "Mistakes by severity",
        ["Severity", "Mistakes", "Share"],
        [[str(at), f"{n:,}", share(n, errors)] for at, n in enumerate(run.severity, start=1)],
        "numbers",
    )
    right = figure(
        "severity",
        place,
        f"{count(errors, 'mistake')} by severity; the table below has the numbers.",
        note="Severity is the height of the lowest node above both the true and the predicted class: 1 means confusion "
        f"with a sibling, the largest value a mistake at the root. n = {count(errors, 'mistake')}.",
        data=by_height,
        tall="short",
    )
    return f'<div class="two">{left}{right}</div>'


def _calibration(run: Run, place: int) -> str:
    return _test_calibration(run, place) + (_before_and_after(run.calibrated, place) if run.calibrated else "")


def _before_and_after(calibrated: Mapping[str, Any], place: int) -> str:
    """The reliability diagrams and measures of the held-out texts before and after the calibration."""
    before, after = calibrated["before"], calibrated["after"]
    rows = []
    for name in ("nll", "brier", "ece", "ece_debiased"):
        for at, (old, new) in enumerate(zip(*(_listed(side.get(name)) for side in (before, after)), strict=False), 1):
            level = f", level {at}" if isinstance(before[name], list) else ""
            cells = (f"{x:.4f}" if isinstance(x, (int, float)) else "–" for x in (old, new))
            rows.append([heading(name) + level, *cells])
    method, items = text(calibrated["method"]), count(calibrated["items"], "held-out text")
    label = "Accuracy against predicted probability of held-out texts {} the calibration."
    notes = {
        side: f"{side.title()} the calibration (n = {items}).{_omitted_bins(calibrated[side]['levels'])}"
        for side in ("before", "after")
    }
    figures = "".join(figure(side, place, label.format(side), note=note) for side, note in notes.items())
    listed = table("Measures of the held-out texts", ["Measure", "Before", "After"], rows, "numbers")
    unused = "" if calibrated["applied"] else " It did not improve the likelihood, so the model was left as it was."
    return (
        f"<p>Calibration with the method <b>{method}</b> on {items}, each of which is scaled by a fit on others."
        f'{unused}</p><div class="two">{figures}</div>' + collapsible("The measures as a table", listed)
    )


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _test_calibration(run: Run, place: int) -> str:
    if not run.calibration:
        return '<p class="note">A comparison stores predictions without probabilities, so this section is empty.</p>'
    errors = run.measures.get("ece") or []
    rows = [
        [str(at), f"{lower / bins:.2f} to {(lower + 1) / bins:.2f}", f"{n:,.0f}", share(confidence, n), share(right, n)]
        for at, level in enumerate(run.calibration, start=1)
        for bins in [len(level["count"])]
        for lower in enough(level).tolist()
        for n, right, confidence in [(level["count"][lower], level["right"][lower], level["confidence"][lower])]
    ]
    if not rows:
        return f'<p class="note">No bin has {MIN_ITEMS} test texts.</p>'
    reached = [level["count"].sum() for level in run.calibration]
    listed = table("Calibration by level", ["Level", "Bin", "Texts", "Mean probability", "Accuracy"], rows, "numbers")
    by_level = ", ".join(
        f"level {at}: {share(error)}"
        for at, (error, n) in enumerate(zip(errors, reached, strict=False), start=1)
        if isinstance(error, (int, float)) and n >= MIN_ITEMS
    )
    calibration = f" Expected calibration error: {by_level}." if by_level else ""
    label = f"Accuracy against predicted probability, for each level.{calibration} The table below has the numbers."
    return (
        "<p>In a calibrated model, about 80\u202f% of the predictions with a probability of 80\u202f% are correct, and "
        "all points lie on the line. Below the line the model is overconfident, above it underconfident."
        f"{calibration}</p>"
        + figure(
            "calibration",
            place,
            label,
            note=f"n = {_texts(run)}; larger markers mean more texts.{_omitted_bins(run.calibration)}",
            data=listed,
        )
    )


def _omitted_bins(levels: Sequence[Mapping[str, Any]]) -> str:
    """How many bins with items the reliability diagram of these levels omits."""
    return omitted(sum(int((level["count"] > 0).sum()) - len(enough(level)) for level in levels), "bin")


def _risk(run: Run, place: int) -> str:
    if run.answers is None:
        return '<p class="note">A comparison stores predictions without probabilities, so this section is empty.</p>'
    answers = run.answers
    whole = answers["answered"][0].sum()
    levels = range(1, answers["answered"].shape[1])
    rows = []
    for at in range(0, len(answers["thresholds"]), 5):
        answered, right = answers["answered"][at], answers["right"][at]
        deep = [f"{share(answered[level], whole)}" for level in levels]
        given = answered[1:].sum()
        rows.append(
            [f"{answers['thresholds'][at]:.2f}", share(answered[0], whole), *deep, share(right[1:].sum(), given)]
        )
    listed = table(
        "Answers by threshold",
        ["Threshold", "No answer", *(f"Level {level}" for level in levels), "Accuracy of the answers"],
        rows,
        "numbers",
    )
    key = f"tau-{place}"
    return (
        "<p>A hierarchical classifier can stop at an inner node if no class is probable enough. Move the slider to set "
        "the required probability, and see how specific the answers are.</p>"
        f'<div class="slider"><label for="{key}">Required probability</label>'
        f'<input type="range" id="{key}" min="0" max="{len(answers["thresholds"]) - 1}" value="50">'
        f'<output for="{key}" data-out="{place}"></output></div>'
        f'<p class="live" data-live="{place}" role="status"></p><ul class="answers" data-answers="{place}"></ul>'
        + figure(
            "risk",
            place,
            "Share of wrong answers against share of texts answered, for each level; the table below has the numbers.",
            note="One line per level, over all thresholds: further right means more texts answered at that level or "
            "deeper, lower means fewer wrong answers. The ring marks the chosen threshold. "
            f"n = {_texts(run)}; thresholds with fewer than {MIN_ITEMS} answers are omitted.",
            data=listed,
        )
    )


def _origin(run: Run, _: int) -> str:
    commands = {"training": run.training.get("command") or run.origin.get("command")}
    if run.origin.get("command") != commands["training"]:
        commands["evaluation"] = run.origin.get("command")
    shown = "".join(
        f'<p>Command of the {step}:</p><div class="command" tabindex="0" role="region" aria-label="Command of the '
        f'{step}"><code>{text(command, 4000)}</code></div>'
        for step, command in commands.items()
        if command
    )
    facts = {"data": run.data.get("name"), **{name: run.data.get(name) for name in ("source", "licence")}}
    for name in ("train_items", "epochs", "best_epoch", "refit_epochs", "seconds", "parameters", "device"):
        facts[name] = run.training.get(name)
    versions = run.origin.get("versions") or {}
    facts["probabilities"] = run.origin.get("probabilities")
    facts |= {"evaluated": run.origin.get("date"), **{f"{name} version": versions[name] for name in versions}}
    chosen = {name: value for name, value in run.config.items() if value not in ({}, _ONE_TEXT)}
    settings = _fact_table("Settings", "Setting", chosen) if run.config else ""
    return f'{shown}<div class="two">{_fact_table("Data, training and versions", "Property", facts)}{settings}</div>'


def _fact_table(caption: str, column: str, facts: Mapping[str, Any]) -> str:
    """A table of the facts that are known."""
    rows = [[text(name.replace("_", " ")), _fact(fact)] for name, fact in facts.items() if fact is not None]
    return table(caption, [column, "Value"], rows, "facts")


def _fact(given: Any) -> str:
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        return text(given if isinstance(given, str) else json.dumps(given, ensure_ascii=False))
    return f"{given:,}" if isinstance(given, int) else f"{given:,.6g}"


# Name, label in the navigation, heading, and the function that builds the content.
SECTIONS: tuple[tuple[str, str, str, Callable[[Run, int], str]], ...] = (
    ("tree", "Tree", "Accuracy in the tree", _tree),
    ("confusion", "Confusion", "Confusion between siblings", _confusion),
    ("pairs", "Worst pairs", "Classes that are confused most", _pairs),
    ("levels", "Levels", "Accuracy at each level, and severity of mistakes", _levels),
    ("calibration", "Calibration", "Calibration", _calibration),
    ("risk", "Thresholds", "Answers at a chosen threshold", _risk),
    ("learning", "Training", "Training", training),
    ("made", "Origin", "How this run was produced", _origin),
)
