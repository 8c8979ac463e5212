"""A search for settings with Optuna; several workers can share a study through its storage."""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytorch_lightning as pl

from arbormax.data.examples import Examples
from arbormax.data.folds import assign_folds, hold_out
from arbormax.errors import ArbormaxError, OptionError, import_extra
from arbormax.model.settings import TrainConfig
from arbormax.studies.crossval import Progress, ignore_progress
from arbormax.studies.search_space import SearchSpace
from arbormax.taxonomy import Taxonomy
from arbormax.training.callbacks import MONITOR
from arbormax.training.fit import check_examples, fit
from arbormax.training.hardware import ONE_DEVICE, Hardware
from arbormax.training.state import describe_differences, run_identity

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial, Trial

_MAX_FIRST_FAILURES = 3  # failures before any complete trial; then the settings are not the cause
_MAX_TRIALS = 5  # trials of any outcome for each complete one
_TRIAL_ERRORS = (RuntimeError, ArithmeticError, MemoryError)  # caused by the settings of a trial, such as their size


@dataclass(frozen=True, eq=False)
class SearchResult:
    """The best settings of a study, over all its workers."""

    config: TrainConfig
    value: float  # macro-F1 on the held-out examples; optimistic, as the best of many
    trials: tuple[dict[str, Any], ...]  # number, state, value, params, seconds, error, …
    complete: int
    pruned: int
    failed: int

    def to_dict(self) -> dict[str, Any]:
        """All fields, ready for JSON."""
        return {**vars(self), "config": self.config.model_dump(mode="json"), "trials": [dict(t) for t in self.trials]}


class SearchError(ArbormaxError, RuntimeError):
    """A study without a complete trial."""


def search(
    config: TrainConfig,
    taxonomy: Taxonomy,
    examples: Examples,
    *,
    trials: int = 20,
    storage: str | Path | None = None,
    study: str = "arbormax",
    space: SearchSpace | None = None,
    folds: int = 1,
    timeout: float | None = None,
    seed: int = 0,
    hardware: Hardware = ONE_DEVICE,
    progress: Progress | None = None,
    heartbeat: int = 30,
) -> SearchResult:
    """Run trials until the study has `trials` complete ones, and return the settings with the best macro-F1.

    The value of a trial is the macro-F1 of the best epoch on the part that `fit` holds out, or with `folds` > 1 its
    mean over the folds. Trials below the median of earlier ones are pruned and do not count as complete.

    `storage` is an SQLite file or the URL of a database that Optuna supports. Any number of processes may call this
    function with the same storage and study; together, and over all restarts, they run `trials` complete trials, plus
    at most one for each further worker. A trial that is interrupted, or whose worker sends no heartbeat for twice
    `heartbeat` seconds, is run again. Parameters depend only on `seed` and the number of the trial, so that a single
    worker always tries the same settings, also after a restart. No trial starts after `timeout` seconds.
    """
    optuna = _import_optuna()
    space = space or SearchSpace()
    _check(config, taxonomy, examples, space, trials, folds, seed)
    objective = _Objective(config, taxonomy, examples, space, folds, hardware)
    options = {"space": space.model_dump(mode="json"), "folds": folds, "search_seed": seed}
    report = progress or ignore_progress
    with ExitStack() as stack:
        stack.callback(optuna.logging.set_verbosity, optuna.logging.get_verbosity())
        optuna.logging.set_verbosity(optuna.logging.CRITICAL)
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # of heartbeats
        opened = None if storage is None else _open_storage(optuna, storage, heartbeat)
        if opened is not None:
            stack.callback(opened.engine.dispose)  # Optuna leaves the connection to the garbage collector
        shared = optuna.create_study(
            storage=opened,
            study_name=study,
            sampler=_make_sampler(optuna, seed),
            # Epochs are few and the first ones noisy: prune neither in the first one nor before five trials.
            pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=1),
            direction="maximize",
            load_if_exists=True,
        )
        _check_identity(shared, run_identity(config, taxonomy, examples, **options))

        def report_trials(*_: Any) -> None:
            report("trials", min(_count(shared, "COMPLETE"), trials), trials)

        report_trials()
        left = _MAX_TRIALS * trials - len(shared.get_trials(deepcopy=False))
        if _count(shared, "COMPLETE") < trials and left > 0:
            enough = optuna.study.MaxTrialsCallback(trials, (optuna.trial.TrialState.COMPLETE,))
            callbacks = [report_trials, enough, _stop_after_failures]
            shared.optimize(objective, n_trials=left, timeout=timeout, callbacks=callbacks, catch=_TRIAL_ERRORS)
        return _result(shared, space, config)


