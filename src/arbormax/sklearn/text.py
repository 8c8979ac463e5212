"""A text classifier with scikit-learn's conventions."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from arbormax.data.columns import InputColumns
from arbormax.data.labels import label_nodes
from arbormax.errors import OptionError
from arbormax.model import TrainConfig
from arbormax.model.explain import explain
from arbormax.model.folder import remove_state
from arbormax.model.node_texts import build_from_texts
from arbormax.model.predict import Decoding
from arbormax.sklearn.base import TreeClassifier
from arbormax.sklearn.inputs import (
    LabelFormat,
    Labels,
    as_taxonomy,
    check_labels,
    check_text_pairs,
    check_texts,
    read_text_labels,
    to_python,
)
from arbormax.taxonomy import Taxonomy

__all__ = ["TextClassifier"]


@dataclass(eq=False, repr=False)
class TextClassifier(TreeClassifier):
    """A classifier of texts over a taxonomy, with scikit-learn's conventions.

    `taxonomy` is a `Taxonomy`, the path of a taxonomy file, nested mappings, or None to infer it from the labels.
    `encoder` is `"tfidf"` by default, and `head` the best one for the encoder; a `preset` sets parameters that are left
    at their defaults. `folder` receives logs, the state of the training, which `resume` continues, and the trained
    model. With `text_columns`, a `template` such as "{name}. {description}", or `also`, the names of columns with
    categories, X is a table, a list of dictionaries or a 2-D array, whose columns are positions. `tune="5min"` first
    searches for better n-grams and settings of the solver for so long; parameters that are given stay. All other
    parameters are fields of `arbormax.model.TrainConfig`, where None selects a value that suits the encoder, and
    options of Lightning (`accelerator`, `devices`).

    Fitting sets `taxonomy_`, `classes_` (`taxonomy_.classes`, the columns of `predict_proba`), `model_`, `n_iter_`
    (epochs) and `run_`.

    >>> texts, labels = ["a ball", "a goal", "rain", "snow"] * 5, ["sport", "sport", "weather", "weather"] * 5
    >>> clf = TextClassifier({"news": ["sport", "weather"]}, encoder_options={"char_ngrams": 0}).fit(texts, labels)
    >>> clf.predict(["a ball and a goal"]).tolist()
    ['sport']
    """

    _takes_texts = True

    taxonomy: Taxonomy | str | os.PathLike[str] | Mapping[str, Any] | None = None
    encoder: str | None = None
    head: str | None = None
    preset: str | None = None
    encoder_options: Mapping[str, Any] | None = None
    folder: str | os.PathLike[str] | None = field(default=None, kw_only=True)
    resume: bool = field(default=False, kw_only=True)
    names: str | None = field(default=None, kw_only=True)
    text_columns: Sequence[str | int] | None = field(default=None, kw_only=True)
    template: str | None = field(default=None, kw_only=True)
    also: Sequence[str | int] | None = field(default=None, kw_only=True)

    def fit(self, X: Any, y: Any = None, **unsupported: Any) -> Self:
        """Train on texts and their labels.

        A label is a class, a '/'-path, a tuple or list of names from the top down, or a row of a 2-D array of names
        padded with "" on the right; it may be any node but the root.
        """
        if self.resume and self.folder is None:
            raise OptionError("expected a folder with the state of a training", argument="folder")
        folder = None if self.folder is None else Path(self.folder)
        self._fit(X, y, unsupported, folder=folder, resume=self.resume)
        if folder is not None:
            self.save(folder)
            remove_state(folder)
        return self

    def fit_texts(self) -> Self:
        """Build the classifier from the texts of the taxonomy's nodes alone: no training and no data.

        `taxonomy` must be given; its texts are described in docs/node-texts.md.
        """
        if self.taxonomy is None:
            raise OptionError("expected a taxonomy, whose nodes have texts", argument="taxonomy")
        params = self.get_params(deep=False)
        known = TrainConfig.model_fields.keys() & params.keys() - {"class_weight"}
        settings = {name: to_python(params[name]) for name in known}
        settings["uncertainty_options"] = settings["uncertainty_options"] or {}
        config = self._config(settings, None, 0)
        run = build_from_texts(config, as_taxonomy(self.taxonomy))
        labels = np.array(run.model.taxonomy.classes)
        self._set_model(run.model, LabelFormat(None, None, is_given=True), labels, run)
        if self.folder is not None:
            self.save(self.folder)
        return self

    def explain(
        self,
        text: str | Mapping[str, Any],
        tau: float | None = None,
        *,
        decoder: str | None = None,
        within: Any = None,
        without: Any = None,
        siblings: int = 5,
        words: bool = True,
        node: int | str | tuple[str, ...] | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """The reasons for the prediction of one text, or of the columns of a row: see `arbormax.model.explain.explain`.

        The explained node is the most probable class, with `tau` the deepest node with P > tau, or that of another
        `decoder` with its `options`, or `node`: a node id or a label. `within` and `without` are those of `predict`.
        """
        check_is_fitted(self)
        (text,) = check_texts([text], self._columns)
        if isinstance(node, (str, tuple)):
            node = int(label_nodes([node], self.taxonomy_)[0])
        decoding = Decoding.choose(decoder, tau, options=options, within=within, without=without)
        return explain(self.model_, text, decoding=decoding, siblings=siblings, words=words, node=node)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], device: torch.device | str = "cpu") -> Self:
        """The classifier in a folder, also one that `arbormax train` wrote; it predicts as before.

        Its parameters are the settings of the training, including the defaults of the preset and the encoder, and
        `taxonomy` is the tree of the model.
        """
        clf = super().load(folder, device)
        clf.taxonomy = clf.taxonomy_
        columns = clf.model_.config.columns
        if not columns.is_plain:
            clf.also, clf.template = list(columns.also) or None, columns.template
            clf.text_columns = list(columns.text) if columns.template is None else None
        return clf

    @property
    def _columns(self) -> InputColumns | None:
        """The columns of the inputs; None if they are texts."""
        if not (self.text_columns or self.template or self.also):
            return None
        return InputColumns.of(self.text_columns, self.template, self.also, "text_columns")

    def _check_inputs(self, X: Any) -> list[str]:
        return check_texts(X, self._columns)

    def _check_pairs(self, X: Any, y: Any, reset: bool) -> tuple[list[str], list[Any]]:  # noqa: ARG002
        return check_text_pairs(X, y, self._columns)

    def _read_labels(self, y: Any, taxonomy: Taxonomy | None) -> Labels:
        return read_text_labels(y, taxonomy)

    def _find_nodes(self, y: Any, labels: Labels, missing: int | None = None, argument: str = "y") -> np.ndarray:
        return label_nodes(
            check_labels(y, argument), labels.taxonomy, separator=labels.format.separator, missing=missing
        )

    def _label_values(self, y: Any) -> list[Any]:
        return check_labels(y)

    def _config(self, settings: dict[str, Any], inputs: Any, classes: int) -> TrainConfig:  # noqa: ARG002
        settings["encoder_options"] = settings["encoder_options"] or {}
        settings["columns"] = self._columns or InputColumns()
        if self.preset is not None:
            usual = TrainConfig.make()
            settings = {name: v for name, v in settings.items() if name == "encoder" or v != getattr(usual, name)}
        return TrainConfig.make(self.preset, **settings)

    @classmethod
    def _read_format(cls, record: Mapping[str, Any], tax: Taxonomy) -> tuple[LabelFormat, np.ndarray]:
        if "labels" in record:
            return super()._read_format(record, tax)
        separator = record.get("separator")  # as version 0.1 wrote it, None also without a record
        return LabelFormat(None, separator, separator is None), np.array(tax.classes)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.no_validation = True  # the texts are validated by this class
        return tags
