"""The parts of the report that tell about one run: each a heading, a sentence, a figure and its numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from arbormax.report._figures import fork_costs
from arbormax.report._runs import Run
from arbormax.report._words import behind, count, figure, share, table, text

_SENTENCES, _FORKS, _MORE = 12, 25, 28

PARTS = (
    ("tree", "The tree"),
    ("confusion", "Confusion"),
    ("pairs", "Worst pairs"),
    ("levels", "Levels"),
    ("calibration", "Calibration"),
    ("risk", "Certainty"),
    ("learning", "Learning"),
    ("made", "How it was made"),
)


def run_parts(run: Run, place: int) -> str:
    """All parts of one run, in order."""
    makers: dict[str, tuple[str, Callable[[Run, int], str]]] = {
        "tree": ("Where in the tree it is right", _tree),
        "confusion": ("Where the paths part", _confusion),
        "pairs": ("The worst pairs", _pairs),
        "levels": ("Right at each level, and how far off", _levels),
        "calibration": ("Is it as sure as it is right?", _calibration),
        "risk": ("What it would answer at which certainty", _risk),
        "learning": ("How it learned", _learning),
        "made": ("How it was made", _made),
    }
    sections = []
    for name, _ in PARTS:
        heading, maker = makers[name]
        key = f"{name}-{place}"
        sections.append(
            f'<section id="{key}" aria-labelledby="h-{key}"><h2 id="h-{key}">{heading}</h2>'
            f"{maker(run, place)}</section>"
        )
    return "\n".join(sections)


def _select(key: str, label: str, options: list[tuple[str, str]]) -> str:
    inner = "".join(f'<option value="{value}">{name}</option>' for value, name in options)
    return f'<span class="field"><label for="{key}">{label}</label> <select id="{key}">{inner}</select></span>'


def _tree(run: Run, place: int) -> str:
    tax = run.tree.tax
    told = (
        "Each box is a node, and to its right are its children. The number says how many of the texts that belong "
        "there were found there. Click a box to look closer, or go down by the list below."
    )
    if run.seeds > 1:
        told += f" All counts are over {run.seeds} seeds together."
    tools = _select(
        f"colour-{place}", "Colour", [("accuracy", "accuracy"), ("f1", "F1"), ("support", "test texts")]
    ) + _select(f"size-{place}", "Size", [("support", "test texts"), ("classes", "classes")])
    label = f"The tree of {count(tax.num_leaves, 'class', 'classes')} as nested boxes; the list below has its numbers."
    return (
        f'<p>{told}</p><div class="tools">{tools}</div>'
        f"{figure('icicle', place, label, tall='tall')}"
        f'<div class="key" data-key="{place}" aria-hidden="true"></div>'
        f'<div class="browser" data-browser="{place}"></div>'
    )


def _confusion(run: Run, place: int) -> str:
    if not run.errors:
        return '<p class="note">There are no mistakes to show.</p>'
    tree, tax = run.tree, run.tree.tax
    costs = fork_costs(run)
    shown = list(costs.items())[:40]
    chooser = _select(
        f"fork-{place}",
        "Paths that part at",
        [(str(at), f"{text(tree.label(node), 70)} ({count(n, 'mistake')})") for at, (node, (n, _)) in enumerate(shown)],
    )
    rows = []
    for true, taken, number in run.forks[:_FORKS].tolist():
        meet = int(tax.lca(true, taken))
        siblings = bool(tax.is_leaf[true] and tax.is_leaf[taken])
        rows.append(
            [
                f'{text(tree.tax.names[true], 80)} <span class="to">taken for</span> {text(tree.tax.names[taken], 80)}',
                text(tree.label(meet), 90),
                "siblings" if siblings else "branches",
                f"{number:,}",
                share(number, int(tree.support[true])),
                f"{number * int(tax.height[meet]):,}",
            ]
        )
    columns = ["Mix-up", "Under", "Between", "Mistakes", "Of the texts", "Cost"]
    rest = len(run.forks) - len(rows)
    listed = table("Mix-ups where the paths part, the costliest first", columns, rows, "numbers")
    more = (
        f'<p class="note">{count(rest, "more mix-up")} with lower cost are not in this table.</p>' if rest > 0 else ""
    )
    label = "Of the children of one node: rows are the truth, columns what was taken; the table below has the numbers."
    return (
        "<p>A mistake happens at one node: there the right path and the one taken part. It costs as many points as "
        "there are levels from that node down to the deepest class, so mixing up siblings is cheap and mixing up whole "
        f'branches dear.</p><div class="tools">{chooser}</div>'
        + figure("matrix", place, label, note='<span data-note="matrix"></span>')
        + behind("The costliest mix-ups as a table", listed + more)
    )


def _pairs(run: Run, _: int) -> str:
    if not len(run.confusions):
        return '<p class="note">There are no mistakes to show.</p>'
    tree, tax = run.tree, run.tree.tax
    sentences = []
    for at, (true, taken, number) in enumerate(run.confusions[:_SENTENCES].tolist()):
        meet = int(tax.lca(true, taken))
        siblings = int(tax.parent[true]) == int(tax.parent[taken])
        top = " at the very top" if meet == 0 else f" under <em>{text(tree.label(meet), 90)}</em>"
        where = f"siblings{'' if meet == 0 else top}" if siblings else f"their paths part{top}"
        support = int(tree.support[true])
        quotes = run.quotes[at] if at < len(run.quotes) else ()
        sentences.append(
            f"<li><p><strong>{text(tree.label(true), 160)}</strong> was taken for "
            f"<strong>{text(tree.label(taken), 160)}</strong> {_times(number)}, in {share(number, support, 0)} of its "
            f"{count(support, 'text')}; {where}.</p>{_quoted(quotes)}</li>"
        )
    more = [
        [
            f'{text(tree.label(true), 120)} <span class="to">taken for</span> {text(tree.label(taken), 120)}',
            f"{number:,}",
            f"{number * int(tax.height[int(tax.lca(true, taken))]):,}",
        ]
        for true, taken, number in run.confusions[_SENTENCES : _SENTENCES + _MORE].tolist()
    ]
    after = ""
    if more:
        after = behind("The next pairs", table("The next pairs", ["Pair", "Mistakes", "Cost"], more, "numbers"))
    total = len(run.confusions) + run.left_out[0]
    hidden = "" if run.quotes else " The texts were left out of this report's data."
    return (
        f"<p>{count(total, 'pair')} of classes were mixed up, {count(run.errors, 'time')} in all; these cost most."
        f"{hidden}</p>"
        f'<ol class="pairs">{"".join(sentences)}</ol>{after}'
    )


def _quoted(quotes: Any) -> str:
    lines = []
    for quote in quotes:
        sure = quote.get("probability")
        told = f" <small>{share(sure, None, 0)} sure</small>" if isinstance(sure, (int, float)) else ""
        lines.append(f"<li><q>{text(quote['text'])}</q>{told}</li>")
    return f'<ul class="quotes">{"".join(lines)}</ul>' if lines else ""


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number:,} times")


def _levels(run: Run, place: int) -> str:
    levels, errors = run.tree.levels(), run.errors
    by_level = table(
        "Right at each level",
        ["Level", "Texts that reach it", "Right there", "Share"],
        [[str(at), f"{n:,}", f"{right:,}", share(right, n)] for at, (n, right) in enumerate(levels, start=1)],
        "numbers",
    )
    left = figure(
        "levels",
        place,
        "Share of texts that are right at each level of the tree: "
        + ", ".join(f"level {at} {share(right, n)}" for at, (n, right) in enumerate(levels, start=1)),
        note="Right at each level: the share of texts whose path is right down to there.",
        data=by_level,
        tall="short",
    )
    by_height = table(
        "Mistakes by severity",
        ["Levels up to where they meet", "Mistakes", "Share"],
        [[str(at), f"{n:,}", share(n, errors)] for at, n in enumerate(run.severity, start=1)],
        "numbers",
    )
    right = figure(
        "severity",
        place,
        f"{count(errors, 'mistake')} by how many levels up they meet the truth; the table below has the numbers.",
        note="Severity of mistakes: 1 is the mildest, mixed up with a sibling; the last is a mistake at the top.",
        data=by_height,
        tall="short",
    )
    return f'<div class="two">{left}{right}</div>'


def _calibration(run: Run, place: int) -> str:
    if not run.calibration:
        return '<p class="note">A comparison keeps predictions and no probabilities, so this is not known here.</p>'
    errors = run.measures.get("ece") or []
    rows = []
    for at, level in enumerate(run.calibration, start=1):
        for lower, (n, right, sure) in enumerate(zip(level["count"], level["right"], level["confidence"], strict=True)):
            if n:
                bins = len(level["count"])
                rows.append(
                    [
                        str(at),
                        f"{lower / bins:.2f} to {(lower + 1) / bins:.2f}",
                        f"{n:,.0f}",
                        share(sure, n),
                        share(right, n),
                    ]
                )
    listed = table("Certainty and truth by level", ["Level", "Bin", "Texts", "Certainty", "Right"], rows, "numbers")
    told = ", ".join(
        f"level {at}: {share(error)}" for at, error in enumerate(errors, start=1) if isinstance(error, (int, float))
    )
    off = f" The mean distance from the line: {told}." if told else ""
    label = f"Share right against stated certainty, for each level.{off} The table below has the numbers."
    return (
        "<p>Of the answers that it is 80\u202f% sure of, about 80\u202f% should be right: points on the line. Below "
        f"the line it is too sure, above it too careful.{off}</p>" + figure("calibration", place, label, data=listed)
    )


def _risk(run: Run, place: int) -> str:
    if run.answers is None:
        return '<p class="note">A comparison keeps predictions and no probabilities, so this is not known here.</p>'
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
        ["Threshold", "No answer", *(f"Level {level}" for level in levels), "Right of those answered"],
        rows,
        "numbers",
    )
    key = f"tau-{place}"
    return (
        "<p>A classifier with a tree need not guess: it can stop at a branch it is sure of. Move the slider to choose "
        "how sure it must be, and see how far down it would answer.</p>"
        f'<div class="slider"><label for="{key}">Certainty asked for</label>'
        f'<input type="range" id="{key}" min="0" max="{len(answers["thresholds"]) - 1}" value="50">'
        f'<output for="{key}" data-out="{place}"></output></div>'
        f'<p class="live" data-live="{place}" role="status"></p><ul class="answers" data-answers="{place}"></ul>'
        + figure(
            "risk",
            place,
            "Share of wrong answers against share of texts answered, for each level; the table below has the numbers.",
            note="Each line follows the slider: right means more texts answered at that level or deeper, low means "
            "fewer of these answers are wrong. The ring is the chosen certainty.",
            data=listed,
        )
    )


def _learning(run: Run, place: int) -> str:
    if not run.curve:
        return '<p class="note">No learning curve was kept for this run.</p>'
    names = list(dict.fromkeys(name for row in run.curve for name in row))
    rows = [
        [str(epoch), *(f"{row[name]:.4f}" if name in row else "–" for name in names)]
        for epoch, row in enumerate(run.curve, start=1)
    ]
    columns = ["Epoch", *(text(name.replace("_", " ")) for name in names)]
    best = run.training.get("best_epoch")
    kept = f" The weights of epoch {best} were kept, the line in the drawings." if isinstance(best, int) else ""
    scores = figure(
        "scores",
        place,
        f"Measures on the held-out texts over {count(len(rows), 'epoch')}.",
        tall="short",
        note="Measures",
    )
    loss = figure(
        "loss", place, f"Loss on the held-out texts over {count(len(rows), 'epoch')}.", tall="short", note="Loss"
    )
    return f'<p>On texts held out of training, epoch by epoch.{kept}</p><div class="two">{scores}{loss}</div>' + behind(
        "The numbers as a table", table("Learning curve", columns, rows, "numbers")
    )


def _made(run: Run, _: int) -> str:
    command = run.training.get("command") or run.made.get("command")
    told = ""
    if command:
        told = (
            '<p>This command makes it again:</p><div class="command" tabindex="0" role="region" aria-label="Command">'
            f"<code>{text(command, 4000)}</code></div>"
        )
    measured = run.made.get("command")
    if measured and measured != command:
        told += (
            '<p>and this one measured it:</p><div class="command" tabindex="0" role="region" '
            f'aria-label="Measuring command"><code>{text(measured, 4000)}</code></div>'
        )
    facts: list[list[str]] = []
    for name in ("name", "source", "licence"):
        if run.data.get(name):
            facts.append([{"name": "data"}.get(name, name), text(run.data[name])])
    for name in ("train_items", "epochs", "best_epoch", "seconds", "parameters", "device"):
        if run.training.get(name) is not None:
            facts.append([text(name.replace("_", " ")), _fact(run.training[name])])
    if run.made.get("date"):
        facts.append(["measured", text(run.made["date"])])
    versions = run.made.get("versions")
    if isinstance(versions, dict):
        facts += [[f"{text(name)} version", text(version)] for name, version in versions.items()]
    settings = [
        [text(str(name).replace("_", " ")), _fact(setting)]
        for name, setting in run.config.items()
        if setting is not None
    ]
    return (
        told
        + '<div class="two">'
        + table("Data, training, versions", ["What", "Value"], facts, "facts")
        + (table("Settings", ["Setting", "Value"], settings, "facts") if settings else "")
        + "</div>"
    )


def _fact(given: Any) -> str:
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        return text(given if isinstance(given, str) else json.dumps(given, ensure_ascii=False))
    return f"{given:,}" if isinstance(given, int) else f"{given:,.6g}"