@dataclass(frozen=True, eq=False)
class _Objective:
    """What Optuna maximises: the macro-F1 of a trial's settings on held-out examples."""

    config: TrainConfig
    taxonomy: Taxonomy
    examples: Examples
    space: SearchSpace
    folds: int
    hardware: Hardware

    def __call__(self, trial: Trial) -> float:
        settings = self.space.suggest(trial, self.config).model_copy(update={"refit": False})
        # With several devices, the epochs run in other processes, which cannot report them to the trial.
        callback = _TrialCallback(trial if self.folds == 1 and not self.hardware.several else None)
        scores: list[float] = []
        try:
            for train, valid in self._splits():
                if scores and trial.should_prune():
                    raise _import_optuna().TrialPruned
                run = fit(settings, self.taxonomy, train, valid, hardware=self.hardware, callbacks=[callback])
                assert run.valid_macro_f1 is not None
                scores.append(run.valid_macro_f1)
                if self.folds > 1:
                    trial.report(float(np.mean(scores)), len(scores) - 1)
        except KeyboardInterrupt:
            trial.study.enqueue_trial(trial.params)  # the next trial of the study tries these settings again
            raise
        except _TRIAL_ERRORS as error:
            trial.set_user_attr("error", f"{type(error).__name__}: {error}"[:500])
            raise
        return float(np.mean(scores))

    def _splits(self) -> Iterator[tuple[Examples, Examples | None]]:
        """The training and validation examples of each fold; with one fold, `fit` holds out a share."""
        if self.folds == 1:
            yield self.examples, None
            return
        fold_n = assign_folds(self.examples.nodes, self.folds, self.config.seed)
        for number in range(self.folds):
            train, valid = (self.examples.take(np.flatnonzero(part)) for part in (fold_n != number, fold_n == number))
            yield train, valid


class _TrialCallback(pl.Callback):
    """Reports each epoch to a trial, prunes it, and stops at a loss that is not finite."""

    def __init__(self, trial: Trial | None) -> None:
        self.trial = trial

    def on_validation_end(self, trainer: pl.Trainer, _: pl.LightningModule) -> None:
        if not math.isfinite(float(trainer.callback_metrics["valid/loss"])):
            raise FloatingPointError(f"the loss is not finite in epoch {trainer.current_epoch + 1}")
        if self.trial is not None:
            self.trial.report(float(trainer.callback_metrics[MONITOR]), trainer.current_epoch)
            if self.trial.should_prune():
                raise _import_optuna().TrialPruned


def _check(
    config: TrainConfig, taxonomy: Taxonomy, examples: Examples, space: SearchSpace, trials: int, folds: int, seed: int
) -> None:
    """Raise before the first trial for errors that every trial would raise."""
    for name, value, minimum in (("trials", trials, 1), ("folds", folds, 1), ("seed", seed, 0)):
        if value < minimum:
            raise OptionError(f"expected a number of at least {minimum}, found {value}", argument=name)
    if not (space.encoders and space.heads):
        raise OptionError("expected at least one encoder and one head", argument="space")
    check_examples(examples, taxonomy, "train")
    for encoder in space.encoders:
        for head in space.heads:
            space.settings_for(config, encoder, head, {}).resolved()
    if config.validation == 0:
        raise OptionError("a search needs held-out examples, found 0", argument="validation")
    if folds > 1:
        assign_folds(examples.nodes, folds, config.seed)
    else:
        hold_out(examples, config.validation, config.seed)


