"""Search for good settings with Optuna; several workers, and restarted ones, share a study through its storage."""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import numpy as np
import pytorch_lightning as pl
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from arbormax.data.examples import Examples
from arbormax.data.folds import assign_folds, hold_out
from arbormax.encoders import ENCODERS, encoder_kind
from arbormax.errors import ArbormaxError, MissingDependencyError, OptionError, did_you_mean
from arbormax.heads import HEADS
from arbormax.model.settings import TrainConfig, validate
from arbormax.studies.crossval import Progress, silent
from arbormax.taxonomy import Taxonomy
from arbormax.training.callbacks import MONITOR
from arbormax.training.errors import TrainingError
from arbormax.training.fit import check_examples, fit
from arbormax.training.hardware import ONE_DEVICE, Hardware
from arbormax.training.state import run_identity

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial, Trial

_HOPELESS = 3  # failures before any success, after which the fault is not that of the settings
_TRIES = 5  # trials of any outcome, as a multiple of those wanted, after which a study ends


def _default_encoders() -> tuple[str, ...]:
    return tuple(name for name in ENCODERS if ENCODERS[name].searched)


class SearchSpace(BaseModel):
    """What is tried. A range is (least, most); None leaves a setting as the configuration has it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    encoders: tuple[str, ...] = Field(default_factory=_default_encoders, min_length=1, description="encoders by name")
    heads: tuple[Annotated[str, AfterValidator(HEADS.check)], ...] = Field(
        default=HEADS.names, min_length=1, description="heads by name"
    )
    width: tuple[int, int] | None = Field(
        default=(32, 512), description="hidden or dim, where the encoder has one; log scale"
    )
    dropout: tuple[float, float] | None = Field(default=(0.0, 0.6), description="where the encoder has it")
    learning_rate: tuple[float, float] | Literal["around"] | None = Field(
        default="around",
        description="of encoder and head, log scale; around: from a tenth of the encoder's usual one to ten times it",
    )

    @field_validator("width", "dropout", "learning_rate")
    @classmethod
    def _is_range(cls, bounds: Any, field: ValidationInfo) -> Any:
        least, below = {"width": (1, math.inf), "dropout": (0, 1)}.get(field.field_name or "", (1e-12, math.inf))
        if isinstance(bounds, tuple) and not least <= bounds[0] <= bounds[1] < below:
            raise ValueError(f"a range is (least, most) within [{least}, {below})")
        return bounds

    @classmethod
    def make(cls, **given: Any) -> Self:
        """The space with what is given, the rest as usual; one error tells all that is wrong.

        >>> SearchSpace.make(encoders=["bag"], width=[8, 64]).width
        (8, 64)
        """
        return validate(cls, given, "a search space")

    def draw(self, trial: Trial, base: TrainConfig) -> TrainConfig:
        """The settings of one trial; each encoder has parameters of its own, as what suits one harms another."""
        encoder = trial.suggest_categorical("encoder", list(self.encoders))
        head = trial.suggest_categorical("head", list(self.heads))
        changed: dict[str, Any] = {}
        width = encoder_kind(encoder).width_option
        if width and self.width:
            changed[width] = trial.suggest_int(f"{encoder}.{width}", *self.width, log=True)
        if self.dropout and "dropout" in encoder_kind(encoder).Options.model_fields:
            changed["dropout"] = trial.suggest_float(f"{encoder}.dropout", *self.dropout)
        settings = self.base_for(base, encoder, head, changed)
        if self.learning_rate is None:
            return settings
        bounds = self.learning_rate
        if bounds == "around":
            usual = settings.model_copy(update={"learning_rate": None}).resolved().learning_rate
            assert usual is not None
            bounds = (usual / 10, usual * 10)
        rate = trial.suggest_float(f"{encoder}.learning_rate", *bounds, log=True)
        return settings.model_copy(update={"learning_rate": rate, "head_learning_rate": None})

    @staticmethod
    def base_for(base: TrainConfig, encoder: str, head: str, changed: dict[str, Any]) -> TrainConfig:
        """The given settings for this encoder, with those of its own options that it knows."""
        known = encoder_kind(encoder).Options.model_fields
        kept = {name: value for name, value in base.encoder_options.items() if encoder == base.encoder or name in known}
        return base.model_copy(update={"encoder": encoder, "head": head, "encoder_options": {**kept, **changed}})


@dataclass(frozen=True, eq=False)
class SearchResult:
    """The best settings of a study so far, over all its workers."""

    config: TrainConfig
    value: float  # macro-F1 on what was held out; the best of many, so a little too good
    trials: tuple[dict[str, Any], ...]  # number, state, value, params, seconds, error, …
    complete: int
    pruned: int
    failed: int

    def to_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        return {
            "config": self.config.model_dump(mode="json"),
            "value": self.value,
            "complete": self.complete,
            "pruned": self.pruned,
            "failed": self.failed,
            "trials": [dict(trial) for trial in self.trials],
        }


class SearchError(ArbormaxError, RuntimeError):
    """A study without a single complete trial."""


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
    """Try settings until the study has `trials` complete ones, and give the best by macro-F1 on held-out examples.

    The value of a trial is the best epoch's macro-F1 on the part that `fit` holds out, or with `folds` > 1 the mean of
    it over the folds. Trials that do worse than the median so far are pruned; they do not count as complete.

    `storage` is a file of SQLite, in a folder that is there, or a URL of a database that Optuna knows. Any number of
    processes may call this with the same storage and study; `trials` is what they do together, over all restarts, and
    at most one trial more for each further worker. A trial whose worker gave no sign of life for twice the `heartbeat`
    seconds is run again. Parameters are drawn from `seed` and the number of the trial: a single worker's study is the
    same every time, also when it was stopped between two trials. `timeout` seconds end this worker, after the trial it
    is in.
    """
    optuna = _optuna()
    space = space or SearchSpace()
    _check(config, taxonomy, examples, space, trials, folds, seed, heartbeat)
    objective = _Objective(config, taxonomy, examples, space, folds, hardware)
    with _quiet(optuna), ExitStack() as ending:
        shared = _open_study(optuna, storage, study, seed, heartbeat, ending)
        _claim(shared, _identity(config, taxonomy, examples, space, folds, seed))
        told = progress or silent

        def after(*_: Any) -> None:
            outcomes = _count(shared)
            told(_stage(outcomes), min(outcomes["complete"], trials), trials)
            if _is_over(outcomes, trials):
                shared.stop()
            elif objective.error is not None and not outcomes["complete"] and _errors(shared) >= _HOPELESS:
                raise SearchError(
                    f"the first {_errors(shared)} trials failed, so the fault is not in their settings; the last with "
                    f"{type(objective.error).__name__}: {objective.error}"
                ) from objective.error

        outcomes = _count(shared)
        told(_stage(outcomes), min(outcomes["complete"], trials), trials)
        if not _is_over(outcomes, trials):
            shared.optimize(objective, timeout=timeout, callbacks=[after], catch=(_TrialFailed,))
        return _result(shared, space, config)


class _TrialFailed(Exception):  # noqa: N818 - a message to Optuna
    """Settings that do not train; the study goes on."""


class _Objective:
    """What Optuna maximises: settings in, macro-F1 on held-out examples out."""

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
        self.error: Exception | None = None

    def __call__(self, trial: Trial) -> float:
        optuna = _optuna()
        settings = self.space.draw(trial, self.config)
        began = time.monotonic()
        try:
            return self._held_out(trial, settings) if self.folds == 1 else self._folds(trial, settings)
        except optuna.TrialPruned:
            raise
        except KeyboardInterrupt:
            trial.set_user_attr("error", "stopped; its settings are tried again")
            trial.study.enqueue_trial(trial.params)
            raise
        except Exception as error:
            if isinstance(error, ArbormaxError) and not isinstance(error, TrainingError):
                raise  # it tells of data or options, which every trial has
            self.error = error
            trial.set_user_attr("error", f"{type(error).__name__}: {error}"[:500])
            raise _TrialFailed(str(error)) from error
        finally:
            trial.set_user_attr("seconds", time.monotonic() - began)

    def _held_out(self, trial: Trial, settings: TrainConfig) -> float:
        alone = self.hardware.devices in (1, "1")  # else the epochs are run in other processes
        watch = [_Watch(trial.report, trial.should_prune) if alone else _Watch()]
        run = fit(settings, self.taxonomy, self.examples, hardware=self.hardware, callbacks=watch)
        trial.set_user_attr("best_epoch", run.best_epoch)
        trial.set_user_attr("parameters", run.model.num_parameters)
        assert run.valid_macro_f1 is not None
        return run.valid_macro_f1

    def _folds(self, trial: Trial, settings: TrainConfig) -> float:
        fold_n = assign_folds(self.examples.nodes, self.folds, self.config.seed)
        scores: list[float] = []
        for number in range(self.folds):
            train, valid = (self.examples.take(np.flatnonzero(part)) for part in (fold_n != number, fold_n == number))
            run = fit(settings, self.taxonomy, train, valid, hardware=self.hardware, callbacks=[_Watch()])
            assert run.valid_macro_f1 is not None
            scores.append(run.valid_macro_f1)
            trial.report(float(np.mean(scores)), number)
            if number + 1 < self.folds and trial.should_prune():
                raise _optuna().TrialPruned
        return float(np.mean(scores))


class _Watch(pl.Callback):
    """Reports every epoch, ends a trial that does badly, and stops at a loss that is not a number."""

    def __init__(
        self, report: Callable[[float, int], None] | None = None, should_prune: Callable[[], bool] | None = None
    ) -> None:
        self.report, self.should_prune = report, should_prune

    def on_validation_end(self, trainer: pl.Trainer, _: pl.LightningModule) -> None:
        if not math.isfinite(float(trainer.callback_metrics["valid/loss"])):
            raise FloatingPointError(f"the loss is not a finite number in epoch {trainer.current_epoch + 1}")
        if self.report is not None and self.should_prune is not None:
            self.report(float(trainer.callback_metrics[MONITOR]), trainer.current_epoch)
            if self.should_prune():
                raise _optuna().TrialPruned


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
    """Raise now for what a trial would meet after hours."""
    if trials < 1:
        raise OptionError(f"trials is at least 1, found {trials}")
    if seed < 0 or heartbeat < 1:
        raise OptionError(f"seed is a whole number from 0, heartbeat one from 1; found {seed} and {heartbeat}")
    if folds < 1:
        raise OptionError(f"folds is 1 for one held-out part, or more; found {folds}")
    check_examples(examples, taxonomy, "train")
    for encoder in space.encoders:
        for head in space.heads:
            space.base_for(config, encoder, head, {}).resolved()
    if config.validation == 0:
        raise OptionError("a search needs held-out examples to score by: give a validation above 0")
    if folds > 1:
        assign_folds(examples.nodes, folds, config.seed)
    else:
        hold_out(examples, config.validation, config.seed)


def _open_study(
    optuna: Any, storage: str | Path | None, name: str, seed: int, heartbeat: int, ending: ExitStack
) -> Study:
    """The study; at the end its database is closed, which Optuna leaves to the garbage collector."""
    # Epochs are few and the first ones noisy: nothing is pruned in the first, nor before five trials are known.
    pruner = optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=1)
    opened = None if storage is None else _open_storage(optuna, storage, heartbeat)
    if opened is not None:
        ending.callback(opened.engine.dispose)
    opened_study: Study = optuna.create_study(
        storage=opened,
        study_name=name,
        sampler=_sampler(optuna, seed),
        pruner=pruner,
        direction="maximize",
        load_if_exists=True,
    )
    return opened_study


def _open_storage(optuna: Any, storage: str | Path, heartbeat: int) -> Any:
    url = str(storage)
    engine: dict[str, Any] = {}
    if "://" not in url:
        path = Path(storage)
        if path.is_dir():
            raise OptionError(f"{path} is a folder: the storage of a search is a file")
        _check_parent(path)
        plain = url.replace("{", "{{").replace("}", "}}")  # Optuna fills in what stands in braces
        url = f"sqlite:///{plain}"
    if url.startswith("sqlite"):
        engine = {"connect_args": {"timeout": 60}}  # seconds to wait for another worker's write
    for attempt in range(10):
        try:
            return optuna.storages.RDBStorage(
                url,
                engine_kwargs=engine,
                heartbeat_interval=heartbeat,
                heartbeat_stale_trial_callback=optuna.storages.RetryHeartbeatStaleTrialCallback(max_retry=3),
            )
        except Exception as error:
            # Two workers that start at once both make the tables, and one of them is told that they exist.
            if attempt == 9 or not any(sign in str(error) for sign in ("already exists", "UNIQUE", "duplicate")):
                shown = url.rpartition("@")[2]  # without a password
                raise OptionError(f"the storage {shown} cannot be opened: {error}") from error
            time.sleep(0.1 * (attempt + 1))
    raise AssertionError


def _check_parent(path: Path) -> None:
    """Raise where the folder of the storage is not there: a new study in a misspelt place would start from nothing."""
    absent = path.parent
    if absent.is_dir():
        return
    while not absent.parent.is_dir():
        absent = absent.parent
    beside = sorted(other.name for other in absent.parent.iterdir() if other.is_dir())
    near = did_you_mean(absent.name, beside)
    raise OptionError(f"the storage {path} cannot be made, as there is no folder {absent}{near or ': make it first'}")


def _sampler(optuna: Any, seed: int) -> Any:
    """TPE that draws from the seed and the trial's number, whichever worker runs it.

    With one seed per worker, all workers would begin with the same settings, and a restart would begin again.
    """

    class Numbered(optuna.samplers.BaseSampler):  # type: ignore[misc]
        def __init__(self) -> None:
            self.inner = optuna.samplers.TPESampler(seed=seed)

        def before_trial(self, study: Any, trial: Any) -> None:
            own = int(np.random.SeedSequence([seed, trial.number]).generate_state(1)[0])
            self.inner = optuna.samplers.TPESampler(seed=own)
            self.inner.before_trial(study, trial)

        def infer_relative_search_space(self, study: Any, trial: Any) -> Any:
            return self.inner.infer_relative_search_space(study, trial)

        def sample_relative(self, study: Any, trial: Any, search_space: Any) -> Any:
            return self.inner.sample_relative(study, trial, search_space)

        def sample_independent(self, study: Any, trial: Any, name: str, distribution: Any) -> Any:
            return self.inner.sample_independent(study, trial, name, distribution)

        def after_trial(self, study: Any, trial: Any, state: Any, values: Any) -> None:
            self.inner.after_trial(study, trial, state, values)

    return Numbered()


def _identity(
    config: TrainConfig, taxonomy: Taxonomy, examples: Examples, space: SearchSpace, folds: int, seed: int
) -> dict[str, Any]:
    options = {"space": space.model_dump(mode="json"), "folds": folds, "search_seed": seed}
    found: dict[str, Any] = json.loads(json.dumps(run_identity(config, taxonomy, examples, **options)))
    return found


def _claim(study: Study, identity: dict[str, Any]) -> None:
    """Write what this search is about into its study, or check that the study is about the same."""
    if "arbormax" not in study.user_attrs:
        if study.get_trials(deepcopy=False):
            raise OptionError(f"the study {study.study_name!r} holds trials that are not of arbormax: name another")
        study.set_user_attr("arbormax", identity)
    before = study.user_attrs["arbormax"]
    differing = [name for name in {**identity, **before} if before.get(name) != identity.get(name)]
    if differing:
        told = "; ".join(f"{name} was {before.get(name)!r}, now {identity.get(name)!r}" for name in differing)
        raise OptionError(f"the study {study.study_name!r} is of another search, so name another: {told}")


def _count(study: Study) -> dict[str, int]:
    """How many trials ended in each way."""
    states = [trial.state.name.lower() for trial in study.get_trials(deepcopy=False)]
    return {"complete": states.count("complete"), "pruned": states.count("pruned"), "failed": states.count("fail")}


def _is_over(outcomes: dict[str, int], trials: int) -> bool:
    return outcomes["complete"] >= trials or sum(outcomes.values()) >= _TRIES * trials


def _errors(study: Study) -> int:
    """How many trials failed by themselves, not with their worker."""
    return sum("error" in trial.user_attrs for trial in study.get_trials(deepcopy=False))


def _stage(outcomes: dict[str, int]) -> str:
    others = [f"{count} {name}" for name, count in outcomes.items() if count and name != "complete"]
    return f"trials ({', '.join(others)})" if others else "trials"


def _result(study: Study, space: SearchSpace, config: TrainConfig) -> SearchResult:
    optuna = _optuna()
    outcomes, found = _count(study), study.get_trials(deepcopy=False)
    if not outcomes["complete"]:
        errors = sorted({str(trial.user_attrs["error"]) for trial in found if "error" in trial.user_attrs})
        why = f"; they failed with {'; '.join(errors[:3])}" if errors else ": give it more time"
        raise SearchError(f"no trial of the study {study.study_name!r} was completed{why}")
    best = study.best_trial
    settings = space.draw(optuna.trial.FixedTrial(best.params), config)
    assert best.value is not None
    return SearchResult(settings, float(best.value), tuple(_told(found)), **outcomes)


def _told(trials: Sequence[FrozenTrial]) -> Iterator[dict[str, Any]]:
    for trial in trials:
        retried = trial.system_attrs.get("retry_history")
        yield {
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
    """Without Optuna's lines on every trial and its warning that heartbeats may change."""
    level = optuna.logging.get_verbosity()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        try:
            optuna.logging.set_verbosity(optuna.logging.CRITICAL)
            yield
        finally:
            optuna.logging.set_verbosity(level)


def _optuna() -> Any:
    try:
        import optuna
    except ModuleNotFoundError as error:
        raise MissingDependencyError("search", "optuna", "train") from error
    return optuna
