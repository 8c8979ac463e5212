"""A short search for the settings that matter most, within a time budget, on the training examples only."""

from __future__ import annotations

import json
import logging
import math
import re
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from arbormax._files import read_json, to_plain, write_file
from arbormax.data.examples import Examples
from arbormax.data.folds import hold_out
from arbormax.errors import ArbormaxError, OptionError, import_extra
from arbormax.model.settings import TrainConfig
from arbormax.studies.tune_space import TuneSpace, change_settings
from arbormax.taxonomy import Taxonomy
from arbormax.training.callbacks import CURVE_COLUMNS, best_epoch
from arbormax.training.errors import TrainingError
from arbormax.training.fit import check_examples, fit
from arbormax.training.hardware import ONE_DEVICE, Hardware

_LOG = logging.getLogger("arbormax")
_MOST_TRIALS = 50  # more would fit the held-out examples rather than the task
_TRIAL_ERRORS = (RuntimeError, ArithmeticError, MemoryError)  # caused by the settings of a trial, such as their size
_UNITS = {"s": 1, "min": 60, "h": 3600}


@dataclass(frozen=True)
class TunedTrial:
    """One setting that was tried: the values of what is searched, and the measures on the held-out examples."""

    settings: dict[str, Any]
    seconds: float
    measures: dict[str, float] = field(default_factory=dict)  # loss, macro_f1, accuracy and hf; empty if it failed
    error: str | None = None


