"""One training of a study and its record."""

from __future__ import annotations

import io
import json
import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from arbormax import __version__, metrics
from arbormax.data.examples import Examples
from arbormax.data.folds import assign_folds
from arbormax.errors import InputError, OptionError
from arbormax.functional.probabilities import flat_node_log_probs
from arbormax.model.settings import TrainConfig
from arbormax.studies.evaluate import evaluate_log_probs
from arbormax.studies.result_folder import read_json
from arbormax.taxonomy import Taxonomy
from arbormax.training import Hardware, fit
from study.choice import Choice
from study.files import load_test_texts, load_training_texts, resolve_paths, write_file
from study.plan import BLEND, PROTOCOL, SVC, Arm, Study, slug, titles

_FOLD_SEED = 0  # all arms and heads have the same folds
# Defaults of the encoders when the study was run; its records do not have them.
_OPTIONS = {"bag": {"dropout": 0.2, "char_ngrams": 0}, "tfidf": {"char_ngrams": 0}}
_PACKAGES = ("torch", "pytorch-lightning", "scikit-learn", "transformers")


@dataclass(frozen=True)
class Job:
    """A training that is evaluated on a fold, or with a choice on the test texts."""

    study: Study
    arm: Arm
    head: str
    point: dict[str, Any]
    fold: int | None = None
    seed: int = 0
    choice: Choice | None = None
    members: tuple[Job, ...] = ()  # the arms of a blend

    @property
    def file(self) -> str:
        """The path of the record in the folder of the results."""
        base = f"{self.arm.name}-{self.head}"
        name = f"folds/{base}{slug(self.point)}-fold{self.fold}"
        if self.choice is not None:
            name = f"runs/{base}-seed{self.seed}"
        return f"{self.study.dataset}/{name}.json"

    @property
    def config(self) -> TrainConfig:
        if self.choice is None:
            more = {} if self.arm.early else {"validation": 0.0}
            return self.arm.config(self.head, self.point, self.seed, **more)
        return self.arm.config(self.head, self.point, self.seed, epochs=self.choice.epochs, validation=0.0)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that identify the record."""
        own: dict[str, Any] = {"rows": self.study.rows, "folds": self.study.folds}
        if self.arm.encoder == SVC:
            return {**own, **self.arm.settings, **self.point}
        if self.arm.encoder == BLEND:
            return {**own, **self.point, "of": {member.arm.name: member.settings for member in self.members}}
        config = json.loads(self.config.model_dump_json())
        options = resolve_paths(self.config).encoder_options
        if "vectors" in options:
            config["encoder_options"]["vectors"] = Path(options["vectors"]).name
        return {**own, **config}

    def record(self, results: Path) -> dict[str, Any] | None:
        """The finished record, or None; raises if it has other settings."""
        path = results / self.file
        if not path.exists():
            return None
        record = read_json(path)
        config = record.get("config")
        before = {"tree": record.get("tree"), **_changed_settings(config if isinstance(config, dict) else {})}
        now = {"tree": self.arm.tree, **_changed_settings(self.settings)}
        if differing := [name for name in {**now, **before} if before.get(name) != now.get(name)]:
            raise OptionError(f"{path} has other settings ({', '.join(differing)}); remove it or choose another folder")
        return record

    def run(self, results: Path, hardware: Hardware, command: str) -> None:
        """Train, evaluate and write the record; an interrupted training is resumed."""
        if self.record(results) is not None:
            return
        path = results / self.file
        path.parent.mkdir(parents=True, exist_ok=True)
        taxonomy, train = load_training_texts(self.study, self.arm)
        found = (
            self._run_fold(taxonomy, train, hardware, results)
            if self.choice is None
            else self._run_test(self.choice, taxonomy, train, hardware, results)
        )
        head = {**titles(self.study, self.arm, self.head), "seed": self.seed}
        record = {**head, **found, "config": self.settings, **describe_machine(hardware), "command": command}
        write_file(path, (json.dumps(record) + "\n").encode())
        shutil.rmtree(self._training_folder(results), ignore_errors=True)

    def _run_fold(self, taxonomy: Taxonomy, train: Examples, hardware: Hardware, results: Path) -> dict[str, Any]:
        fold_n = assign_folds(train.nodes, self.study.folds, _FOLD_SEED)
        inside, outside = (train.take(np.flatnonzero(at)) for at in (fold_n != self.fold, fold_n == self.fold))
        found: dict[str, Any] = {"fold": self.fold, "folds": self.study.folds, "point": self.point}
        if self.arm.early:
            state = self._training_folder(results)
            run = fit(
                _training_config(self.config), taxonomy, inside, outside, hardware=hardware, folder=state, resume=True
            )
            curve = [{"epoch": number, **values} for number, values in enumerate(run.curve, start=1)]
            return {**found, "curve": curve, "seconds": run.seconds}
        values, _ = self._train_and_evaluate(taxonomy, inside, outside, hardware, results)
        epochs = 1 if self.arm.encoder in (SVC, BLEND) else self.config.epochs
        last = {name: values[name] for name in ("macro_f1", "accuracy", "hf")}
        curve = [{"epoch": epochs, "loss": values.get("nll"), **last}]
        return {**found, "curve": curve, "seconds": values.get("seconds")}

    def _run_test(
        self, choice: Choice, taxonomy: Taxonomy, train: Examples, hardware: Hardware, results: Path
    ) -> dict[str, Any]:
        found = {
            "chosen": {"point": choice.point, "epochs": choice.epochs, "macro_f1": choice.macro_f1},
            "vectors": self.settings.get("encoder_options", {}).get("vectors"),
        }
        test = load_test_texts(self.study, self.arm, choice)
        selecting = test if self.arm.best_on_test else None
        values, predicted = self._train_and_evaluate(taxonomy, train, test, hardware, results, selecting)
        return {**found, **_to_json(values), "predicted": taxonomy.class_of[predicted].tolist()}

    def _train_and_evaluate(
        self,
        taxonomy: Taxonomy,
        train: Examples,
        test: Examples,
        hardware: Hardware,
        results: Path,
        selecting: Examples | None = None,
    ) -> tuple[dict[str, Any], np.ndarray]:
        """Train on one part; the measures on the other, and the predicted nodes.

        The examples `selecting` select the epoch; without them it is the last one.
        """
        if self.arm.encoder == SVC:
            predicted = self._predict_svc(train, test)
            return {"items": len(test), **metrics.evaluate(test.nodes, predicted, taxonomy)}, predicted
        if self.arm.encoder == BLEND:
            parts = [member.probabilities(results) for member in self.members]
            mixed = sum(weight * part for weight, part in zip(self.point["weights"], parts, strict=True))
            logp = flat_node_log_probs(torch.from_numpy(np.log(mixed)), taxonomy)
            found = evaluate_log_probs([logp], test, taxonomy)
            return found.metrics, found.predicted
        folder = self._training_folder(results)
        config = _training_config(self.config)
        run = fit(config, taxonomy, train, selecting, hardware=hardware, folder=folder, resume=True)
        cuda = hardware.accelerator != "cpu" and torch.cuda.is_available()
        batches = [logp_BN.cpu() for logp_BN in run.model.to("cuda" if cuda else "cpu").node_log_probs(test.inputs)]
        if self.arm.keep:
            leaves = torch.cat(batches)[:, torch.tensor(taxonomy.leaves)]
            path = self._probability_file(results)
            path.parent.mkdir(parents=True, exist_ok=True)
            with io.BytesIO() as file:
                np.save(file, leaves.half().numpy(), allow_pickle=False)
                write_file(path, file.getvalue())
        found = evaluate_log_probs(batches, test, taxonomy)
        more: dict[str, Any] = {"seconds": run.seconds, "parameters": run.model.num_parameters}
        if selecting is not None:
            more |= {"selected_on": "test", "best_epoch": run.best_epoch, "curve": run.curve}
        return {**found.metrics, **more}, found.predicted

    def probabilities(self, results: Path) -> np.ndarray:
        """(n, C) the saved probabilities of the classes."""
        path = self._probability_file(results)
        if not path.exists():
            raise InputError(f"{path} is missing, which a blend needs; remove {self.file} to train it again")
        logp_nC = np.load(path, allow_pickle=False).astype(np.float64)
        prob_nC: np.ndarray = np.exp(logp_nC - np.logaddexp.reduce(logp_nC, axis=1, keepdims=True))
        return prob_nC

    def _probability_file(self, results: Path) -> Path:
        dataset, _, rest = self.file.partition("/")
        return results / dataset / "probabilities" / rest.replace(".json", ".npy")

    def _training_folder(self, results: Path) -> Path:
        return results / "unfinished" / self.file.removesuffix(".json")

    def _predict_svc(self, train: Examples, test: Examples) -> np.ndarray:
        """(n,) the nodes that LinearSVC predicts from TF-IDF of words and word pairs."""
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.pipeline import make_pipeline
        from sklearn.svm import LinearSVC

        options = {**self.arm.settings, **self.point}
        terms = TfidfVectorizer(ngram_range=(1, options.pop("ngrams", 2)), sublinear_tf=options.pop("sublinear", False))
        machine = make_pipeline(terms, LinearSVC(**options)).fit(train.inputs, train.nodes)
        return np.asarray(machine.predict(test.inputs))


def _training_config(config: TrainConfig) -> TrainConfig:
    options = {**_OPTIONS.get(config.encoder, {}), **config.encoder_options}
    return resolve_paths(config.model_copy(update={"encoder_options": options}))


def _changed_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that differ from the defaults, so that a setting added later does not change them."""
    defaults = TrainConfig.make(**PROTOCOL).model_dump(mode="json")
    return {name: value for name, value in settings.items() if name not in defaults or value != defaults[name]}


def describe_machine(hardware: Hardware) -> dict[str, Any]:
    """The device and the versions of a record."""
    cuda = hardware.accelerator != "cpu" and torch.cuda.is_available()
    device = torch.cuda.get_device_name() if cuda else f"{_processor_name()}, {os.cpu_count()} cores"
    versions = {"python": platform.python_version(), "arbormax": __version__}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {"device": device, "versions": versions}


def _processor_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
        platform.processor() or platform.machine(),
    )


def _to_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """Measures as plain numbers for JSON."""
    return {name: _round(value) for name, value in values.items()}


def _round(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _round(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_round(item) for item in value]
    return round(value, 6) if isinstance(value, float) else value
