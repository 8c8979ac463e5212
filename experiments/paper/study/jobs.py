"""One training of a study, from its place in the plan to its record."""

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
from arbormax.studies.evaluate import Evaluation, evaluate_log_probs
from arbormax.studies.result_folder import read_json
from arbormax.taxonomy import Taxonomy
from arbormax.training import Hardware, fit
from study.choice import Choice
from study.files import located, texts_to_measure, training_texts, write_file
from study.plan import BLEND, SVC, Arm, Study, slug, titles

_FOLD_SEED = 0  # all arms and heads have the same folds
_PACKAGES = ("torch", "pytorch-lightning", "scikit-learn", "transformers")


@dataclass(frozen=True)
class Job:
    """A training to be measured on a fold, or on the test texts once something was chosen."""

    study: Study
    arm: Arm
    head: str
    point: dict[str, Any]
    fold: int | None = None
    seed: int = 0
    choice: Choice | None = None
    members: tuple[Job, ...] = ()  # of a blend

    @property
    def file(self) -> str:
        """Where its record goes, from the folder of all results."""
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
        """What makes the record this job's: other settings, another record."""
        own: dict[str, Any] = {"rows": self.study.rows, "folds": self.study.folds}
        if self.arm.encoder == SVC:
            return {**own, **self.arm.settings, **self.point}
        if self.arm.encoder == BLEND:
            return {**own, **self.point, "of": {member.arm.name: member.settings for member in self.members}}
        config = json.loads(self.config.model_dump_json())
        options = located(self.config).encoder_options
        if "vectors" in options:
            config["encoder_options"]["vectors"] = Path(options["vectors"]).name
        return {**own, **config}

    def record(self, results: Path) -> dict[str, Any] | None:
        """The finished record, or None; raises where it is of other settings."""
        path = results / self.file
        if not path.exists():
            return None
        record = read_json(path)
        config = record.get("config")
        before = {"tree": record.get("tree"), **_chosen(config if isinstance(config, dict) else {})}
        now = {"tree": self.arm.tree, **_chosen(self.settings)}
        if differing := [name for name in {**now, **before} if before.get(name) != now.get(name)]:
            raise OptionError(
                f"{path} was made with other settings ({', '.join(differing)}): remove it, or write the results "
                "elsewhere"
            )
        return record

    def run(self, results: Path, hardware: Hardware, command: str) -> None:
        """Train, measure, write the record; a training that was stopped goes on from its last state."""
        if self.record(results) is not None:
            return
        path = results / self.file
        path.parent.mkdir(parents=True, exist_ok=True)
        taxonomy, train = training_texts(self.study, self.arm)
        found = (
            self._on_fold(taxonomy, train, hardware, results)
            if self.choice is None
            else self._on_test(self.choice, taxonomy, train, hardware, results)
        )
        named = {**titles(self.study, self.arm, self.head), "seed": self.seed}
        record = {**named, **found, "config": self.settings, **circumstances(hardware), "command": command}
        write_file(path, (json.dumps(record) + "\n").encode())
        shutil.rmtree(self._state(results), ignore_errors=True)

    def _on_fold(self, taxonomy: Taxonomy, train: Examples, hardware: Hardware, results: Path) -> dict[str, Any]:
        fold_n = assign_folds(train.nodes, self.study.folds, _FOLD_SEED)
        inside, outside = (train.take(np.flatnonzero(at)) for at in (fold_n != self.fold, fold_n == self.fold))
        found: dict[str, Any] = {"fold": self.fold, "folds": self.study.folds, "point": self.point}
        if self.arm.early:
            state = self._state(results)
            run = fit(located(self.config), taxonomy, inside, outside, hardware=hardware, folder=state, resume=True)
            curve = [{"epoch": number, **values} for number, values in enumerate(run.curve, start=1)]
            return {**found, "curve": curve, "seconds": run.seconds}
        values, _ = self._measured(taxonomy, inside, outside, hardware, results)
        epochs = 1 if self.arm.encoder in (SVC, BLEND) else self.config.epochs
        last = {name: values[name] for name in ("macro_f1", "accuracy", "hf")}
        course = [{"epoch": epochs, "loss": values.get("nll"), **last}]
        return {**found, "curve": course, "seconds": values.get("seconds")}

    def _on_test(
        self, choice: Choice, taxonomy: Taxonomy, train: Examples, hardware: Hardware, results: Path
    ) -> dict[str, Any]:
        found = {
            "chosen": {"point": choice.point, "epochs": choice.epochs, "macro_f1": choice.macro_f1},
            "vectors": self.settings.get("encoder_options", {}).get("vectors"),
        }
        test = texts_to_measure(self.study, self.arm, choice)
        values, predicted = self._measured(taxonomy, train, test, hardware, results)
        return {**found, **_plain(values), "predicted": taxonomy.class_of[predicted].tolist()}

    def _measured(
        self, taxonomy: Taxonomy, train: Examples, test: Examples, hardware: Hardware, results: Path
    ) -> Evaluation:
        """Train on the one, measure on the other."""
        if self.arm.encoder == SVC:
            predicted = self._svc(train, test)
            return Evaluation({"items": len(test), **metrics.evaluate(test.nodes, predicted, taxonomy)}, predicted)
        if self.arm.encoder == BLEND:
            parts = [member.probabilities(results) for member in self.members]
            mixed = sum(weight * part for weight, part in zip(self.point["weights"], parts, strict=True))
            return evaluate_log_probs([flat_node_log_probs(torch.from_numpy(np.log(mixed)), taxonomy)], test, taxonomy)
        folder = self._state(results)
        run = fit(located(self.config), taxonomy, train, hardware=hardware, folder=folder, resume=True)
        cuda = hardware.accelerator != "cpu" and torch.cuda.is_available()
        batches = [logp_BN.cpu() for logp_BN in run.model.to("cuda" if cuda else "cpu").node_log_probs(test.inputs)]
        if self.arm.keep:
            leaves = torch.cat(batches)[:, torch.tensor(taxonomy.leaves)]
            path = self._kept(results)
            path.parent.mkdir(parents=True, exist_ok=True)
            with io.BytesIO() as file:
                np.save(file, leaves.half().numpy(), allow_pickle=False)
                write_file(path, file.getvalue())
        values, predicted = evaluate_log_probs(batches, test, taxonomy)
        return Evaluation({**values, "seconds": run.seconds, "parameters": run.model.num_parameters}, predicted)

    def probabilities(self, results: Path) -> np.ndarray:
        """(n, C) of every class, as they were kept."""
        path = self._kept(results)
        if not path.exists():
            raise InputError(f"{path} is not there, of which a blend is made: remove {self.file} to train it again")
        logp_nC = np.load(path, allow_pickle=False).astype(np.float64)
        prob_nC: np.ndarray = np.exp(logp_nC - np.logaddexp.reduce(logp_nC, axis=1, keepdims=True))
        return prob_nC

    def _kept(self, results: Path) -> Path:
        dataset, _, rest = self.file.partition("/")
        return results / dataset / "probabilities" / rest.replace(".json", ".npy")

    def _state(self, results: Path) -> Path:
        return results / "unfinished" / self.file.removesuffix(".json")

    def _svc(self, train: Examples, test: Examples) -> np.ndarray:
        """(n,) the nodes that TF-IDF of words and pairs of words with a linear support vector machine finds."""
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.pipeline import make_pipeline
        from sklearn.svm import LinearSVC

        given = {**self.arm.settings, **self.point}
        terms = TfidfVectorizer(ngram_range=(1, given.pop("ngrams", 2)), sublinear_tf=given.pop("sublinear", False))
        machine = make_pipeline(terms, LinearSVC(**given)).fit(train.inputs, train.nodes)
        return np.asarray(machine.predict(test.inputs))


def _chosen(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are not the usual ones: a later version may know more, and have them as they were before."""
    usual = TrainConfig.make().model_dump(mode="json")
    return {name: value for name, value in settings.items() if name not in usual or value != usual[name]}


def circumstances(hardware: Hardware) -> dict[str, Any]:
    """Where and with what a record was made."""
    cuda = hardware.accelerator != "cpu" and torch.cuda.is_available()
    device = torch.cuda.get_device_name() if cuda else f"{_processor()}, {os.cpu_count()} cores"
    versions = {"python": platform.python_version(), "arbormax": __version__}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {"device": device, "versions": versions}


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
        platform.processor() or platform.machine(),
    )


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Measures as JSON knows them."""
    return {name: _number(value) for name, value in values.items()}


def _number(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _number(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_number(item) for item in value]
    return round(value, 6) if isinstance(value, float) else value
