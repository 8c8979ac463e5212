"""One training of the study and its record: measures, settings, device, versions and the predicted classes."""

from __future__ import annotations

import base64
import json
import os
import platform
import time
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from study.texts import add_texts

import arbormax
from arbormax.data.datasets import load_split, load_taxonomy
from arbormax.data.examples import Examples
from arbormax.data.folds import hold_out
from arbormax.functional.probabilities import flat_node_log_probs
from arbormax.model import TrainConfig
from arbormax.studies.evaluate import evaluate_log_probs
from arbormax.taxonomy import Taxonomy
from arbormax.training import Hardware, fit
from heads_study.contenders import CONTENDERS, predict
from heads_study.images import predict_contender, predict_linear, read_images, train_network
from heads_study.plan import HELD_OUT, IMAGE_CONTENDERS, IMAGE_MODELS, IMAGES, Job, Part, settings

_PACKAGES = ("torch", "transformers", "pytorch-lightning", "scikit-learn")


@dataclass(frozen=True)
class Machine:
    """Where the trainings run, and the folders or packages of the pretrained models."""

    models: Mapping[str, str]
    accelerator: str = "auto"
    probabilities: Path | None = None  # the folder of the log-probabilities of the classes, for blends


@lru_cache
def taxonomy(dataset: str) -> Taxonomy:
    """The taxonomy of a dataset, with a text for each node unless it has images."""
    if dataset == IMAGES:
        return read_images("test")[0]
    return add_texts(dataset, load_taxonomy(dataset))


def test_nodes(dataset: str) -> np.ndarray:
    """(n,) the nodes of the test split."""
    examples = read_images("test")[2] if dataset == IMAGES else load_split(dataset, "test")
    return examples.nodes


@lru_cache(maxsize=2)
def read(dataset: str, part: Part) -> tuple[Taxonomy, Examples, Examples]:
    """The taxonomy, the examples of training, and those of the evaluation."""
    if dataset == IMAGES:
        return read_images(part)
    train = load_split(dataset, "train")
    if part == "valid":
        inside, outside = hold_out(train, HELD_OUT, seed=0)
        assert outside is not None
        return taxonomy(dataset), inside, outside
    return taxonomy(dataset), train, load_split(dataset, "test")


def run(job: Job, machine: Machine) -> dict[str, Any]:
    """Train, evaluate and return the record."""
    torch.set_num_threads(1)
    tax, train, test = read(job.dataset, job.part)
    start = time.perf_counter()
    if job.arm.model in CONTENDERS:
        is_image = job.arm.model in IMAGE_CONTENDERS
        nodes = predict_contender(job.arm.model) if is_image else predict(job, tax, train, test, machine.models)
        logp = None
        measures = arbormax.metrics.evaluate(test.nodes, nodes, tax)
    else:
        logp, measures, nodes = _train(job, machine, tax, train, test)
    if logp is not None and machine.probabilities is not None:
        file = machine.probabilities / job.file.replace(".json", ".npy")
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file, logp.astype(np.float16), allow_pickle=False)
    return {
        **asdict(job),
        "name": job.arm.name,
        "seconds": round(time.perf_counter() - start, 1),
        **{name: plain(value) for name, value in measures.items()},
        "settings": settings(job.arm, job.dataset, job.seed),
        **about(machine.accelerator),
        "predicted": pack(tax.class_of[nodes]),
    }


def _train(job: Job, machine: Machine, tax: Taxonomy, train: Examples, test: Examples) -> tuple[Any, Any, np.ndarray]:
    """The (n, C) log-probabilities, the measures and the predicted nodes of a model of arbormax."""
    if job.arm.model in IMAGE_MODELS:
        return _train_image_model(job, machine, tax, train, test)
    chosen = settings(job.arm, job.dataset, job.seed)
    if job.arm.model in machine.models:
        chosen["encoder_options"] = {"model": machine.models[job.arm.model], **chosen["encoder_options"]}
    if job.arm.model == "tfidf":  # the convex solver uses the texts of a taxonomy that has some
        tax = tax if job.arm.names else replace(tax, given_texts=None)
        chosen["names"] = "init" if job.arm.names else None
    result = fit(TrainConfig.make(**chosen), tax, train, hardware=Hardware(machine.accelerator, 1))
    batches = [batch.float().cpu() for batch in result.model.node_log_probs(test.inputs)]
    found = evaluate_log_probs(batches, test, tax)
    return torch.cat(batches)[:, torch.tensor(tax.leaves)].numpy(), found.metrics, found.predicted


def _train_image_model(
    job: Job, machine: Machine, tax: Taxonomy, train: Examples, test: Examples
) -> tuple[Any, Any, np.ndarray]:
    if job.arm.model == "features":
        logp_nC = predict_linear(job.arm, tax, train, job.part, job.seed)
        logp_nN = flat_node_log_probs(torch.from_numpy(logp_nC).float(), tax)
    else:
        cuda = machine.accelerator != "cpu" and torch.cuda.is_available()
        logp_nN = train_network(job.arm, tax, train, test, job.seed, cuda)
    found = evaluate_log_probs([logp_nN], test, tax)
    return logp_nN[:, torch.tensor(tax.leaves)].numpy(), found.metrics, found.predicted


def pack(classes: np.ndarray) -> str:
    """Class ids as text: int16 values, compressed with zlib and encoded with base64."""
    return base64.b64encode(zlib.compress(classes.astype("<i2").tobytes(), 9)).decode()


def unpack(text: str) -> np.ndarray:
    """The class ids of `pack`."""
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), "<i2").astype(np.int64)


def write(record: Mapping[str, Any], job: Any, out: Path) -> None:
    """Write the record of a job with a `file` aside and rename it, so that a stopped run leaves none half-written."""
    path = out / job.file
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(record) + "\n")
    temporary.replace(path)


def about(accelerator: str) -> dict[str, Any]:
    """The device and the versions of a record."""
    cuda = accelerator != "cpu" and torch.cuda.is_available()
    versions = {"python": platform.python_version(), "arbormax": arbormax.__version__}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {"device": torch.cuda.get_device_name() if cuda else f"CPU, {os.cpu_count()} cores", "versions": versions}


def plain(value: Any) -> Any:
    """Numbers and lists of numbers with six decimals."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return round(value, 6) if isinstance(value, float) else value
