"""A search for settings with Optuna; several workers can share a study through its storage."""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytorch_lightning as pl

from arbormax.data.examples import Examples
from arbormax.data.folds import assign_folds, hold_out
from arbormax.errors import ArbormaxError, MissingDependencyError, OptionError
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
    at most one for each further worker. A trial whose worker sends no heartbeat for twice `heartbeat` seconds is run
    again. Parameters depend only on `seed` and the number of the trial, so that a single worker always tries the same
    settings, also after a restart. No trial starts after `timeout` seconds.
    """
    optuna = _import_optuna()
    space = space or SearchSpace()
    _check(config, taxonomy, examples, space, trials, folds, seed, heartbeat)
    objective = _Objective(config, taxonomy, examples, space, folds, hardware)
    options = {"space": space.model_dump(mode="json"), "folds": folds, "search_seed": seed}
    report = progress or ignore_progress
    with _quiet(optuna), _open_study(optuna, storage, study, seed, heartbeat) as shared:
        _check_identity(shared, run_identity(config, taxonomy, examples, **options))

        def report_trials(*_: Any) -> None:
            counts = _count_states(shared)
            others = ", ".join(f"{n} {state}" for state, n in counts.items() if n and state != "complete")
            report(f"trials ({others})" if others else "trials", min(counts["complete"], trials), trials)

        report_trials()
        counts = _count_states(shared)
        if counts["complete"] < trials and (left := _MAX_TRIALS * trials - sum(counts.values())) > 0:
            states = (optuna.trial.TrialState.COMPLETE,)
            callbacks = [report_trials, optuna.study.MaxTrialsCallback(trials, states), objective.stop_if_hopeless]
            shared.optimize(objective, n_trials=left, timeout=timeout, callbacks=callbacks, catch=_TRIAL_ERRORS)
        return _result(shared, space, config)


class _Objective:
    """What Optuna maximises: the macro-F1 of a trial's settings on held-out examples."""

    def __init__(
        self,
        config: TrainConfig,
        taxonomy: Taxonomy,
        examples: Examples,
        space: SearchSpace,
        folds: int,
        hardware: Hardware,
    ) -> None:
        self.config, self.taxonomy, self.examples, self.space = config, taxonomy, examples, space
        self.folds, self.hardware = folds, hardware
        self.error: Exception | None = None  # of the last failed trial

    def __call__(self, trial: Trial) -> float:
        settings = self.space.suggest(trial, self.config)
        start = time.monotonic()
        try:
            return self._score_held_out(trial, settings) if self.folds == 1 else self._score_folds(trial, settings)
        except _TRIAL_ERRORS as error:
            self.error = error
            trial.set_user_attr("error", f"{type(error).__name__}: {error}"[:500])
            raise
        finally:
            trial.set_user_attr("seconds", time.monotonic() - start)

    def _score_held_out(self, trial: Trial, settings: TrainConfig) -> float:
        # With several devices, the epochs run in other processes, which cannot report them to the trial.
        callback = _TrialCallback(None if self.hardware.several else trial)
        run = fit(settings, self.taxonomy, self.examples, hardware=self.hardware, callbacks=[callback])
        trial.set_user_attr("best_epoch", run.best_epoch)
        trial.set_user_attr("parameters", run.model.num_parameters)
        assert run.valid_macro_f1 is not None
        return run.valid_macro_f1

    def _score_folds(self, trial: Trial, settings: TrainConfig) -> float:
        fold_n = assign_folds(self.examples.nodes, self.folds, self.config.seed)
        scores: list[float] = []
        for number in range(self.folds):
            train, valid = (self.examples.take(np.flatnonzero(part)) for part in (fold_n != number, fold_n == number))
            run = fit(settings, self.taxonomy, train, valid, hardware=self.hardware, callbacks=[_TrialCallback(None)])
            assert run.valid_macro_f1 is not None
            scores.append(run.valid_macro_f1)
            trial.report(float(np.mean(scores)), number)
            if number + 1 < self.folds and trial.should_prune():
                raise _import_optuna().TrialPruned
        return float(np.mean(scores))

    def stop_if_hopeless(self, study: Study, _: FrozenTrial) -> None:
        """Raise if the first trials failed: another trial would fail, too."""
        failures = sum("error" in trial.user_attrs for trial in study.get_trials(deepcopy=False))
        if self.error is None or _count_states(study)["complete"] or failures < _MAX_FIRST_FAILURES:
            return
        raise SearchError(
            f"the first {failures} trials failed, the last one with {type(self.error).__name__}: {self.error}"
        ) from self.error


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
    config: TrainConfig,
    taxonomy: Taxonomy,
    examples: Examples,
    space: SearchSpace,
    trials: int,
    folds: int,
    seed: int,
    heartbeat: int,
) -> None:
    """Raise before the first trial for errors that every trial would raise."""
    least = {"trials": (trials, 1), "folds": (folds, 1), "seed": (seed, 0), "heartbeat": (heartbeat, 1)}
    for name, (value, minimum) in least.items():
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


