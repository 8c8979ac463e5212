"""What the study trains: arms, the settings of each model on each dataset, and the order of the jobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

Part = Literal["valid", "test"]

IMAGES = "grocery"  # photographs; the others are texts
DATASETS = ("trec", "r8", "r52", "soc2020", "20ng", "icd10cm", IMAGES)
MODELS = ("minilm", "mpnet", "bag", "tfidf")
IMAGE_MODELS = ("efficientnet", "features")  # fine-tuned, and a linear model of the frozen features
IMAGE_CONTENDERS = ("svc-images", "knn-images")
CONTENDERS = ("svc-words", "svc-characters", "fasttext", "knn", *IMAGE_CONTENDERS)
SHARES = (0.3, 0.6)  # the shares of the loss on the path, of which held-out training texts select one
HELD_OUT = 0.15  # of the training texts, for every choice
SEEDS = 5


@dataclass(frozen=True)
class Arm:
    """A model with a head, the texts of nodes, and a share of the loss on the path."""

    model: str
    head: str = ""  # contenders have none
    names: bool = False
    path: float = 0.0
    rate: float = 0.0  # a learning rate to try; 0: the selected one

    @property
    def name(self) -> str:
        """The name in files and tables; the share of the path is a choice and not part of it."""
        parts = (self.model, self.head, "names" if self.names else "", "path" if self.path else "")
        return "-".join(filter(None, parts))


@dataclass(frozen=True)
class Job:
    """One training, evaluated on held-out training texts or on the test texts."""

    dataset: str
    arm: Arm
    part: Part = "test"
    seed: int = 0

    @property
    def file(self) -> str:
        tried = [f"{value:g}" for value in (self.arm.path, self.arm.rate) if self.part == "valid" and value]
        return f"{self.dataset}/{self.part}/{self.arm.name}{'-'.join(tried)}-seed{self.seed}.json"


_TRANSFORMER = {"head_learning_rate": 2e-3, "warmup": 0.1, "precision": "bf16-mixed", "validation": 0.0}
_TOKENS = {"trec": 64, "soc2020": 64, "icd10cm": 64, "r8": 128, "r52": 128, "20ng": 256}
_BATCH = {"soc2020": 128, "icd10cm": 128}  # otherwise 64
_EPOCHS = {"icd10cm": 3, "20ng": 5}
# Selected on training texts before this study: benchmarks/finetune.py (trec, soc2020, r52: 15 % held out) and
# experiments/paper (r8, 20ng: four folds); icd10cm has the default of the encoder.
_RATES = {
    "minilm": {"trec": 1e-4, "r8": 2e-4, "r52": 2e-4, "soc2020": 2e-4, "20ng": 2e-4, "icd10cm": 1e-4},
    "mpnet": {"trec": 1e-4, "r8": 5e-5, "r52": 5e-5, "soc2020": 1e-4, "20ng": 5e-5, "icd10cm": 5e-5},
}


def fits(model: str, dataset: str) -> bool:
    """Whether a model reads the inputs of a dataset."""
    return (model in (*IMAGE_MODELS, *IMAGE_CONTENDERS)) == (dataset == IMAGES)


def image_settings(arm: Arm) -> dict[str, Any]:
    """The settings of EfficientNet-Lite0; the validation split selected the learning rate."""
    return {"epochs": 30, "batch_size": 64, "learning_rate": arm.rate or 3e-3, "head_rate": 1e-3}


def settings(arm: Arm, dataset: str, seed: int) -> dict[str, Any]:
    """The settings of a training; the models of a transformer are set by the runner."""
    if arm.model == "efficientnet":
        return {"seed": seed, "head": arm.head, "path_weight": arm.path, **image_settings(arm)}
    chosen: dict[str, Any] = {"seed": seed, "head": arm.head, "names": "init" if arm.names else None}
    if arm.path:
        chosen["path_weight"] = arm.path
    if arm.model not in _RATES:
        return {"encoder": arm.model, **chosen}
    is_long = (arm.model, dataset) == ("mpnet", "20ng")
    return {
        **_TRANSFORMER,
        **chosen,
        "encoder": "transformer",
        "encoder_options": {"max_length": 384 if is_long else _TOKENS[dataset]},
        "epochs": 4 if is_long else _EPOCHS.get(dataset, 8),
        "batch_size": _BATCH.get(dataset, 64),
        "learning_rate": _RATES[arm.model][dataset],
    }


def arms(model: str) -> list[Arm]:
    """The arms of a model in the order of the tables; SHARES[0] stands for the share that is selected."""
    path = SHARES[0]
    if model in CONTENDERS:
        return [Arm(model)]
    if model == "tfidf":  # the convex solver has no loss on the path
        return [Arm(model, head, names) for head in ("blended", "flat", "hierarchical") for names in (False, True)]
    if model == "features":
        return [Arm(model, head) for head in ("flat", "shared", "hierarchical", "blended")]
    if model == "mpnet":
        return [Arm(model, head, True) for head in ("flat", "shared")]
    texts = (False,) if model == "efficientnet" else (False, True)  # it cannot embed the texts of nodes
    found = [Arm(model, head, names) for head in ("flat", "shared", "hierarchical") for names in texts]
    return found + [Arm(model, head, names, path) for head in ("flat", "shared") for names in texts]


def share_jobs(dataset: str, model: str) -> list[Job]:
    """The trainings that select the share of the path: the flat head without texts."""
    return [Job(dataset, Arm(model, "flat", path=share), "valid") for share in SHARES]


def rate_jobs(model: str) -> list[Job]:
    """The trainings that selected the learning rate of the images' network."""
    rates = (3e-4, 1e-3, 3e-3) if model == "efficientnet" else ()
    return [Job(IMAGES, Arm(model, head, rate=rate), "valid") for head in ("flat", "hierarchical") for rate in rates]


def test_jobs(dataset: str, model: str, share: float, seeds: int) -> Iterator[Job]:
    """All arms in the order of the seeds, so that a run without time has complete seeds."""
    for seed in range(seeds):
        for arm in arms(model):
            yield Job(dataset, replace(arm, path=share) if arm.path else arm, "test", seed)


def valid_jobs(dataset: str, model: str) -> list[Job]:
    """One training of each arm without a path, evaluated on held-out training texts, for the weights of a blend."""
    return [Job(dataset, arm, "valid") for arm in arms(model) if not arm.path]
