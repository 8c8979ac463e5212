"""A classifier of feature matrices with scikit-learn's conventions and hiclass's labels."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, validate_data

from arbormax.data.examples import Matrix
from arbormax.heads import HEADS
from arbormax.model import Model, TrainConfig
from arbormax.model.settings import MOST_CLASSES, supports_settings
from arbormax.sklearn.base import TreeClassifier
from arbormax.sklearn.categories import Categories
from arbormax.sklearn.inputs import Labels, find_nodes, flat_labels, path_rows, read_labels, to_python
from arbormax.taxonomy import Taxonomy

__all__ = ["HierarchicalClassifier"]

# Defaults that suit most data, by whether there are hidden layers and whether the matrix is sparse. The learning rate
# of a dense matrix is an upper limit: see `_dense_rate`.
_DEFAULTS: Mapping[tuple[bool, bool], Mapping[str, Any]] = {
    (False, False): {"learning_rate": 0.05, "epochs": 20, "batch_size": 64},
    (False, True): {"learning_rate": 0.5, "epochs": 8, "batch_size": 64, "adam_epsilon": 1e-3},
    (True, False): {"learning_rate": 1e-2, "epochs": 20, "batch_size": 64},
    (True, True): {"learning_rate": 1e-2, "epochs": 8, "batch_size": 256},
}
_DENSE_HEAD = "shared"  # for the rows of a dense matrix, see docs/adr/0013
_DECAY = 0.002  # share by which a step shrinks the weights of a linear classifier of dense rows
_MIN_STEPS = 20  # steps of an epoch that the default batch size leaves, if there are enough rows
_MAX_STEPS = 100  # beyond this the default batch size grows: the cost of a step depends on the number of weights


@dataclass(eq=False, repr=False)
class HierarchicalClassifier(TreeClassifier):
    """A classifier of feature matrices over a taxonomy, with scikit-learn's conventions.

    The matrix is dense or sparse; a sparse matrix is never converted to a dense one. `hidden` are the widths of layers
    before the head, `()` gives a linear classifier. `taxonomy` is a `Taxonomy`, the path of a taxonomy file, nested
    mappings, or None to infer it from the labels: the union of their paths, or a flat tree if they are plain. Labels
    are rows of names from the top down, padded with "" or None, as in hiclass; strings; or without a taxonomy any
    values that scikit-learn accepts. The other parameters are those of `TextClassifier`; None selects a value that
    suits the matrix: `head` is then `"shared"` for a dense matrix, `"blended"` for a sparse one, and `"hierarchical"`
    for more than 5,000 classes.

    With `also`, the names of columns with categories, X is a table, a list of dictionaries or a 2-D array, whose
    columns are positions. All other columns are numbers, and each category becomes a further column of zeros and ones;
    one that training did not see has only zeros.

    Fitting sets `taxonomy_`, `classes_` (the columns of `predict_proba`: `taxonomy_.classes` for strings, rows of
    names for rows of names, and the values themselves otherwise), `model_`, `n_iter_` (epochs), `run_`,
    `n_features_in_` and, if the columns have names, `feature_names_in_`; with `also`, `categories_` instead.

    >>> X = [[0.0, 1.0], [1.0, 1.0], [0.0, 0.0], [0.1, 0.2]] * 5
    >>> y = [["animal", "cat"], ["animal", "dog"], ["plant", ""], ["plant", ""]] * 5
    >>> HierarchicalClassifier().fit(X, y).predict([[0.0, 1.0]]).tolist()
    [['animal', 'cat']]
    """

    _takes_texts = False

    if TYPE_CHECKING:  # an attribute that is no parameter
        categories_: Categories

    taxonomy: Taxonomy | str | os.PathLike[str] | Mapping[str, Any] | None = None
    head: str | None = None
    hidden: Sequence[int] = ()
    dropout: float = 0.0
    scale: bool = True
    also: Sequence[str | int] | None = field(default=None, kw_only=True)
    validation: float = field(default=0.0, kw_only=True)
    weight_decay: float | None = field(default=None, kw_only=True)  # type: ignore[assignment]

    def fit(self, X: Any, y: Any = None, **unsupported: Any) -> Self:
        """Train on the rows of a matrix and their labels."""
        return self._fit(X, y, unsupported)

    def _check_inputs(self, X: Any, reset: bool = False) -> Matrix:
        X = self._encode(X, reset)
        return _canonical(validate_data(self, X, reset=reset, accept_sparse="csr", dtype=np.float32))

    def _check_pairs(self, X: Any, y: Any, reset: bool) -> tuple[Matrix, Any]:
        if y is None or path_rows(y) is None:
            X = self._encode(X, reset)
            rows, labels = validate_data(self, X, y, reset=reset, accept_sparse="csr", dtype=np.float32)
            check_classification_targets(labels)
            return _canonical(rows), labels
        rows = self._check_inputs(X, reset)
        check_consistent_length(rows, y)
        return rows, y

    def _encode(self, X: Any, reset: bool) -> Any:
        """X with its columns of categories as numbers; as it is if there are none."""
        if self.also is None:
            return X
        if reset:
            self.categories_ = Categories.learn(X, self.also)
        return self.categories_.encode(X)

    def _read_labels(self, y: Any, taxonomy: Taxonomy | None) -> Labels:
        return read_labels(y, taxonomy)

    def _find_nodes(self, y: Any, labels: Labels, missing: int | None = None, argument: str = "y") -> np.ndarray:
        del argument  # errors name the label itself
        return find_nodes(y, labels.taxonomy, labels.format, labels.classes, missing)

    def _label_values(self, y: Any) -> Sequence[Any]:
        return path_rows(y) or flat_labels(y)

    def _config(self, settings: dict[str, Any], inputs: Matrix, classes: int) -> TrainConfig:
        hidden = to_python(list(self.hidden)) if isinstance(self.hidden, (list, tuple, np.ndarray)) else self.hidden
        settings["encoder"] = "features"
        settings["encoder_options"] = {
            "inputs": inputs.shape[1],
            "hidden": hidden,
            "dropout": to_python(self.dropout),
            "scale": to_python(self.scale),
            "sparse": not isinstance(inputs, np.ndarray),
        }
        is_decay_open = settings["weight_decay"] is None
        settings["weight_decay"] = 0.0 if is_decay_open else settings["weight_decay"]
        if settings["head"] is None:
            is_dense = isinstance(inputs, np.ndarray) and not hidden and settings["solver"] != "convex"
            if is_dense and classes <= MOST_CLASSES:
                found = TrainConfig.make(**settings)
                if supports_settings(HEADS[_DENSE_HEAD], found) and not found.convex_settings:
                    settings["head"] = _DENSE_HEAD
        config = TrainConfig.make(**settings)
        if config.resolved().solver == "convex":
            return config
        items = inputs.shape[0]
        usual = dict(_DEFAULTS[bool(hidden), not isinstance(inputs, np.ndarray)])
        if isinstance(inputs, np.ndarray):
            usual["learning_rate"] = min(usual["learning_rate"], _dense_rate(inputs, bool(self.scale)))
            if is_decay_open and not hidden:
                settings["weight_decay"] = _DECAY / usual["learning_rate"]
        usual["batch_size"] = min(max(usual["batch_size"], items // _MAX_STEPS), 1024, max(1, items // _MIN_STEPS))
        return TrainConfig.make(**{name: usual.get(name) if v is None else v for name, v in settings.items()})

    def _set_model(self, model: Model, *rest: Any) -> None:
        super()._set_model(model, *rest)
        self.n_features_in_ = model.encoder.options.inputs  # type: ignore[attr-defined]  # an option of this encoder

    def _further_record(self) -> dict[str, Any]:
        if self.also is None:
            return {}
        return {"categories": asdict(self.categories_), "also": list(map(to_python, self.also))}

    def _read_further(self, record: Mapping[str, Any]) -> None:
        if (saved := record.get("categories")) is not None:
            values = {str(name): tuple(map(str, each)) for name, each in saved["values"].items()}
            self.also, self.categories_ = list(record["also"]), Categories(tuple(saved["numbers"]), values)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _dense_rate(rows: np.ndarray, is_scaled: bool) -> float:
    """The learning rate at which the first steps of Adam change a score by about 0.8.

    Adam changes each weight by the rate, and so a score by the rate times the sum of the absolute features. In a
    standardised column, their mean is about 0.8.
    """
    size = 0.8 * rows.shape[1] if is_scaled else float(np.abs(rows).sum(1, dtype=np.float64).mean())
    return 0.8 / size if size else math.inf


def _canonical(rows: Matrix) -> Matrix:
    """The matrix row by row, a sparse one with sorted columns and without duplicates; the caller's is not changed."""
    if isinstance(rows, np.ndarray):
        return np.ascontiguousarray(rows)  # a table of pandas is stored by columns, and rounding depends on the layout
    if rows.has_canonical_format:
        return rows
    rows = rows.copy()
    rows.sum_duplicates()
    return rows