@contextmanager
def _open_study(optuna: Any, storage: str | Path | None, name: str, seed: int, heartbeat: int) -> Iterator[Study]:
    opened = None if storage is None else _open_storage(optuna, storage, heartbeat)
    try:
        yield optuna.create_study(
            storage=opened,
            study_name=name,
            sampler=_make_sampler(optuna, seed),
            # Epochs are few and the first ones noisy: prune neither in the first one nor before five trials.
            pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=1),
            direction="maximize",
            load_if_exists=True,
        )
    finally:
        if opened is not None:
            opened.engine.dispose()  # Optuna leaves the connection to the garbage collector


def _open_storage(optuna: Any, storage: str | Path, heartbeat: int) -> Any:
    url = str(storage)
    if "://" not in url:
        path = Path(storage)
        if path.is_dir():
            raise OptionError(f"{path} is a folder; expected a file", argument="storage")
        if not path.parent.is_dir():
            raise OptionError(f"the folder {path.parent} does not exist", argument="storage")
        escaped = url.replace("{", "{{").replace("}", "}}")  # Optuna formats the URL
        url = f"sqlite:///{escaped}"
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
                without_password = url.rpartition("@")[2]
                raise OptionError(f"cannot open {without_password}: {error}", argument="storage") from error
            time.sleep(0.1 * (attempt + 1))
    raise AssertionError


def _make_sampler(optuna: Any, seed: int) -> Any:
    """TPE with a seed for each trial: with one seed, all workers and each restart would try the same settings."""

    class SeededByTrial(optuna.samplers.BaseSampler):  # type: ignore[misc]
        def __init__(self) -> None:
            self.sampler = optuna.samplers.TPESampler(seed=seed)

        def before_trial(self, study: Any, trial: Any) -> None:
            own = int(np.random.SeedSequence([seed, trial.number]).generate_state(1)[0])
            self.sampler = optuna.samplers.TPESampler(seed=own)
            self.sampler.before_trial(study, trial)

        def infer_relative_search_space(self, study: Any, trial: Any) -> Any:
            return self.sampler.infer_relative_search_space(study, trial)

        def sample_relative(self, study: Any, trial: Any, search_space: Any) -> Any:
            return self.sampler.sample_relative(study, trial, search_space)

        def sample_independent(self, study: Any, trial: Any, name: str, distribution: Any) -> Any:
            return self.sampler.sample_independent(study, trial, name, distribution)

        def after_trial(self, study: Any, trial: Any, state: Any, values: Any) -> None:
            self.sampler.after_trial(study, trial, state, values)

    return SeededByTrial()


def _check_identity(study: Study, identity: dict[str, Any]) -> None:
    """Write the settings of this search into a new study, or compare them with those of an existing one."""
    now = json.loads(json.dumps(identity))
    if "arbormax" not in study.user_attrs:
        if study.get_trials(deepcopy=False):
            raise OptionError(f"{study.study_name!r} contains trials of another program", argument="study")
        study.set_user_attr("arbormax", now)
    before = study.user_attrs["arbormax"]
    if differences := describe_differences(before, {**dict.fromkeys(before), **now}):
        raise OptionError(
            f"{study.study_name!r} is another search; choose another name: {differences}", argument="study"
        )


def _count_states(study: Study) -> dict[str, int]:
    states = [trial.state.name.lower() for trial in study.get_trials(deepcopy=False)]
    return {"complete": states.count("complete"), "pruned": states.count("pruned"), "failed": states.count("fail")}


def _result(study: Study, space: SearchSpace, config: TrainConfig) -> SearchResult:
    counts, trials = _count_states(study), study.get_trials(deepcopy=False)
    if not counts["complete"]:
        errors = sorted({str(trial.user_attrs["error"]) for trial in trials if "error" in trial.user_attrs})
        reason = f"; they failed with {'; '.join(errors[:3])}" if errors else "; try a longer timeout"
        raise SearchError(f"no trial of the study {study.study_name!r} is complete{reason}")
    best = study.best_trial
    settings = space.suggest(_import_optuna().trial.FixedTrial(best.params), config)
    assert best.value is not None
    return SearchResult(settings, float(best.value), tuple(map(_describe_trial, trials)), **counts)


def _describe_trial(trial: FrozenTrial) -> dict[str, Any]:
    retried = trial.system_attrs.get("retry_history")
    return {
        "number": trial.number,
        "state": {"FAIL": "failed"}.get(trial.state.name, trial.state.name.lower()),
        "value": trial.value if trial.state.name == "COMPLETE" else None,
        "params": dict(trial.params),
        "epochs": len(trial.intermediate_values),
        "retry_of": retried[-1] if retried else None,
        **{name: trial.user_attrs.get(name) for name in ("best_epoch", "parameters", "seconds", "error")},
    }


@contextmanager
def _quiet(optuna: Any) -> Iterator[None]:
    """Suppress Optuna's log line for each trial and its warning that heartbeats are experimental."""
    level = optuna.logging.get_verbosity()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        try:
            optuna.logging.set_verbosity(optuna.logging.CRITICAL)
            yield
        finally:
            optuna.logging.set_verbosity(level)


def _import_optuna() -> Any:
    try:
        import optuna
    except ModuleNotFoundError as error:
        raise MissingDependencyError("search", "optuna", "train") from error
    return optuna
