"""Classifiers of Hugging Face transformers with a head of arbormax, saved and loaded in the usual way.

The config of such a model has a record: the kind of head, the name of its layer, and the taxonomy. In config.json the
model type is `arbormax`. Importing this module registers that type with the Auto classes of transformers. Without it
they reject the folder, instead of loading a flat head with random weights.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, cast, get_args

import torch
from torch import Tensor, nn

from arbormax import heads
from arbormax.errors import ArbormaxError, InputError, MissingDependencyError, OptionError, check_choice
from arbormax.functional import flat_cross_entropy, flat_node_log_probs, hierarchical_cross_entropy
from arbormax.functional.checks import TargetKind
from arbormax.heads.base import TreeHead, check_taxonomy, refuse_options
from arbormax.taxonomy import Taxonomy

try:
    import transformers
except ImportError as error:
    raise MissingDependencyError("a model of transformers", "transformers", "transformers") from error

__all__ = ["from_pretrained", "replace_head", "trainer_loss"]

TYPE = "arbormax"  # the model type in config.json
VERSION = 1
_MODELS: dict[Any, Any] = {  # config classes to model classes, for each Auto class
    transformers.AutoModelForSequenceClassification: transformers.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    transformers.AutoModelForImageClassification: transformers.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING,
    transformers.AutoModelForAudioClassification: transformers.MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING,
    transformers.AutoModelForVideoClassification: transformers.MODEL_FOR_VIDEO_CLASSIFICATION_MAPPING,
}
_HUB_OPTIONS = ("cache_dir", "force_download", "local_files_only", "proxies", "revision", "subfolder", "token")


def replace_head(
    model: transformers.PreTrainedModel,
    tax: Taxonomy,
    head: str = "hierarchical",
    *,
    name: str | None = None,
    **options: Any,
) -> nn.Module:
    """Replace the head of a classifier of transformers, and write the taxonomy and its labels to the config."""
    config: Any = model.config
    _check_model(model, check_taxonomy(tax))
    heads.replace_head(model, tax, head, name=name or _classifier(model), **options)
    layer = next(path for path, module in model.named_modules() if isinstance(module, TreeHead))
    config.id2label = dict(enumerate(tax.classes))
    config.label2id = {label: number for number, label in enumerate(tax.classes)}
    config.problem_type = "single_label_classification"
    config.arbormax = {
        "version": VERSION,
        "body": config.model_type,
        "head": head,
        "layer": layer,
        "taxonomy": tax.to_dict(),
    }
    if options.get("adapter"):
        config.arbormax["adapter"] = options["adapter"]
    config.__class__ = _config_class(cast(Any, type(config)))
    return model


def from_pretrained(source: str | PathLike[str], **options: Any) -> Any:
    """Load a model with its head, from a folder that `save_pretrained` wrote or by its name on the hub.

    `options`, such as `dtype` or `device_map`, are passed to the model's own `from_pretrained`. Weights are read from
    safetensors only, and no code in the folder is run.
    """
    for option, only in (("trust_remote_code", False), ("use_safetensors", True)):
        if options.pop(option, only) is not only:
            raise OptionError(f"must be {only}: a model of arbormax runs no code or pickle files", argument=option)
    for option in ("config", "num_labels"):
        if option in options:
            raise OptionError("not accepted: the model has its own config and its own labels", argument=option)
    with_info = options.pop("output_loading_info", False)
    source = _check_source(source)
    hub_options = {key: options[key] for key in _HUB_OPTIONS if key in options}
    try:
        config: Any = transformers.AutoConfig.from_pretrained(source, trust_remote_code=False, **hub_options)
    except (OSError, ValueError) as error:
        if isinstance(error, ArbormaxError):
            raise
        raise InputError(f"cannot read a model from {source}: {str(error).strip().splitlines()[0]}") from error
    if not isinstance(config, _TreeConfig):
        raise InputError(
            f"{source} is a {config.model_type} model without a head of arbormax; load it with transformers, then "
            "call am.replace_head(model, tax)"
        )
    kind = _model_class(_architecture(config), cast(Any, type(config)))
    try:
        model, info = kind.from_pretrained(
            source, config=config, use_safetensors=True, output_loading_info=True, **options
        )
    except OSError as error:
        raise InputError(f"cannot read weights from {source}: {str(error).strip().splitlines()[0]}") from error
    if missing := sorted(info["missing_keys"]):
        listed = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        raise InputError(f"the weights in {source} do not match its config.json: {listed} missing")
    head = model.get_submodule(config.arbormax["layer"])
    head.to(head.weight.device)  # checks the fingerprint, so that weights of another taxonomy raise an error here
    return (model, info) if with_info else model


def trainer_loss(
    model: nn.Module,
    target_kind: TargetKind = "node",
    *,
    weight: Tensor | None = None,
    label_smoothing: float = 0.0,
    gamma: float = 0.0,
    node_weights: Tensor | None = None,
    tau: float = 0.0,
    path_weight: float | Sequence[float] = 0.0,
) -> Callable[..., Tensor]:
    """A loss for `Trainer(compute_loss_func=...)` with labels of any depth and the options of `head.loss`.

    Args:
        model: the model after `am.replace_head`.
        target_kind: what the labels are: `"node"` ids or `"class"` ids.
        weight: (C,) class weights; the weight of an inner node is the mean over its leaves.
        label_smoothing: the share of the target that is spread evenly over each sibling group, or over all classes if
            the head has one softmax.
        gamma: exponent of the focal loss, applied at every step of the path.
        node_weights: (N,) weight of the step to each node.
        tau: strength of the logit adjustment by the priors of `head.set_priors`.
        path_weight: share of the loss on the ancestors, if the head has one softmax.
    """
    found = [module for module in model.modules() if isinstance(module, TreeHead)]
    if len(found) != 1:
        raise InputError(f"expected a model with one head of arbormax, found {len(found)}; call am.replace_head first")
    head = found[0]
    check_choice("target_kind", target_kind, get_args(TargetKind))
    siblings: dict[str, Any] = {"gamma": gamma, "node_weights": node_weights, "tau": tau}
    refuse_options(head, path_weight, **siblings)
    log_priors = getattr(head, "log_priors", None)
    if tau and (log_priors is None or not bool(log_priors.any())):
        raise OptionError("needs the class frequencies; call head.set_priors(class_counts) first", argument="tau")
    tax = head.taxonomy

    def loss(outputs: Any, labels: Tensor | None, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        if labels is None:
            raise InputError("the batch has no labels; the dataset needs a column named labels or label")
        leaves_BC: Tensor = outputs["logits"] if isinstance(outputs, Mapping) else outputs[0]
        if labels.numel() == leaves_BC.shape[:-1].numel():
            labels = labels.reshape(leaves_BC.shape[:-1])
        labels = labels.to(leaves_BC.device)
        options: dict[str, Any] = {
            "reduction": "mean" if num_items_in_batch is None else "sum",
            "target_kind": target_kind,
            "weight": weight,
            "label_smoothing": label_smoothing,
        }
        if head.sibling_options:
            # A softmax over siblings is invariant to their parent's probability, so log-probabilities are logits.
            logits_BM = flat_node_log_probs(leaves_BC, tax)[..., 1:]
            priors = log_priors.to(leaves_BC.device) if tau and log_priors is not None else None
            total = hierarchical_cross_entropy(logits_BM, labels, tax, log_priors=priors, **options, **siblings)
        else:
            total = flat_cross_entropy(leaves_BC, labels, tax, path_weight=path_weight, **options)
        return total if num_items_in_batch is None else total / torch.as_tensor(num_items_in_batch, device=total.device)

    return loss


class _TreeConfig:
    """Mixin for the config class of a model: config.json has the model type of arbormax."""

    plain: ClassVar[type]  # the config class without the mixin
    arbormax: dict[str, Any]

    def to_json_string(self, use_diff: bool = True) -> str:
        content = json.loads(super().to_json_string(use_diff))  # type: ignore[misc]
        if hasattr(self, TYPE):
            content["model_type"] = TYPE
        return json.dumps(content, indent=2, sort_keys=True) + "\n"

    def __reduce__(self) -> tuple[Any, ...]:
        return _empty_config, (self.plain,), self.__dict__


class _TreeModel:
    """Mixin for a model class: replaces the last layer as the config says."""

    plain: ClassVar[type]
    config_class: ClassVar[type[_TreeConfig]]

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)  # type: ignore[call-arg]
        record = _check_record(config.arbormax)
        tax = Taxonomy.from_dict(record["taxonomy"])
        options = {"adapter": record["adapter"]} if record.get("adapter") else {}
        heads.replace_head(
            cast(nn.Module, self), tax, record["head"], name=record["layer"], keep_rows=False, init="zeros", **options
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _empty_model, (self.plain, self.config_class.plain), self.__dict__


class _SavedConfig(transformers.PretrainedConfig):  # type: ignore[no-untyped-call]
    """Reads a config.json of type `arbormax` as the config of the original model, with the record."""

    model_type = TYPE

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        record = _check_record(config_dict.get(TYPE))
        known = transformers.CONFIG_MAPPING
        if record["body"] not in known:
            raise InputError(
                f"config.json: unknown model type {record['body']!r} in this version of transformers "
                f"({transformers.__version__})"
            )
        plain = known[record["body"]]
        return _config_class(cast(Any, plain)).from_dict({**config_dict, "model_type": record["body"]}, **kwargs)


@cache
def _config_class(plain: Any) -> Any:
    """The config class with the mixin; it keeps its name, by which transformers finds tokenizers and models."""
    if issubclass(plain, _TreeConfig):
        return plain
    tree_class = type(plain.__name__, (_TreeConfig, plain), {"__module__": plain.__module__, "plain": plain})
    for auto, models in _MODELS.items():
        if plain in models:
            first = models[plain][0] if isinstance(models[plain], tuple) else models[plain]
            auto.register(tree_class, _model_class(first, tree_class), exist_ok=True)
    return tree_class


@cache
def _model_class(plain: Any, config_class: Any) -> Any:
    own = {"__module__": plain.__module__, "plain": plain, "config_class": config_class}
    return type(plain.__name__, (_TreeModel, plain), own)


def _empty_config(plain: type) -> Any:
    """A config without attributes, to be unpickled into."""
    tree_class = _config_class(plain)
    return tree_class.__new__(tree_class)


def _empty_model(plain: type, config: type) -> Any:
    """A model without attributes, to be unpickled into."""
    tree_class = _model_class(plain, _config_class(config))
    return tree_class.__new__(tree_class)


def _check_model(model: transformers.PreTrainedModel, tax: Taxonomy) -> None:
    config: Any = model.config
    name = type(model).__name__
    if hasattr(config, TYPE):
        raise InputError(f"{name} already has a head of arbormax; start from the original model")
    if config.problem_type in ("regression", "multi_label_classification"):
        raise InputError(f"{name} is a model for {config.problem_type}; a taxonomy needs one label per item")
    if tax.num_leaves < 2:
        raise InputError(f"transformers needs at least two classes; the taxonomy has {tax.num_leaves}")
    if config.num_labels != tax.num_leaves:
        raise InputError(
            f"{name} has {config.num_labels} labels, but the taxonomy has {tax.num_leaves} classes; load it with "
            f"from_pretrained(..., num_labels={tax.num_leaves}, ignore_mismatched_sizes=True)"
        )
    place = {label: number for number, label in enumerate(tax.classes)}
    for number, label in config.id2label.items():
        if place.get(label, int(number)) != int(number):
            raise InputError(
                f"the labels of {name} and the classes of the taxonomy are in different orders: {label!r} is label "
                f"{number} and class {place[label]}; build the taxonomy with classes=[...] in the order of "
                "model.config.id2label"
            )


def _classifier(model: transformers.PreTrainedModel) -> str | None:
    """The name of the only linear layer outside the base model with one output per label, if there is exactly one."""
    body = f"{model.base_model_prefix}."
    fitting = [
        path
        for path, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and layer.out_features == model.config.num_labels and not path.startswith(body)
    ]
    return fitting[0] if len(fitting) == 1 else None


def _architecture(config: Any) -> type:
    names = config.architectures or []
    own = [models[config.plain] for models in _MODELS.values() if config.plain in models]  # registered by the user
    for found in (*(getattr(transformers, name, None) for name in names), *own):
        if isinstance(found, type) and found.__name__ in names:
            return found
    raise InputError(
        f"transformers has no model class {', '.join(names) or '(config.json names none)'}; register your own class "
        "first: AutoModelForSequenceClassification.register(config_class, model_class)"
    )


def _check_source(source: str | PathLike[str]) -> str:
    path = Path(source).expanduser()
    if not (path.exists() or path.is_absolute() or str(source).startswith((".", "~"))):
        return str(source)  # a name on the hub
    if not (path / "config.json").is_file():
        raise InputError(f"{path} has no config.json; expected a folder that save_pretrained wrote")
    if (path / "taxonomy.json").is_file() and '"model_type"' not in (path / "config.json").read_text("utf-8"):
        raise InputError(f"{path} is a text classifier; load it with am.TextClassifier.load({str(source)!r})")
    return str(path)


def _check_record(record: Any) -> dict[str, Any]:
    wanted = {"version": int, "body": str, "head": str, "layer": str, "taxonomy": dict}
    if not isinstance(record, dict) or any(not isinstance(record.get(key), kind) for key, kind in wanted.items()):
        raise InputError(f"config.json: {TYPE!r} must contain {', '.join(wanted)}, as am.replace_head writes them")
    if record["version"] > VERSION:
        raise InputError(
            f"config.json was written by a newer arbormax (version {record['version']} of the record; this one reads "
            f"{VERSION}); upgrade arbormax"
        )
    return record


transformers.AutoConfig.register(TYPE, _SavedConfig, exist_ok=True)
