"""The base class of both classifiers: training, prediction, evaluation and saving, for any kind of input.

B batch, D features, N nodes, C classes, n items, k alternatives.
"""

from __future__ import annotations

import json
import os
import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from arbormax._files import read_json, write_file
from arbormax.data.examples import Examples
from arbormax.data.labels import guess_separator, number_unseen, unknown_classes
from arbormax.errors import LabelError, OptionError
from arbormax.model import Model, ModelFolderError, TrainConfig, load_model, save_model
from arbormax.model.graph_settings import graph_settings
from arbormax.model.predict import Decoder, Decoding, bounded_batch
from arbormax.model.run import Run
from arbormax.model.settings import PRESETS
from arbormax.sklearn.certainty import CertaintyMixin
from arbormax.sklearn.inputs import WHOLE, LabelFormat, Labels, as_taxonomy, to_python
from arbormax.sklearn.predictions import PredictionMixin
from arbormax.taxonomy import Taxonomy

if TYPE_CHECKING:
    from arbormax.studies.record import Record
    from arbormax.studies.tune import Tuned
    from arbormax.training.continuing import Change

RECORD = "classifier.json"


@dataclass(eq=False, repr=False, kw_only=True)
class TreeClassifier(PredictionMixin, CertaintyMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A classifier over a taxonomy with scikit-learn's conventions; subclasses define the kind of input.

    Most parameters are fields of `arbormax.model.TrainConfig`; None selects a suitable value. With `tune`, a duration
    such as "5min", `fit` first searches for better values of a few of them for so long. Fitting sets `model_`,
    `taxonomy_`, `classes_`, `run_`, `n_iter_` and, with `tune`, `tuned_`.
    """

    solver: str = "auto"
    strength: float | str | None = None
    convex_loss: str | None = None
    prune: float | None = None
    parent_prior: float = 0.0
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    head_learning_rate: float | None = None
    schedule: str | None = None
    warmup: float | None = None
    adam_epsilon: float | None = None
    weight_decay: float = 0.0
    clip: float | None = 5.0
    validation: float = 0.1
    monitor: str = "both"
    patience: int | None = 3
    refit: bool = True
    calibration: str | None = None
    uncertainty: str | None = None
    uncertainty_options: Mapping[str, Any] | None = None
    precision: str = "32-true"
    class_weight: str | Mapping[Any, float] | None = None
    label_smoothing: float = 0.0
    gamma: float = 0.0
    logit_adjustment: float = 0.0
    hxe_alpha: float | None = None
    path_weight: float | Sequence[float] = 0.0
    freeze_encoder: bool = False
    adapter: int = 0
    sparse_head: bool = False
    seed: int = 0
    accelerator: str = "auto"
    devices: int | str = 1
    verbose: bool = False
    tune: str | float | None = None
    warm_start: bool = False
    tau: float | None = None  # the former name of logit_adjustment

    if TYPE_CHECKING:  # attributes that are no parameters
        model_: Model
        taxonomy_: Taxonomy
        classes_: np.ndarray
        run_: Run | None
        n_iter_: int
        _format: LabelFormat
        _evaluated: Record | None  # the last evaluation
        tuned_: Tuned | None  # the search for settings, of the last training
        continued_: Change | None  # accuracy on held-out new examples, of the last `partial_fit`
    _takes_texts: ClassVar[bool]  # whether the inputs are texts, or the rows of a feature matrix
    _evaluated = None
    calibration_ = None
    tuned_ = None
    continued_ = None

    @abstractmethod
    def _check_inputs(self, X: Any) -> Any:
        """The inputs of a prediction, validated."""

    @abstractmethod
    def _check_pairs(self, X: Any, y: Any, reset: bool) -> tuple[Any, Any]:
        """Inputs and as many labels, validated; `reset` for training."""

    @abstractmethod
    def _read_labels(self, y: Any, taxonomy: Taxonomy | None) -> Labels:
        """The taxonomy, the nodes and the format of training labels."""

    @abstractmethod
    def _find_nodes(self, y: Any, labels: Labels, missing: int | None = None, argument: str = "y") -> np.ndarray:
        """(n,) the nodes of labels; unknown labels are an error, or get the value of `missing`."""

    @abstractmethod
    def _label_values(self, y: Any) -> Sequence[Any]:
        """Labels that have been validated, one for each item: strings, other values, or tuples of names."""

    @abstractmethod
    def _config(self, settings: dict[str, Any], inputs: Any, classes: int) -> TrainConfig:
        """The settings of a training, from the parameters that `TrainConfig` has, too."""

    def _fit(self, X: Any, y: Any, unsupported: Mapping[str, Any], **options: Any) -> Self:
        """Train on inputs and labels; `options` are further arguments of `arbormax.training.fit`."""
        if unsupported:
            raise OptionError(
                f"{type(self).__name__}.fit accepts X and y, found {', '.join(unsupported)}",
                fix={"class_weight": "balanced"} if "sample_weight" in unsupported else None,
            )
        if self.warm_start and hasattr(self, "model_"):
            return self._continue(X, y, **options)
        inputs, raw = self._check_pairs(X, y, reset=True)
        given = self.taxonomy
        labels = self._read_labels(raw, None if given is None else as_taxonomy(given))
        return self._train(inputs, labels, **options)

    def _train(self, inputs: Any, labels: Labels, **options: Any) -> Self:
        config = self._settings(inputs, labels)
        from arbormax.training import fit  # imports Lightning

        examples = Examples(inputs, labels.nodes)
        tuned = None if self.tune is None else self._tune(config, labels.taxonomy, examples, options)
        config = config if tuned is None else tuned.config
        run = fit(config, labels.taxonomy, examples, **self._machine(), **options)
        self._set_model(run.model, labels.format, labels.classes, run)
        self.tuned_ = tuned
        return self

    def _tune(self, config: TrainConfig, taxonomy: Taxonomy, examples: Examples, options: Mapping[str, Any]) -> Tuned:
        """Search for better settings for the time of `tune`; parameters that were given stay."""
        from arbormax.studies.tune import read_duration, tune

        params: dict[str, Any] = self.get_params(deep=False)
        keep = {name for name, value in params.items() if value is not None}
        keep |= set() if params.get("preset") is None else set(PRESETS[params["preset"]])
        places = {name: options[name] for name in ("folder", "resume") if name in options}
        budget = read_duration(to_python(self.tune), "tune")
        return tune(config, taxonomy, examples, budget=budget, keep=keep, **self._machine(), **places)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Continue the training with new inputs and labels; the first call trains as `fit`.

        The taxonomy, the vocabulary and the calibration stay the same: a label that the taxonomy does not have is an
        error, and `am.edit` adds it. If the features are fixed, or `freeze_encoder` is set, the new rows of the head
        are those with the highest posterior probability, with the old ones as the prior; otherwise the whole network is
        trained from its weights. `continued_` has the accuracy on held-out new examples before and after.

        `classes` are the labels of all classes, for a first call without a taxonomy.
        """
        if hasattr(self, "model_"):
            return self._continue(X, y)
        given = self.taxonomy
        inputs, raw = self._check_pairs(X, y, reset=True)
        labels = self._read_labels(raw, None if given is None else as_taxonomy(given))
        if classes is not None and given is None:
            every = self._read_labels(classes, None)
            labels = every._replace(nodes=self._find_nodes(raw, every))
        return self._train(inputs, labels)

    def _continue(self, X: Any, y: Any, **options: Any) -> Self:
        """Train the fitted model further."""
        inputs, raw = self._check_pairs(X, y, reset=False)
        nodes = self._find_known_nodes(raw)
        labels = self._fitted_labels._replace(nodes=nodes)
        from arbormax.training.continuing import continue_config, continue_training

        config = continue_config(self.model_, self._settings(inputs, labels))
        found = continue_training(self.model_, config, Examples(inputs, nodes), **self._machine(), **options)
        self._set_model(found.run.model, self._format, self.classes_, found.run)
        self.continued_ = found.new
        return self

    def _settings(self, inputs: Any, labels: Labels) -> TrainConfig:
        """The settings of a training from the parameters."""
        params: dict[str, Any] = self.get_params(deep=False)
        settings = {name: to_python(params[name]) for name in TrainConfig.model_fields if name in params}
        if isinstance(params["class_weight"], Mapping):
            settings["class_weight"] = self._class_weights(params["class_weight"], labels)
        settings["uncertainty_options"] = settings["uncertainty_options"] or {}
        if params["tau"] is not None:
            warnings.warn("the parameter tau is now named logit_adjustment", DeprecationWarning, stacklevel=5)
            settings["logit_adjustment"] = to_python(params["tau"])
        if labels.format.separator not in (None, WHOLE):
            settings["separator"] = labels.format.separator
        config = self._config(settings, inputs, labels.taxonomy.num_leaves)
        if labels.taxonomy.is_graph:
            return graph_settings(config, any_head=params["head"] is None)
        return config

    def _machine(self) -> dict[str, Any]:
        """Where a training runs, and whether it shows its progress."""
        from arbormax.training import Hardware

        return {"hardware": Hardware(self.accelerator, to_python(self.devices)), "progress": bool(self.verbose)}

    def _class_weights(self, weights: Mapping[Any, float], labels: Labels) -> dict[str, float]:
        """The weights by the labels of `Taxonomy.classes`."""
        tax, keys = labels.taxonomy, list(weights)
        classes = tax.class_of[self._find_nodes(keys, labels, argument="class_weight")]
        if (inner := np.flatnonzero(classes < 0)).size:
            found = ", ".join(repr(keys[i]) for i in inner[:8].tolist())
            raise OptionError(
                f"expected classes, which are leaves, found an inner node: {found}", argument="class_weight"
            )
        values = map(to_python, weights.values())
        return {tax.classes[c]: weight for c, weight in zip(classes.tolist(), values, strict=True)}

    def _set_model(self, model: Model, label_format: LabelFormat, classes: np.ndarray, run: Run | None) -> None:
        self.model_, self.taxonomy_, self.classes_ = model, model.taxonomy, classes
        self._format, self.run_ = label_format, run
        self._evaluated = None
        self.calibration_ = None
        self.tuned_ = None
        self.continued_ = None
        if run is not None:
            self.n_iter_ = run.epochs

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """The accuracy: the share of items whose most probable class is the node of their label.

        A label that the taxonomy does not have counts as a mistake; a warning lists these labels.
        """
        examples = self._test_examples(X, y)
        right = examples.nodes == self._nodes(examples.inputs, Decoding())
        return float(np.average(right, weights=None if sample_weight is None else np.asarray(sample_weight)))

    def evaluate(
        self,
        X: Any,
        y: Any,
        decoder: str | Decoder = "leaf",
        *,
        within: Any = None,
        without: Any = None,
        **options: Any,
    ) -> dict[str, Any]:
        """All measures by name: of the predictions, of the likelihood and of the calibration.

        The predictions are the most probable classes, unless `decoder` and `options` choose others; these arguments,
        `within` and `without` are those of `predict`. `save` writes the measures of the last evaluation, so that
        `arbormax report` can show them.

        Labels that the taxonomy does not have count as mistakes. A warning lists them, and the result has the number of
        items of each under `unseen_labels`.
        """
        examples = self._test_examples(X, y)
        from arbormax.studies.record import evaluation

        self._evaluated, found = evaluation(
            self.model_,
            examples,
            batch_size=bounded_batch(self.taxonomy_),
            decoding=Decoding(decoder, options, within=within, without=without),
        )
        unseen = self._evaluated.unseen_labels
        return {**found.metrics, **({} if unseen is None else {"unseen_labels": unseen})}

    def _test_examples(self, X: Any, y: Any) -> Examples:
        """Test inputs with their labels; labels that the taxonomy does not have are listed in a warning."""
        check_is_fitted(self)
        inputs, raw = self._check_pairs(X, y, reset=False)
        nodes = self._find_nodes(raw, self._fitted_labels, missing=-1)
        tax, separator = self.taxonomy_, self._format.separator
        if (nodes < 0).any():
            names = [label if isinstance(label, (str, tuple)) else str(label) for label in self._label_values(raw)]
            examples = Examples(inputs, *number_unseen(nodes, names, tax, separator or guess_separator(names)))
            warnings.warn(str(examples.describe_unseen(tax, "items")), stacklevel=3)
            return examples
        return Examples(inputs, nodes)

    def _find_known_nodes(self, raw: Any) -> np.ndarray:
        """The nodes of labels, which the fitted classifier has to know."""
        try:
            return self._find_nodes(raw, self._fitted_labels)
        except LabelError as error:
            raise unknown_classes(error, "y") from None

    @property
    def _fitted_labels(self) -> Labels:
        return Labels(self.taxonomy_, np.zeros(0, np.int64), self._format, self.classes_)

    def save(
        self, folder: str | os.PathLike[str], metrics: Mapping[str, Any] | None = None, *, texts: bool = True
    ) -> Path:
        """Write the fitted classifier to a folder of safetensors, JSON and text files, without pickle.

        A model in the folder is replaced; a folder that contains other files and no model is an error.

        The folder's metrics.json and model card have the measures of the last `evaluate`, and `metrics` of your own,
        for example `{"valid": {"accuracy": 0.9}}`. Without `texts` no example texts are written to metrics.json.
        """
        check_is_fitted(self)
        from arbormax.studies.record import of_classifier

        content = of_classifier(self.run_, self._evaluated, metrics, texts=texts)
        content.tuning = None if self.tuned_ is None else self.tuned_.to_dict()
        if self.calibration_ is not None:
            content.calibration = self.calibration_.to_dict()
        path = save_model(self.model_, Path(folder), content.to_dict())
        names = getattr(self, "feature_names_in_", None)
        record = {
            "taxonomy": self.taxonomy_.fingerprint,
            "labels": asdict(self._format),
            "classes": {"values": self.classes_.tolist(), "dtype": self.classes_.dtype.str},
            "feature_names": None if names is None else names.tolist(),
            "run": None if self.run_ is None else self.run_.to_record(),
            **self._further_record(),
        }
        write_file(path / RECORD, json.dumps(record, indent=2) + "\n")
        return path

    @classmethod
    def load(cls, folder: str | os.PathLike[str], device: torch.device | str = "cpu") -> Self:
        """The classifier in a folder; it predicts as before, and `fit` trains with the same settings.

        Its parameters are the settings of the training, including the defaults of the preset and the encoder.
        """
        model = load_model(Path(folder), device)
        if model.encoder.takes_texts != cls._takes_texts:
            kind, loader = ("texts", "Text") if model.encoder.takes_texts else ("feature matrices", "Hierarchical")
            raise ModelFolderError(f"{folder} contains a classifier of {kind}: load it with {loader}Classifier.load")
        path = Path(folder) / RECORD
        try:
            record = _read_record(path, model.taxonomy)
            label_format, classes = cls._read_format(record, model.taxonomy)
            run = Run.from_record(record["run"], model) if record.get("run") else None
            settings = {**model.encoder.options.model_dump(), **model.config.model_dump()}
            settings["taxonomy"] = model.taxonomy if label_format.is_given else None
            clf = cls(**{name: settings[name] for name in cls._get_param_names() if name in settings})
            clf._read_further(record)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise ModelFolderError(f"{path} is not the record of a classifier: {error}") from error
        clf._set_model(model, label_format, classes, run)
        if (names := record.get("feature_names")) is not None:
            clf.feature_names_in_ = np.array(names, dtype=object)
        return clf

    def _further_record(self) -> dict[str, Any]:
        """What a subclass adds to classifier.json."""
        return {}

    def _read_further(self, record: Mapping[str, Any]) -> None:
        """Read what `_further_record` has written."""

    @classmethod
    def _read_format(cls, record: Mapping[str, Any], tax: Taxonomy) -> tuple[LabelFormat, np.ndarray]:
        """The format of the labels and the classes, from the content of classifier.json."""
        classes = np.array(record["classes"]["values"], dtype=record["classes"]["dtype"])
        if len(classes) != tax.num_leaves:
            raise ValueError(f"expected {tax.num_leaves} classes, found {len(classes)}")
        return LabelFormat(**record["labels"]), classes

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")


def feature_names(folder: str | os.PathLike[str], tax: Taxonomy) -> list[str] | None:
    """The names of the columns that a classifier was trained on, if they had names; `tax` is the model's taxonomy."""
    record = _read_record(Path(folder) / RECORD, tax)
    if "categories" in record:
        raise OptionError(f"{folder} has columns of categories; use it in Python with HierarchicalClassifier.load")
    names = record.get("feature_names")
    return names if isinstance(names, list) else None


def _read_record(path: Path, tax: Taxonomy) -> dict[str, Any]:
    """The content of classifier.json; empty if it was written for a former model in the folder."""
    record = read_json(path, ModelFolderError) if path.is_file() else {}
    return record if record.get("taxonomy") == tax.fingerprint else {}