@dataclass(frozen=True, eq=False)
class Tuned:
    """The best settings that a search has found within its time."""

    config: TrainConfig
    trials: tuple[TunedTrial, ...]  # the first one has the default settings
    best: int  # the position of the best trial
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The search without the whole configuration, ready for JSON."""
        settings = self.trials[self.best].settings
        found = {"settings": settings, "best": self.best, "seconds": round(self.seconds, 1)}
        return {**found, "trials": [to_plain(asdict(trial)) for trial in self.trials]}


def read_duration(value: Any, argument: str = "tune") -> float:
    """The seconds of a duration: a number of seconds, or text such as 90s, 5min or 1h.

    >>> read_duration("90s"), read_duration("1.5 min"), read_duration(20)
    (90.0, 90.0, 20.0)
    """
    found = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*(s|min|h)?", str(value).strip())
    seconds = float(found[1]) * _UNITS[found[2] or "s"] if found and not isinstance(value, bool) else 0.0
    if not 0 < seconds < math.inf:
        raise OptionError(f"expected a duration such as 90s, 5min or 1h, found {value!r}", argument=argument)
    return seconds


def tune(
    config: TrainConfig,
    taxonomy: Taxonomy,
    train: Examples,
    valid: Examples | None = None,
    *,
    budget: float | str,
    keep: Collection[str] | None = None,
    folder: Path | None = None,
    resume: bool = False,
    hardware: Hardware = ONE_DEVICE,
    progress: bool = False,
) -> Tuned:
    """Try settings for the duration `budget`, such as "5min", and return the best ones.

    Each trial is measured on `valid`, or on the share `config.validation` of the training examples (a tenth if that is
    0), which is the same in all trials; `config.monitor` defines which of them is the best, as it does for epochs. The
    first trial has the settings of `config` and always runs to its end. No trial starts that is unlikely to end in
    time, and one that runs when the time is over is stopped. Ctrl-C ends the search, and the best trial so far counts.

    Searched are those of `strength`, `learning_rate`, `epochs` and the encoder's `ngrams` and `char_ngrams` that the
    solver and the encoder have and that are None in `config`, or not in `keep` if that is given. `progress` shows a
    bar, without which each trial is logged in one line. With a `folder`, the result is stored there until the training
    is finished, and `resume` reads it.
    """
    import_optuna()
    seconds = read_duration(budget)
    state = None if folder is None else folder / "checkpoints" / "tuning.json"
    if resume and state is not None and state.is_file():
        return _read(state, config)
    start = time.monotonic()
    space = TuneSpace.of(config, taxonomy, len(train), keep)
    _check(space.config, taxonomy, train, valid, hardware)
    with _reports(progress, seconds) as report:
        trials = _search(space, taxonomy, train, valid, start + seconds, hardware, report)
    best = _best(trials, config)
    found = Tuned(change_settings(config, trials[best].settings), tuple(trials), best, time.monotonic() - start)
    if state is not None:
        state.parent.mkdir(parents=True, exist_ok=True)
        write_file(state, json.dumps(found.to_dict(), indent=2))
    _LOG.info("%s", describe(found))
    return found


def describe(tuned: Tuned) -> str:
    """The result of a search in one line."""
    first, best = tuned.trials[0].measures, tuned.trials[tuned.best]
    count = f"{len(tuned.trials)} trial{'s' * (len(tuned.trials) != 1)} in {tuned.seconds:.0f} s"
    if len(tuned.trials) == 1:
        return f"tuning: the time was enough for the default settings only ({tuned.seconds:.0f} s); give it more"
    if tuned.best == 0:
        return f"tuning: {count}: the default settings are the best ({_format(best.settings)})"
    scores = ", ".join(
        f"{title} {first[name]:.4f} → {best.measures[name]:.4f}"
        for name, title in (("macro_f1", "macro-F1"), ("accuracy", "accuracy"))
    )
    return f"tuning: {count}: {_format(best.settings)}; on the held-out texts {scores}"


def _check(
    config: TrainConfig, taxonomy: Taxonomy, train: Examples, valid: Examples | None, hardware: Hardware
) -> None:
    """Raise before the first trial for errors that every trial would raise."""
    check_examples(train, taxonomy, "train")
    if hardware.several:
        raise OptionError("a search within a time budget runs on one device", argument="tune")
    if valid is not None:
        check_examples(valid, taxonomy, "validate")
    else:
        hold_out(train, config.validation, config.seed)


def _search(
    space: TuneSpace,
    taxonomy: Taxonomy,
    train: Examples,
    valid: Examples | None,
    deadline: float,
    hardware: Hardware,
    report: Any,
) -> list[TunedTrial]:
    """Try settings until the deadline; the default ones come first."""
    optuna = import_optuna()
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    sampler = optuna.samplers.TPESampler(seed=space.config.seed, n_startup_trials=5)
    study = optuna.create_study(sampler=sampler, direction="minimize")
    study.enqueue_trial(space.defaults)
    trials: list[TunedTrial] = []
    try:
        for _ in range(_MOST_TRIALS):
            if trials and time.monotonic() + max(each.seconds for each in trials) > deadline:
                break
            asked = study.ask()
            settings = space.suggest(asked)
            report(trials, settings, space.config)
            found = next((each for each in trials if each.settings == settings), None)
            if found is None:
                stop = deadline if trials else math.inf
                config = change_settings(space.config, settings)
                found = try_settings(config, settings, taxonomy, train, valid, stop, hardware)
                trials.append(found)
                if not found.measures and time.monotonic() > deadline:
                    break
            value = _score(found, space.config)
            study.tell(asked, value, None if value is not None else optuna.trial.TrialState.FAIL)
    except KeyboardInterrupt:
        if not trials:
            raise
        _LOG.info("tuning: interrupted; the training uses the best of %d finished trials", len(trials))
    finally:
        optuna.logging.set_verbosity(verbosity)
    report(trials, None, space.config)
    return trials


def try_settings(
    config: TrainConfig,
    settings: dict[str, Any],
    taxonomy: Taxonomy,
    train: Examples,
    valid: Examples | None,
    deadline: float,
    hardware: Hardware,
) -> TunedTrial:
    """Train with some settings and measure them; a finite deadline makes errors of the training a failed trial."""
    start = time.monotonic()
    try:
        run = fit(config, taxonomy, train, valid, hardware=hardware, on_step=partial(_check_time, deadline))
    except _TRIAL_ERRORS as error:
        if deadline == math.inf:  # the first trial, which has the settings of the caller
            raise
        reason = error.message if isinstance(error, ArbormaxError) else f"{type(error).__name__}: {error}"
        return TunedTrial(settings, time.monotonic() - start, error=reason[:500])
    return TunedTrial(settings, time.monotonic() - start, dict(run.curve[run.best_epoch - 1]))


def _check_time(deadline: float) -> None:
    """End a trial when the time is over."""
    if time.monotonic() > deadline:
        raise TrainingError("the time is over")


def _score(trial: TunedTrial, config: TrainConfig) -> float | None:
    """What the search minimises; None for a trial that failed."""
    name = "loss" if config.monitor == "both" else config.monitor
    value = trial.measures.get(name, math.nan)
    return None if not math.isfinite(value) else value if name == "loss" else -value


def _best(trials: list[TunedTrial], config: TrainConfig) -> int:
    """The position of the best trial, by the rule that selects the best epoch."""
    done = [place for place, trial in enumerate(trials) if _score(trial, config) is not None]
    if not done:
        raise OptionError("no trial has a finite loss; use a lower learning rate", argument="tune")
    curve = [[trials[place].measures[name] for name in CURVE_COLUMNS] for place in done]
    return done[best_epoch(curve, config.monitor) - 1]


def _read(path: Path, config: TrainConfig) -> Tuned:
    """The result of a search that was stored by a training that was interrupted."""
    saved = read_json(path)
    try:
        trials = tuple(TunedTrial(**trial) for trial in saved["trials"])
        return Tuned(change_settings(config, trials[saved["best"]].settings), trials, saved["best"], saved["seconds"])
    except (LookupError, TypeError) as error:
        raise OptionError(f"{path} is not the result of a search; remove it", argument="resume") from error


def _format(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {v:.3g}" if isinstance(v, float) else f"{name} {v}" for name, v in settings.items())


@contextmanager
def _reports(is_shown: bool, seconds: float) -> Iterator[Any]:
    """A function (trials so far, settings of the next one, config) that shows a bar, or logs each finished trial."""
    if not is_shown:
        logged = 0

        def log(trials: list[TunedTrial], _settings: Mapping[str, Any] | None, config: TrainConfig) -> None:
            nonlocal logged
            for number, trial in enumerate(trials[logged:], start=logged + 1):
                names = {"macro_f1": "macro-F1", "accuracy": "accuracy", "loss": "loss"}
                measured = ", ".join(f"{names[name]} {trial.measures[name]:.4f}" for name in names if trial.measures)
                is_best = _best(trials[:number], config) == number - 1
                found = measured + " (best so far)" * is_best if measured else f"stopped: {trial.error}"
                _LOG.info("tuning, trial %d: %s: %s (%.1f s)", number, _format(trial.settings), found, trial.seconds)
            logged = len(trials)

        yield log
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn(f"of {seconds:.0f} s"))
    start = time.monotonic()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("tuning", total=seconds)

        def show(trials: list[TunedTrial], settings: Mapping[str, Any] | None, config: TrainConfig) -> None:
            text = "" if settings is None else f", trial {len(trials) + 1}: {_format(settings)}"
            if trials:
                text += f"; best macro-F1 {trials[_best(trials, config)].measures['macro_f1']:.4f}"
            bars.update(task, completed=min(time.monotonic() - start, seconds), description=f"tuning{text}")

        yield show


def import_optuna() -> Any:
    """The package that proposes the settings of a trial."""
    return import_extra("optuna", "a search for settings", "optuna", "train")
