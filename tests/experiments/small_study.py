"""A study that runs in a moment: made-up texts with the labels of Reuters-8, and arms that cost next to nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from study import Machine, Study, run_studies

from arbormax.data.datasets.trees import tree

LABELS = tree("r8").classes
CPU = Machine(accelerator="cpu")
BAG = {
    "name": "bag",
    "encoder": "bag",
    "heads": ["flat", "hierarchical"],
    "settings": {"epochs": 2, "batch_size": 8, "schedule": "constant", "encoder_options.dim": 4},
    "grid": {"learning_rate": [0.02, 0.1]},
    "seeds": 2,
}
SVC = {
    "name": "svc",
    "encoder": "svc",
    "heads": ["svc"],
    "early": False,
    "settings": {"ngrams": 2},
    "grid": {"C": [0.3, 1.0]},
    "seeds": 1,
    "device": "cpu",
}
LSTM = {
    "name": "lstm",
    "encoder": "lstm",
    "heads": ["flat"],
    "settings": {
        "epochs": 2,
        "batch_size": 8,
        "schedule": "constant",
        "encoder_options.hidden": 4,
        "encoder_options.vectors": "glove.6B",
    },
    "seeds": 1,
}
ONE_BAG = {**BAG, "heads": ["flat"], "grid": {}, "seeds": 1}  # two folds and one measurement


def study(*arms: dict[str, Any], **given: Any) -> Study:
    """A study of Reuters-8 with two folds."""
    return Study(**{"dataset": "r8", "folds": 2, "arms": arms or (BAG, SVC), **given})


def run(study: Study, results: Path, **given: Any) -> bool:
    return run_studies([study], results, **{"machine": CPU, "command": "arbormax reproduce r8", **given})


def put_split(root: Path, split: str, count: int = 48, seed: int = 0, shift: int = 0) -> Path:
    """Texts of which two words tell the class and two mislead; `shift` gives every class the words of another."""
    draw = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        word = (number + shift) % len(LABELS)
        words = [f"word{word}", f"also{word}", *(f"word{other}" for other in draw.integers(0, len(LABELS), 2))]
        rows.append(f"{LABELS[number % len(LABELS)]}\t{' '.join(draw.permutation(words))}\n")
    path = root / "r8" / f"{split}.tsv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(rows), "utf-8")
    return path


def put_vectors(root: Path, name: str = "glove.6B.100d.subset.npz", dim: int = 3) -> Path:
    """Vectors of some of the words, in an archive or as GloVe's text."""
    words = [f"word{number}" for number in range(len(LABELS))]
    matrix = np.random.default_rng(dim).normal(size=(len(words), dim)).astype(np.float32)
    path = root / "glove" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npz":
        np.savez(path, words=np.array("\n".join(words).encode()), vectors=matrix)
    else:
        lines = [f"{word} {' '.join(map(str, row))}\n" for word, row in zip(words, matrix.tolist(), strict=True)]
        path.write_text("".join(lines), "utf-8")
    return path


def records(results: Path, kind: str = "*") -> dict[str, dict[str, Any]]:
    """What was written, by the name of its file: `folds`, `choices`, `runs` or all of them."""
    return {
        path.relative_to(results / "r8").as_posix(): json.loads(path.read_text("utf-8"))
        for path in sorted((results / "r8").glob(f"{kind}/*.json"))
    }


def outcomes(results: Path) -> dict[str, Any]:
    """What came of every training: the curves of the folds, the predictions on the test texts."""
    found = records(results)
    return {name: found[name].get("curve") or found[name].get("predicted") for name in found}
