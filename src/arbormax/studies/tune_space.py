"""The settings that a short search tries: those of the solver that matter most, and those that the encoder names.

Of the convex solver this is the strength of the regularisation, of Adam the learning rate and the number of epochs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from arbormax.encoders import ENCODERS
from arbormax.errors import OptionError
from arbormax.model.graph_settings import graph_settings
from arbormax.model.posterior import UNCERTAINTIES
from arbormax.model.settings import TrainConfig
from arbormax.taxonomy import Taxonomy
from arbormax.uncertainty import OFF

if TYPE_CHECKING:
    from optuna.trial import BaseTrial

_SOLVERS = {"convex": ("strength",), "adam": ("learning_rate", "epochs")}
_HELD_OUT = 0.1  # of a training that holds out nothing
_FACTORS = {"strength": 10.0, "learning_rate": 5.0, "epochs": 2.0}  # how far from the default a value may be


@dataclass(frozen=True)
class TuneSpace:
    """What is searched: values of settings, and of options of the encoder."""

    config: TrainConfig  # of each trial, but for what is searched
    defaults: dict[str, Any]
    choices: dict[str, list[Any]]  # of the options of the encoder

    @classmethod
    def of(cls, config: TrainConfig, taxonomy: Taxonomy, items: int, keep: Collection[str] | None = None) -> Self:
        """The space for a training on this many examples.

        Settings that are not None, or those in `keep`, are not searched, and neither are options of the encoder that
        were given.
        """
        if config.names == "only":
            raise OptionError("cannot be combined with names='only', which uses no training data", argument="tune")
        usual = (graph_settings(config) if taxonomy.is_graph else config).resolved(items, taxonomy.num_leaves)
        given = {name for name in _FACTORS if getattr(config, name) is not None} if keep is None else keep
        defaults = {name: getattr(usual, name) for name in _SOLVERS[usual.solver] if name not in given}
        choices = {}
        for name, values in ENCODERS[usual.encoder].tuned_options(usual.options).items():
            if name not in config.encoder_options:
                defaults[name] = getattr(usual.options, name)
                choices[name] = sorted({defaults[name], *values})
        if not defaults:
            raise OptionError("nothing is left to search: every setting that it would try is given", argument="tune")
        # uncertainty, calibration and the second training change neither the measures nor their order
        off: dict[str, Any] = {"refit": False, "calibration": OFF, "validation": config.validation or _HELD_OUT}
        if usual.uncertainty is not None and not UNCERTAINTIES[usual.uncertainty].trains:
            off |= {"uncertainty": None, "uncertainty_options": {}}
        return cls(config.model_copy(update=off), defaults, choices)

    def suggest(self, trial: BaseTrial) -> dict[str, Any]:
        """The values of one trial."""
        found: dict[str, Any] = {}
        for name, default in self.defaults.items():
            if name in self.choices:
                found[name] = trial.suggest_categorical(name, self.choices[name])
                continue
            low, high = default / _FACTORS[name], default * _FACTORS[name]
            if isinstance(default, int):
                found[name] = trial.suggest_int(name, math.ceil(low), math.ceil(high), log=True)
            else:
                found[name] = trial.suggest_float(name, low, high, log=True)
        return found


def change_settings(config: TrainConfig, values: Mapping[str, Any]) -> TrainConfig:
    """A configuration with the values of a trial."""
    own = {name: value for name, value in values.items() if name not in _FACTORS}
    rest = {name: value for name, value in values.items() if name in _FACTORS}
    return config.model_copy(update={**rest, "encoder_options": {**config.encoder_options, **own}})