def _open_storage(optuna: Any, storage: str | Path, heartbeat: int) -> Any:
    url = str(storage)
    if "://" not in url:
        url = "sqlite:///" + url.replace("{", "{{").replace("}", "}}")  # Optuna formats the URL
    options: dict[str, Any] = {
        "engine_kwargs": {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else {},  # to wait for a write
        "heartbeat_interval": heartbeat,
        "heartbeat_stale_trial_callback": optuna.storages.RetryHeartbeatStaleTrialCallback(max_retry=3),
    }
    for attempt in range(10):
        try:
            return optuna.storages.RDBStorage(url, **options)
        except Exception as error:
            # If two workers create the tables at the same time, one of them fails and tries again.
            if attempt == 9 or not any(part in str(error) for part in ("already exists", "UNIQUE", "duplicate")):
                place, reason = url.rpartition("@")[2], str(error).splitlines()[0]  # without a password
                raise OptionError(f"cannot open {place}: {reason}", argument="storage") from error
            time.sleep(0.1 * (attempt + 1))
    raise AssertionError


def _make_sampler(optuna: Any, seed: int) -> Any:
    """TPE with a seed for each trial: with one seed, all workers and each restart would try the same settings."""

    class SeededByTrial(optuna.samplers.TPESampler):  # type: ignore[misc]
        def before_trial(self, study: Any, trial: Any) -> None:
            super().__init__(seed=int(np.random.SeedSequence([seed, trial.number]).generate_state(1)[0]))
            super().before_trial(study, trial)

    return SeededByTrial(seed=seed)


def _check_identity(study: Study, identity: dict[str, Any]) -> None:
    """Write the settings of this search into a new study, or compare them with those of an existing one."""
    now = json.loads(json.dumps(identity))
    before = study.user_attrs.get("arbormax")
    if before is None:
        study.set_user_attr("arbormax", now)
    elif differences := describe_differences(before, {**dict.fromkeys(before), **now}):
        raise OptionError(
            f"{study.study_name!r} is another search; choose another name: {differences}", argument="study"
        )


def _count(study: Study, state: str) -> int:
    return sum(trial.state.name == state for trial in study.get_trials(deepcopy=False))


def _errors(study: Study) -> list[str]:
    return [trial.user_attrs["error"] for trial in study.get_trials(deepcopy=False) if "error" in trial.user_attrs]


def _stop_after_failures(study: Study, _: FrozenTrial) -> None:
    if not _count(study, "COMPLETE") and len(_errors(study)) >= _MAX_FIRST_FAILURES:
        study.stop()


def _result(study: Study, space: SearchSpace, config: TrainConfig) -> SearchResult:
    complete = _count(study, "COMPLETE")
    if not complete:
        if errors := _errors(study):
            raise SearchError(f"the first {len(errors)} trials failed, the last one with {errors[-1]}")
        raise SearchError(f"no trial of the study {study.study_name!r} is complete; try a longer timeout")
    best = study.best_trial
    settings = space.suggest(_import_optuna().trial.FixedTrial(best.params), config)
    assert best.value is not None
    trials = tuple(map(_describe_trial, study.get_trials(deepcopy=False)))
    pruned, failed = _count(study, "PRUNED"), _count(study, "FAIL")
    return SearchResult(settings, float(best.value), trials, complete, pruned, failed)


def _describe_trial(trial: FrozenTrial) -> dict[str, Any]:
    retried = trial.system_attrs.get("retry_history")
    return {
        "number": trial.number,
        "state": {"FAIL": "failed"}.get(trial.state.name, trial.state.name.lower()),
        "value": trial.value if trial.state.name == "COMPLETE" else None,
        "params": dict(trial.params),
        "epochs": len(trial.intermediate_values),
        "retry_of": retried[-1] if retried else None,
        "seconds": None if trial.duration is None else trial.duration.total_seconds(),
        "error": trial.user_attrs.get("error"),
    }


def _import_optuna() -> Any:
    return import_extra("optuna", "search", "optuna", "train")
