"""The settings of a training on a graph."""

from __future__ import annotations

from arbormax.errors import OptionError
from arbormax.heads import HEADS
from arbormax.model.settings import TrainConfig

_OFF = "none"  # no calibration
_ENCODER, _HEAD = "bag", "hierarchical"
_TREE_SETTINGS = ("gamma", "logit_adjustment", "hxe_alpha", "path_weight", "adapter", "sparse_head", "uncertainty")


def graph_settings(config: TrainConfig, *, any_head: bool = False) -> TrainConfig:
    """The settings for a graph: an encoder and a head that Adam trains, without calibration.

    The default encoder is `bag`: Adam is slow on the many features of `tfidf`. Settings that
    need a tree are reported in one error. `any_head` says that the head was not chosen by the user.

    >>> settings = graph_settings(TrainConfig.make())
    >>> settings.encoder, settings.head, settings.solver
    ('bag', 'hierarchical', 'adam')
    """
    reason = "needs a tree, and the taxonomy is a graph, whose nodes may have several parents"
    names = [name for name in _TREE_SETTINGS if getattr(config, name) != TrainConfig.model_fields[name].default]
    if config.calibration not in (None, _OFF):
        names.append("calibration")
    head = config.head if "head" in config.model_fields_set and not any_head else _HEAD
    if config.label_smoothing and head == _HEAD:
        names.append("label_smoothing")
    problems = [OptionError(reason, argument=name) for name in (*names, *config.convex_settings)]
    if not HEADS[head].supports_graph:
        able = tuple(name for name in HEADS if HEADS[name].supports_graph)
        problems.append(OptionError(reason, argument="head", fix={"head": able}))
    if config.solver == "convex":
        problems.append(OptionError(reason, argument="solver", fix={"solver": "adam"}))
    if problems:
        raise OptionError(parts=problems)
    encoder = config.encoder
    if "encoder" not in config.model_fields_set and not config.encoder_options:
        encoder = _ENCODER
    return config.model_copy(update={"encoder": encoder, "head": head, "solver": "adam", "calibration": _OFF})
