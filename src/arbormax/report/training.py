"""How a training went: the learning curves, and the search for settings before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arbormax.metrics import MEASURES
from arbormax.report.markup import collapsible, count, figure, heading, share, table, text
from arbormax.report.runs import Run

_TRIED = ("macro_f1", "accuracy", "loss")  # measures of the trials of a search


def training(run: Run, place: int) -> str:
    """The content of the section."""
    return _learning(run, place) + _tuning(run.tuning)


def _learning(run: Run, place: int) -> str:
    if not run.curve:
        return '<p class="note">No learning curve was recorded for this run.</p>'
    names = list(dict.fromkeys(name for row in run.curve for name in row))
    rows = [
        [str(epoch), *(f"{row[name]:.4f}" if name in row else "–" for name in names)]
        for epoch, row in enumerate(run.curve, start=1)
    ]
    columns = ["Epoch", *map(_title, names)]
    if len(rows) == 1:  # such as the convex solver, which has no epochs
        later = ", before the model was trained again on all texts" * (run.training.get("refit_epochs") is not None)
        measured = table("Held-out texts", columns[1:], [rows[0][1:]], "numbers")
        return f"<p>Measures on the held-out texts{later}{_held_out(run.training)}:</p>{measured}"
    best = run.training.get("best_epoch")
    again = run.training.get("refit_epochs")
    kept = ""
    if isinstance(best, int) and isinstance(again, int):
        kept = (
            f" Epoch {best}, which a line marks in the figures, is the best. The model was then trained again on all "
            f"texts, for {count(again, 'epoch')}."
        )
    elif isinstance(best, int):
        kept = f" The model has the weights of epoch {best}, which a line marks in the figures."
    epochs = count(len(rows), "epoch")
    figures = "".join(
        figure(
            kind,
            place,
            f"{name} on the held-out texts over {epochs}.",
            tall="short",
            note=f"{name}{_held_out(run.training)}",
        )
        for kind, name in (("scores", "Measures"), ("loss", "Loss"))
    )
    return (
        f'<p>Measures on the held-out texts after each epoch.{kept}</p><div class="two">{figures}</div>'
        + collapsible("The numbers as a table", table("Learning curve", columns, rows, "numbers"))
    )


def _title(name: str) -> str:
    return heading(name) if name in MEASURES else text(name.replace("_", " "))


def _held_out(training: Mapping[str, Any]) -> str:
    """The number of the held-out texts; of a training that knows only their share, this share."""
    valid, part, items = (training.get(name) for name in ("valid_items", "validation", "train_items"))
    if isinstance(valid, int):
        return f" (n = {count(valid, 'held-out text')})"
    if not isinstance(part, float) or not isinstance(items, int):
        return ""
    return f" (n = {share(part, None, 0)} of {count(items, 'training text')})"


def _tuning(tuning: Mapping[str, Any]) -> str:
    """The trials of a search for settings."""
    trials, best = tuning.get("trials"), tuning.get("best")
    if not isinstance(trials, list) or not trials or not all(map(_is_trial, trials)):
        return ""
    names = list(trials[0]["settings"])
    rows = [
        [
            str(number) + " (best)" * (number - 1 == best),
            *(text(_value(trial["settings"].get(name))) for name in names),
            *(_value(trial["measures"].get(name), ".4f") for name in _TRIED),
        ]
        for number, trial in enumerate(trials, start=1)
    ]
    columns = ["Trial", *(text(name.replace("_", " ")) for name in names), *map(_title, _TRIED)]
    seconds = _value(tuning.get("seconds"), ".0f")
    return (
        f"<p>The settings were searched for in {count(len(trials), 'trial')} and {seconds} seconds, on held-out "
        "training texts. The measures of the best trial are optimistic, because they selected it.</p>"
        + collapsible("The trials as a table", table("Trials", columns, rows, "numbers"))
    )


def _is_trial(given: Any) -> bool:
    parts = [given.get(name) for name in ("settings", "measures")] if isinstance(given, Mapping) else []
    return bool(parts) and all(isinstance(part, Mapping) for part in parts)


def _value(given: Any, form: str = ".3g") -> str:
    return format(given, form) if isinstance(given, float) else "–" if given is None else str(given)
