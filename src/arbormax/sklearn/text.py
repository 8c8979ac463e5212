"""A text classifier with scikit-learn's conventions: fit, predict, score, and what goes with them.

B batch, D features, N nodes, C classes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
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
    from sklearn.utils.validation import check_is_fitted
except ModuleNotFoundError as error:
    raise MissingDependencyError("TextClassifier", "scikit-learn", "sklearn") from error

from arbormax.data.examples import Examples
from arbormax.data.labels import guess_separator, infer_taxonomy, label_nodes
from arbormax.model import Model, ModelFolderError, TrainConfig, load_model, save_model
from arbormax.model.explain import explain
from arbormax.model.folder import remove_state
from arbormax.model.predict import Decoding
from arbormax.sklearn.base import RECORD, Answers, recorded_run, run_record
from arbormax.sklearn.inputs import labels_of, pairs_of, plain, taxonomy_of, texts_of
from arbormax.studies import evaluate
from arbormax.training import Hardware, Run
from arbormax.training import fit as train

__all__ = ["TextClassifier"]

_WHOLE = "\0"  # stands in no label: a string is then one name, and only after that what `Taxonomy.find` takes


class TextClassifier(Answers, ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Texts in, classes of a taxonomy out; follows scikit-learn's conventions.

    `taxonomy` is a `Taxonomy`, the path of its file, nested mappings, or None: inferred from the labels. `encoder` is
    `"bag"` unless said otherwise, by it or by the `preset`, which fills in what is left at its default.
    `folder` takes logs and the state of the run, from which `resume` goes on, and the model at the end. All other
    settings are those of `arbormax.training.TrainConfig`, where None stands for what the encoder does best with (a
    batch has a twentieth of the texts at most), and of Lightning (`accelerator`, `devices`).

    Fitting sets `taxonomy_`, `classes_` (the C labels of `taxonomy_.classes`, the columns of `predict_proba`),
    `model_`, `n_iter_` (epochs) and `run_`.

    >>> texts, labels = ["a ball", "a goal", "rain", "snow"] * 5, ["sport", "sport", "weather", "weather"] * 5
    >>> clf = TextClassifier({"news": ["sport", "weather"]}, encoder_options={"dim": 8}).fit(texts, labels)
    >>> clf.predict(["a ball and a goal"]).tolist()
    ['sport']
    """

    def __init__(
        self,
        taxonomy: Taxonomy | str | os.PathLike[str] | Mapping[str, Any] | None = None,
        encoder: str | None = None,
        head: str = "hierarchical",
        preset: str | None = None,
        encoder_options: Mapping[str, Any] | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        head_learning_rate: float | None = None,
        schedule: str | None = None,
        warmup: float | None = None,
        adam_epsilon: float | None = None,
        weight_decay: float = 0.0,
        clip: float | None = 5.0,
        validation: float = 0.1,
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
        folder: str | os.PathLike[str] | None = None,
        resume: bool = False,
        verbose: bool = False,
    ) -> None:
        self.taxonomy = taxonomy
        self.encoder = encoder
        self.head = head
        self.preset = preset
        self.encoder_options = encoder_options
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
        self.folder = folder
        self.resume = resume
        self.verbose = verbose

    # ---------------------------------------------------------------- training

    def fit(self, X: Any, y: Any = None, **unsupported: Any) -> Self:
        """This classifier, trained anew on texts and their labels.

        A label is a class, a '/'-path, a tuple or list of names from the root down, or a row of a 2-D array of them
        with "" on the right; it may name any node but the root.
        """
        if unsupported:
            how = "; to weigh classes give class_weight=" if "sample_weight" in unsupported else ""
            raise OptionError(f"TextClassifier.fit takes texts and labels, not {', '.join(unsupported)}{how}")
        if self.resume and self.folder is None:
            raise OptionError("resume goes on from the state in a folder: give folder= too")
        texts, labels = pairs_of(X, y)
        tax, separator = self._tree(labels)
        nodes = label_nodes(labels, tax, separator=separator)
        run = train(
            self._config(tax, separator),
            tax,
            Examples(texts, nodes),
            folder=None if self.folder is None else Path(self.folder),
            resume=self.resume,
            hardware=Hardware(self.accelerator, plain(self.devices)),
            progress=bool(self.verbose),
        )
        self._become(run.model, separator, run)
        if self.folder is not None:
            self.save(self.folder)
            remove_state(Path(self.folder))
        return self

    def _tree(self, labels: Sequence[Any]) -> tuple[Taxonomy, str | None]:
        """The taxonomy, and where its strings are split: None where the taxonomy was given."""
        given = self.taxonomy
        if given is None:
            mark = guess_separator(labels)
            return infer_taxonomy(labels, mark), mark or _WHOLE
        return taxonomy_of(given), None

    def _config(self, tax: Taxonomy, separator: str | None) -> TrainConfig:
        usual = TrainConfig.make()
        params = self.get_params(deep=False)
        given = {name: plain(params[name]) for name in TrainConfig.model_fields if name in params}
        given["encoder_options"] = given["encoder_options"] or {}
        if isinstance(self.class_weight, Mapping):
            labels = labels_of(list(self.class_weight), "class_weight")
            classes = tax.class_of[label_nodes(labels, tax, separator=separator)]
            if (inner := np.flatnonzero(classes < 0)).size:
                named = ", ".join(repr(labels[i]) for i in inner[:8].tolist())
                raise OptionError(f"class_weight is for classes, which are leaves; inner nodes are {named}")
            weights = [plain(weight) for weight in self.class_weight.values()]
            given["class_weight"] = {tax.classes[c]: w for c, w in zip(classes.tolist(), weights, strict=True)}
        if self.preset is not None:
            given = {name: value for name, value in given.items() if name == "encoder" or value != getattr(usual, name)}
        return TrainConfig.make(self.preset, **given)

    def _become(self, model: Model, separator: str | None, run: Run | None) -> None:
        self.model_, self.run_, self._separator = model, run, separator
        self.taxonomy_ = model.taxonomy
        self.classes_ = np.array(model.taxonomy.classes)
        if run is not None:
            self.n_iter_ = run.epochs

    # -------------------------------------------------------------- prediction

    def _ready(self, X: Any) -> list[str]:
        check_is_fitted(self)
        return texts_of(X)

    def _features(self, inputs: list[str], size: int) -> Iterator[Tensor]:
        return self.model_.features(inputs, size)

    def explain(
        self,
        text: str,
        tau: float | None = None,
        *,
        siblings: int = 5,
        words: bool = True,
        node: int | str | tuple[str, ...] | None = None,
    ) -> dict[str, Any]:
        """Why this text gets its answer, as `arbormax.model.explain.explain` tells it.

        The answer is the most probable class, with `tau` the deepest node with P > tau, or the `node` given: a number
        or a label.
        """
        check_is_fitted(self)
        (text,) = texts_of([text])
        if isinstance(node, (str, tuple)):
            node = int(label_nodes([node], self.taxonomy_)[0])
        decoding = Decoding.choose(tau=tau)
        return explain(self.model_, text, decoding=decoding, siblings=siblings, words=words, node=node)

    # -------------------------------------------------------------- evaluation

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """The share of texts whose most probable class is the node of their label.

        Where the taxonomy was inferred, a label that training never saw is an error of the classifier, not of yours.
        """
        check_is_fitted(self)
        texts, labels = pairs_of(X, y)
        missing = None if self._separator is None else -1
        nodes = label_nodes(labels, self.taxonomy_, separator=self._separator, missing=missing)
        right = nodes == self.taxonomy_.leaves[self._best(texts)]
        return float(np.average(right, weights=None if sample_weight is None else np.asarray(sample_weight)))

    def evaluate(self, X: Any, y: Any) -> dict[str, Any]:
        """Every measure by its name: those of the most probable classes, of likelihood and of calibration."""
        check_is_fitted(self)
        texts, labels = pairs_of(X, y)
        nodes = label_nodes(labels, self.taxonomy_, separator=self._separator)
        return evaluate(self.model_, Examples(texts, nodes)).metrics

    # ------------------------------------------------------------------ on disk

    def save(self, folder: str | os.PathLike[str], metrics: Mapping[str, Any] | None = None) -> Path:
        """Write the fitted classifier to a folder: safetensors, JSON and text, no pickle.

        `metrics` are kept in metrics.json and shown on the model card, such as `{"test": clf.evaluate(X, y)}`.
        """
        check_is_fitted(self)
        path = save_model(self.model_, Path(folder), dict(metrics or {}))
        record = {
            "taxonomy": self.taxonomy_.fingerprint,
            "separator": self._separator,
            "run": run_record(self.run_),
        }
        write_file(path / RECORD, (json.dumps(record, indent=2) + "\n").encode())
        return path

    @classmethod
    def load(cls, folder: str | os.PathLike[str], device: torch.device | str = "cpu") -> Self:
        """The classifier in a folder, on this device; it predicts as it did, and `fit` trains with the same settings.

        Its parameters are the settings that were in force, with the preset's and the encoder's own filled in.
        """
        model = load_model(Path(folder), device)
        settings = model.config.model_dump()
        names = cls._get_param_names()
        clf = cls(taxonomy=model.taxonomy, **{name: value for name, value in settings.items() if name in names})
        path = Path(folder) / RECORD
        try:
            record = json.loads(path.read_text("utf-8")) if path.is_file() else {}
            if record.get("taxonomy") != model.taxonomy.fingerprint:  # of a model that lay here before
                record = {}
            run = recorded_run(record.get("run"), model)
            separator = record.get("separator")
        except (ValueError, TypeError, AttributeError) as error:
            raise ModelFolderError(f"{path} is not the record of a classifier: {error}") from error
        clf._become(model, separator, run)
        return clf

    # ------------------------------------------------- what scikit-learn asks for

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.no_validation = True  # the texts are checked here
        return tags
