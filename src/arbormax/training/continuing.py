"""Continue the training of a model with new examples, of which the old ones are not needed.

If the features are fixed, or the encoder is frozen, the rows of the head are those with the highest posterior
probability: see `arbormax.heads.update`. Otherwise the whole network is trained from its old weights.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from arbormax.data.examples import Examples
from arbormax.data.folds import hold_out
from arbormax.encoders import ENCODERS
from arbormax.errors import OptionError
from arbormax.functional import flat_cross_entropy
from arbormax.heads.base import TreeHead
from arbormax.heads.calibrated import CalibratedHead
from arbormax.heads.update import RowPrior, update_rows
from arbormax.model.network import Model, evaluating
from arbormax.model.run import Run
from arbormax.model.settings import ADAM_SETTINGS, TrainConfig, validate
from arbormax.training.callbacks import CURVE, CURVE_COLUMNS, EPOCHS, SECONDS, best_epoch
from arbormax.training.class_weights import class_weights
from arbormax.training.fit import check_examples
from arbormax.training.hardware import ONE_DEVICE, Hardware
from arbormax.training.loop import Phase, TrainingLoop
from arbormax.training.optim import refit_epochs
from arbormax.training.state import open_run, run_identity

_FIXED = ("encoder", "encoder_options", "head", "adapter", "sparse_head", "uncertainty")  # what stays as it was
_SOLVER = (
    "columns",
    "solver",
    "names",
    "convex_loss",
    "strength",
    "prune",
    "parent_prior",
)  # likewise, whatever is given
_STRENGTH = 20.0  # of rows without old examples, as that of the convex solver for dense features
_UNKNOWN_COUNT = 20  # old examples of each row of a model whose folder does not say how many there were
_ITEMS = 1024  # that are evaluated together
_FIRST = Phase("last.ckpt", "logs", "selection")
_SECOND = Phase("refit.ckpt", "logs/refit", "refit")
_ONLY = Phase("last.ckpt", "logs", None)


@dataclass(frozen=True)
class Change:
    """The accuracy on some examples before and after the training."""

    items: int
    before: float
    after: float


@dataclass(frozen=True)
class Continued:
    """A training that was continued: the run, and the accuracy on held-out new examples, if there are some."""

    run: Run
    new: Change | None


def continue_config(model: Model, config: TrainConfig) -> TrainConfig:
    """The settings of a continued training: those of `config` that may change, and those of the model."""
    own = model.config
    for name in _FIXED:
        if getattr(config, name) != getattr(own, name) and name != "encoder_options":
            message = f"a trained model keeps its {name}, {getattr(own, name)!r}, found {getattr(config, name)!r}"
            raise OptionError(message, argument=name)
    kept = {name: getattr(own, name) for name in (*_FIXED, *_SOLVER)}
    return config.model_copy(update=kept)


def change_config(model: Model, changes: Mapping[str, Any]) -> TrainConfig:
    """The settings of a model with changes, validated."""
    found = continue_config(model, validate(TrainConfig, {**model.config.model_dump(), **changes}))
    if _updates_rows(model, found):
        for name in (*ADAM_SETTINGS, "strength", "prune", "parent_prior", "solver"):
            if name in changes:
                raise OptionError("not used where only the rows of the head are trained", argument=name)
    return found


def continue_training(
    model: Model,
    config: TrainConfig,
    train: Examples,
    valid: Examples | None = None,
    *,
    folder: Path | str | None = None,
    resume: bool = False,
    hardware: Hardware = ONE_DEVICE,
    progress: bool = False,
    every_steps: int | None = None,
) -> Continued:
    """Continue the training of a model, which is not changed, with new examples; without `valid`, some are held out.

    The settings are those of `continue_config`. The taxonomy, the vocabulary and the calibration stay the same. The
    held-out examples select the number of epochs and show what the new examples change; the final weights are trained
    on all new examples, unless `config.refit` is false.
    """
    _check(model, config, train, valid)
    start = deepcopy(model)
    start.config, start.coverage = config, None
    calibrated = start.head if isinstance(start.head, CalibratedHead) else None
    if calibrated is not None:
        start.head = calibrated.base
    part, held_out = (train, valid) if valid is not None else _hold_out(train, config)
    if _updates_rows(start, config):
        found = _update(start, config, train, part, held_out, is_refit=valid is None and config.refit)
    else:
        path = None if folder is None else Path(folder)
        settings = _adam(config, len(train))
        loop = TrainingLoop(settings, start.taxonomy, hardware, path, resume, progress, (), every_steps)
        if path is not None:
            identity = run_identity(settings, start.taxonomy, train, start=_digest(start))
            open_run(path / "checkpoints", identity, resume)
        found = _train(loop, start, train, part, held_out, is_refit=valid is None and config.refit)
    new = found.run.model
    if calibrated is not None:
        new.head = CalibratedHead(new.head, calibrated.scale, calibrated.shift)
    counts = old_counts(model)
    new.row_counts = counts + new.count_rows((train if valid is None and config.refit else part).nodes)
    return found


def _check(model: Model, config: TrainConfig, train: Examples, valid: Examples | None) -> None:
    check_examples(train, model.taxonomy, "train")
    if valid is not None:
        check_examples(valid, model.taxonomy, "validate")
    if model.posterior is not None or config.uncertainty is not None:
        raise OptionError("a model with uncertainty cannot be continued; train a new one", argument="uncertainty")


def _hold_out(train: Examples, config: TrainConfig) -> tuple[Examples, Examples | None]:
    """The new examples in two parts; few examples, one of each label, are not divided."""
    is_divisible = len(np.unique(train.nodes)) < len(train)
    return hold_out(train, config.validation, config.seed) if is_divisible else (train, None)


def _updates_rows(model: Model, config: TrainConfig) -> bool:
    """Whether only the rows of the head are trained."""
    is_fixed = config.freeze_encoder or ENCODERS[config.encoder].has_fixed_features(model.encoder.options)
    return is_fixed and not config.adapter and set(config.loss_options) <= {"label_smoothing"}


def old_counts(model: Model) -> np.ndarray:
    """(R,) how many examples each row of a model has been trained on."""
    known = model.row_counts
    return np.full(len(model.head.row_nodes()), _UNKNOWN_COUNT, np.int64) if known is None else known


def _update(
    start: Model, config: TrainConfig, train: Examples, part: Examples, held_out: Examples | None, is_refit: bool
) -> Continued:
    began = time.perf_counter()
    new = None
    if held_out is not None:
        fitted = deepcopy(start)
        _update_head(fitted, config, part)
        new = Change(len(held_out), accuracy(start, held_out), accuracy(fitted, held_out))
        if not is_refit:
            start = fitted
    if held_out is None or is_refit:
        _update_head(start, config, train if is_refit else part)
    run = Run(
        start.eval(),
        epochs=1,
        best_epoch=1,
        valid_macro_f1=None,
        seconds=time.perf_counter() - began,
        refit_epochs=1 if is_refit and held_out is not None else None,
    )
    return Continued(run, new)


def _update_head(model: Model, config: TrainConfig, examples: Examples) -> None:
    """The rows of the head with the highest posterior probability."""
    features = torch.cat([part.clone() for part in model.features(examples.inputs)])
    if features.layout != torch.strided:
        features = features.coalesce()
    target = torch.from_numpy(examples.nodes).to(model.device)
    options: dict[str, Any] = {"label_smoothing": config.label_smoothing, "reduction": "none", "target_kind": "node"}
    if (weight := class_weights(config, examples.nodes, model.taxonomy)) is not None:
        options["weight"] = weight.to(model.device)

    def loss(logp: Tensor, place: slice) -> Tensor:
        return flat_cross_entropy(logp, target[place], model.taxonomy, **options).sum()

    strength = config.strength if config.convex_loss == "log" and isinstance(config.strength, float) else _STRENGTH
    moments = mean_squares(features, model.encoder.feature_shares())
    counts = torch.from_numpy(old_counts(model)).to(model.device)
    update_rows(model.head, features, loss, RowPrior(float(moments.sum()) / strength, True, counts, moments))


def mean_squares(features: Tensor, shares: Tensor | None) -> Tensor:
    """(D,) the mean square of each feature: among these examples, or as often as it occurs in the old ones."""
    is_dense = features.layout == torch.strided
    squares = (features * features).sum(0)
    squares = squares if is_dense else squares.to_dense()
    if shares is None or is_dense:
        return squares / len(features)
    counts = torch.bincount(features.indices()[1], minlength=features.shape[1])
    return shares.to(squares) * squares / counts.clamp(min=1)


def _adam(config: TrainConfig, items: int) -> TrainConfig:
    """The settings of a training with Adam, also of a model that was trained by the convex solver."""
    solver = {"solver": "adam", "convex_loss": None, "strength": None, "prune": None, "parent_prior": 0.0}
    return config.model_copy(update=solver).resolved(items)


def _train(
    loop: TrainingLoop, start: Model, train: Examples, part: Examples, held_out: Examples | None, is_refit: bool
) -> Continued:
    """Train the whole network from its weights."""
    config, is_refit = loop.config, is_refit and held_out is not None
    phase = _FIRST if is_refit else _ONLY
    model, metrics, _ = loop.run(phase, part, held_out, config.epochs, start=start, keep_encoder=True)
    epochs, rows, seconds = int(metrics[EPOCHS]), metrics[CURVE].tolist(), float(metrics[SECONDS])
    best = best_epoch(rows, config.monitor) if rows else epochs
    new, again = None, None
    if held_out is not None:
        new = Change(len(held_out), accuracy(start, held_out), accuracy(model, held_out))
    if is_refit:
        again = refit_epochs(best, config)
        model, metrics, _ = loop.run(_SECOND, train, None, again, start=start, keep_encoder=True)
        seconds += float(metrics[SECONDS])
    curve = tuple(dict(zip(CURVE_COLUMNS, row, strict=True)) for row in rows)
    score = curve[best - 1]["macro_f1"] if curve else None
    run = Run(model, epochs, best, valid_macro_f1=score, seconds=seconds, curve=curve, refit_epochs=again)
    return Continued(run, new)


def accuracy(model: Model, examples: Examples) -> float:
    """The share of the examples whose most probable class is the label."""
    head: TreeHead = model.head
    found = []
    for features in model.features(examples.inputs, _ITEMS):
        with evaluating(head):
            found.append(head.predict(features).cpu())
    return float((model.taxonomy.leaves[torch.cat(found).numpy()] == examples.nodes).mean())


def _digest(model: Model) -> str:
    """A fingerprint of the weights of a model."""
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
