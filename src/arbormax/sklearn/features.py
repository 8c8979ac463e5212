"""A classifier of feature matrices with scikit-learn's conventions and hiclass's labels.

B batch, D features, N nodes, C classes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from arbormax._files import write_file
from arbormax.errors import MissingDependencyError, OptionError
from arbormax.taxonomy import Taxonomy

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data
except ImportError as error:
    raise MissingDependencyError("HierarchicalClassifier", "scikit-learn>=1.6", "sklearn") from error

from arbormax.data.examples import Examples, Matrix
from arbormax.model import Model, ModelFolderError, TrainConfig, load_model, save_model
from arbormax.model.network import evaluating
from arbormax.sklearn.base import RECORD, Answers, recorded_run, run_record
from arbormax.sklearn.inputs import plain, taxonomy_of
from arbormax.sklearn.labels import Form, read_labels, rows_of
from arbormax.studies.evaluate import evaluate_log_probs
from arbormax.training import Hardware, Run
from arbormax.training import fit as train

__all__ = ["HierarchicalClassifier"]

# What does well, by whether there are hidden layers and whether the matrix is sparse.
_USUAL: Mapping[tuple[bool, bool], Mapping[str, Any]] = {
    (False, False): {"learning_rate": 0.05, "epochs": 20, "batch_size": 64},
    (False, True): {"learning_rate": 0.5, "epochs": 8, "batch_size": 64, "adam_epsilon": 1e-3},
    (True, False): {"learning_rate": 1e-2, "epochs": 20, "batch_size": 64},
    (True, True): {"learning_rate": 1e-2, "epochs": 8, "batch_size": 256},
}
_STEPS = 20  # an epoch has at least so many, where the data allow it and the batch size was left open
_MANY = 100  # and with more, a batch grows: a step of a linear classifier costs as much as it has weights


class HierarchicalClassifier(Answers, ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # no types there
    """Rows of numbers in, classes of a taxonomy out; follows scikit-learn's conventions.

    The matrix is dense or sparse; a sparse one stays so. `hidden` are the widths of layers before the head, `()` makes
    a linear classifier. `taxonomy` is a `Taxonomy`, the path of its file, nested mappings, or None: the tree is then
    the union of the paths that the labels spell, flat where they are plain. Labels are rows of names from the top down,
    as hiclass takes them ("" or None fill them up), strings, or without a taxonomy any values that scikit-learn takes.
    All other settings are those of `TextClassifier`; None stands for what does well with such a matrix.

    Fitting sets `taxonomy_`, `classes_` (the columns of `predict_proba`, written as the labels were), `model_`,
    `n_iter_` (epochs), `run_`, `n_features_in_` and, given column names, `feature_names_in_`.

    >>> X = [[0.0, 1.0], [1.0, 1.0], [0.0, 0.0], [0.1, 0.2]] * 5
    >>> y = [["animal", "cat"], ["animal", "dog"], ["plant", ""], ["plant", ""]] * 5
    >>> HierarchicalClassifier().fit(X, y).predict([[0.0, 1.0]]).tolist()
    [['animal', 'cat']]
    """

    def __init__(
        self,
        taxonomy: Taxonomy | str | os.PathLike[str] | Mapping[str, Any] | None = None,
        head: str = "hierarchical",
        hidden: Sequence[int] = (),
        dropout: float = 0.0,
        scale: bool = True,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        head_learning_rate: float | None = None,
        schedule: str | None = None,
        warmup: float | None = None,
        adam_epsilon: float | None = None,
        weight_decay: float = 0.0,
        clip: float | None = 5.0,
        validation: float = 0.0,
        patience: int | None = 3,
        precision: str = "32-true",
        class_weight: str | Mapping[Any, float] | None = None,
        label_smoothing: float = 0.0,
        gamma: float = 0.0,
        tau: float = 0.0,
        hxe_alpha: float | None = None,
        sparse_head: bool = False,
        seed: int = 0,
        accelerator: str = "auto",
        devices: int | str = 1,
        verbose: bool = False,
    ) -> None:
        self.taxonomy = taxonomy
        self.head = head
        self.hidden = hidden
        self.dropout = dropout
        self.scale = scale
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.head_learning_rate = head_learning_rate
        self.schedule = schedule
        self.warmup = warmup
        self.adam_epsilon = adam_epsilon
        self.weight_decay = weight_decay
        self.clip = clip
        self.validation = validation
        self.patience = patience
        self.precision = precision
        self.class_weight = class_weight
        self.label_smoothing = label_smoothing
        self.gamma = gamma
        self.tau = tau
        self.hxe_alpha = hxe_alpha
        self.sparse_head = sparse_head
        self.seed = seed
        self.accelerator = accelerator
        self.devices = devices
        self.verbose = verbose

    # ---------------------------------------------------------------- training

    def fit(self, X: Any, y: Any = None, **unsupported: Any) -> Self:
        """This classifier, trained anew on the rows of a matrix and their labels."""
        if unsupported:
            how = "; to weigh classes give class_weight=" if "sample_weight" in unsupported else ""
            raise OptionError(f"HierarchicalClassifier.fit takes X and y, not {', '.join(unsupported)}{how}")
        rows, labels = self._pairs(X, y, reset=True)
        given = None if self.taxonomy is None else taxonomy_of(self.taxonomy)
        tax, nodes, form, classes = read_labels(labels, given)
        run = train(
            self._config(tax, form, classes, rows),
            tax,
            Examples(rows, nodes),
            hardware=Hardware(self.accelerator, plain(self.devices)),
            progress=bool(self.verbose),
        )
        self._become(run.model, form, classes, run)
        return self

    def _pairs(self, X: Any, y: Any, reset: bool) -> tuple[Matrix, Any]:
        """The matrix and as many labels, checked as scikit-learn does."""
        if y is None or rows_of(y) is None:
            rows, labels = validate_data(self, X, y, reset=reset, accept_sparse="csr", dtype=np.float32)
            check_classification_targets(labels)
        else:
            rows, labels = self._rows(X, reset), y
            check_consistent_length(rows, y)
        return _tidy(rows), labels

    def _rows(self, X: Any, reset: bool = False) -> Matrix:
        return _tidy(validate_data(self, X, reset=reset, accept_sparse="csr", dtype=np.float32))

    def _config(self, tax: Taxonomy, form: Form, classes: np.ndarray, rows: Matrix) -> TrainConfig:
        params = self.get_params(deep=False)
        given = {name: plain(params[name]) for name in TrainConfig.model_fields if name in params}
        hidden = plain(list(self.hidden)) if isinstance(self.hidden, (list, tuple, np.ndarray)) else self.hidden
        given["encoder"] = "features"
        given["encoder_options"] = {
            "inputs": rows.shape[1],
            "hidden": hidden,
            "dropout": plain(self.dropout),
            "scale": plain(self.scale),
        }
        if isinstance(self.class_weight, Mapping):
            found = tax.class_of[form.nodes(list(self.class_weight), tax, classes)]
            if (found < 0).any():
                wrong = list(self.class_weight)[int((found < 0).argmax())]
                raise OptionError(f"class_weight is for classes, which are leaves; {wrong!r} is an inner node")
            weights = map(plain, self.class_weight.values())
            given["class_weight"] = {tax.classes[c]: w for c, w in zip(found.tolist(), weights, strict=True)}
        usual = dict(_USUAL[bool(hidden), not isinstance(rows, np.ndarray)])
        usual["batch_size"] = min(
            max(usual["batch_size"], rows.shape[0] // _MANY), 1024, max(1, rows.shape[0] // _STEPS)
        )
        return TrainConfig.make(**{name: usual.get(name) if value is None else value for name, value in given.items()})

    def _become(self, model: Model, form: Form, classes: np.ndarray, run: Run | None) -> None:
        self.model_, self.run_, self._form, self.classes_ = model, run, form, classes
        self.taxonomy_ = model.taxonomy
        if run is not None:
            self.n_iter_ = run.epochs

    # -------------------------------------------------------------- prediction

    def _ready(self, X: Any) -> Matrix:
        check_is_fitted(self)
        return self._rows(X)

    def _features(self, inputs: Matrix, size: int) -> Iterator[Tensor]:
        encoder, device = self.model_.encoder, self.model_.device
        for start in range(0, inputs.shape[0], size):
            with evaluating(self.model_):
                batch = encoder.collate(encoder.encode(inputs[start : start + size]))
                features_BD = encoder(*(tensor.to(device) for tensor in batch))
            yield features_BD

    # -------------------------------------------------------------- evaluation

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """The share of rows whose most probable class is the node of their label, the whole path where it is one.

        Where the taxonomy was inferred, a label that training never saw is an error of the classifier, not of yours.
        """
        check_is_fitted(self)
        rows, labels = self._pairs(X, y, reset=False)
        missing = None if self._form.is_given else -1
        nodes = self._form.nodes(labels, self.taxonomy_, self.classes_, missing)
        right = nodes == self.taxonomy_.leaves[self._best(rows)]
        return float(np.average(right, weights=None if sample_weight is None else np.asarray(sample_weight)))

    def evaluate(self, X: Any, y: Any) -> dict[str, Any]:
        """Every measure by its name: those of the most probable classes, of likelihood and of calibration."""
        check_is_fitted(self)
        rows, labels = self._pairs(X, y, reset=False)
        nodes = self._form.nodes(labels, self.taxonomy_, self.classes_)
        batches = (self.model_.head.node_log_probs(h_BD) for h_BD in self._features(rows, self._batch(whole=True)))
        with torch.inference_mode():
            return evaluate_log_probs(batches, Examples(rows, nodes), self.taxonomy_).metrics

    # ------------------------------------------------------------------ on disk

    def save(self, folder: str | os.PathLike[str], metrics: Mapping[str, Any] | None = None) -> Path:
        """Write the fitted classifier to a folder: safetensors, JSON and text, no pickle.

        `metrics` are kept in metrics.json and shown on the model card, such as `{"test": clf.evaluate(X, y)}`.
        """
        check_is_fitted(self)
        path = save_model(self.model_, Path(folder), dict(metrics or {}))
        names = getattr(self, "feature_names_in_", None)
        record = {
            "taxonomy": self.taxonomy_.fingerprint,
            "labels": asdict(self._form),
            "classes": {"values": self.classes_.tolist(), "dtype": self.classes_.dtype.str},
            "feature_names": None if names is None else names.tolist(),
            "run": run_record(self.run_),
        }
        write_file(path / RECORD, (json.dumps(record, indent=2) + "\n").encode())
        card = path / "README.md"
        text = card.read_text("utf-8").replace("A text classifier made", "A classifier of feature matrices made")
        text = text.replace("TextClassifier", type(self).__name__).replace('predict(["a text"])', "predict(X)")
        write_file(card, text.encode())
        return path

    @classmethod
    def load(cls, folder: str | os.PathLike[str], device: torch.device | str = "cpu") -> Self:
        """The classifier in a folder, on this device; it predicts as it did, and `fit` trains with the same settings.

        Its parameters are the settings that were in force, and `taxonomy` is its tree.
        """
        model = load_model(Path(folder), device)
        if model.encoder.takes_texts:
            raise ModelFolderError(f"{folder} holds a classifier of texts: load it with TextClassifier.load")
        settings = {**model.config.model_dump(), **model.encoder.options.model_dump()}
        path = Path(folder) / RECORD
        try:
            record = json.loads(path.read_text("utf-8"))
            form = Form(**record["labels"])
            classes = np.array(record["classes"]["values"], dtype=record["classes"]["dtype"])
            if record["taxonomy"] != model.taxonomy.fingerprint or len(classes) != model.taxonomy.num_leaves:
                raise ValueError("it is of another model")
            names, run = record["feature_names"], recorded_run(record["run"], model)
        except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
            raise ModelFolderError(f"{path} is not the record of a classifier: {error}") from error
        settings["taxonomy"] = model.taxonomy if form.is_given else None
        clf = cls(**{name: settings[name] for name in cls._get_param_names() if name in settings})
        clf._become(model, form, classes, run)
        clf.n_features_in_ = settings["inputs"]
        if names is not None:
            clf.feature_names_in_ = np.array(names, dtype=object)
        return clf

    # ------------------------------------------------- what scikit-learn asks for

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _tidy(rows: Matrix) -> Matrix:
    """The matrix, a sparse one with sorted columns and none twice; the caller's own stays as it is."""
    if isinstance(rows, np.ndarray):
        return rows
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows
