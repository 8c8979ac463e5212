"""One fold of a dataset: its texts, the trees over its classes, and the training on each of them."""

from __future__ import annotations

import base64
import json
import platform
import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix

import arbormax as am
from arbormax.data.datasets import load_split, load_taxonomy
from arbormax.data.examples import Examples
from arbormax.data.folds import assign_folds, choose_held_out
from arbormax.encoders import TfidfEncoder
from arbormax.induce import flatten, shuffle_classes
from arbormax.model import TrainConfig
from arbormax.taxonomy import Taxonomy
from arbormax.taxonomy.distance import triplet_distance
from arbormax.training import fit
from trees_study.plan import FOLDS, PLAN


@dataclass(frozen=True, eq=False)
class Fold:
    """The texts of one fold, their TF-IDF weights, and the human tree."""

    tree: Taxonomy
    train: Examples
    test: Examples
    train_rows: csr_matrix
    test_rows: csr_matrix


def read(dataset: str) -> tuple[Taxonomy, Examples]:
    """The human tree of the classes that occur, and the training texts, or a sample of them."""
    tree, examples = load_taxonomy(dataset), load_split(dataset, "train")
    most = PLAN[dataset].most_texts
    if most is not None and len(examples) > most:
        examples = examples.take(choose_held_out(examples.nodes, most / len(examples), seed=0))
    classes = tree.class_of[examples.nodes]
    counts = np.bincount(classes, minlength=tree.num_leaves)
    examples, classes = (part.take(np.flatnonzero(counts[classes] > 1)) for part in (examples, classes))
    kept = np.unique(classes)
    own = Taxonomy.from_paths([tree.path(leaf) for leaf in tree.leaves[kept].tolist()])
    return own, Examples(examples.inputs, own.leaves[np.searchsorted(kept, classes)])


def split(tree: Taxonomy, examples: Examples, fold: int) -> Fold:
    """The parts of a fold, encoded with the vocabulary of the training part."""
    fold_n = assign_folds(examples.nodes, FOLDS, seed=0)
    train, test = (examples.take(np.flatnonzero(at)) for at in (fold_n != fold, fold_n == fold))
    encoder, rows = TfidfEncoder.fit_encode(train.inputs, TfidfEncoder.Options())
    width = encoder.out_features
    parts = [rows, encoder.encode(test.inputs)]
    matrices = [csr_matrix((part.weights, part.values, part.offsets), shape=(len(part), width)) for part in parts]
    return Fold(tree, train, test, *matrices)


def make_tree(name: str, fold: Fold, branching: int, seed: int, texts: dict[str, str]) -> Taxonomy:
    """A tree over the classes, in the order of the human tree."""
    if name == "human":
        return fold.tree
    if name == "flat":
        return flatten(fold.tree)
    if name == "shuffled":
        return shuffle_classes(fold.tree, seed)
    classes = fold.tree.classes
    labels = [classes[number] for number in fold.tree.class_of[fold.train.nodes]]
    inputs = fold.train.inputs
    return am.induce(inputs, labels, name, branching, classes=classes, texts=texts, seed=seed)


def measure(tree: Taxonomy, head: str, fold: Fold, seed: int) -> dict[str, Any]:
    """Train on one tree and measure on the human tree."""
    options = {"inputs": fold.train_rows.shape[1], "sparse": True, "scale": False}
    config = TrainConfig.make(encoder="features", encoder_options=options, head=head, seed=seed)
    classes = fold.tree.class_of[fold.train.nodes]
    started = time.process_time()
    model = fit(config, tree, Examples(fold.train_rows, tree.leaves[classes])).model
    seconds = time.process_time() - started
    batches = [batch[:, torch.tensor(tree.leaves)] for batch in model.node_log_probs(fold.test_rows)]
    logp_nC = torch.cat(batches).double().numpy()
    true_n = fold.tree.class_of[fold.test.nodes]
    predicted_n = logp_nC.argmax(1)
    found = am.metrics.evaluate(fold.test.nodes, fold.tree.leaves[predicted_n], fold.tree)
    return {
        **{name: found[name] for name in ("accuracy", "macro_f1", "hf", "mistake_severity")},
        "nll": float(-logp_nC[np.arange(len(true_n)), true_n].mean()),
        "seconds": round(seconds, 2),
        "parameters": model.num_parameters,
        "true": pack(true_n),
        "predicted": pack(predicted_n),
    }


def pack(classes: np.ndarray) -> str:
    """Class ids as text: int16 values, compressed with zlib and encoded with base64."""
    return base64.b64encode(zlib.compress(classes.astype("<i2").tobytes(), 9)).decode()


def run_fold(dataset: str, number: int, arms: Iterable[tuple[str, str]], out: Path) -> None:
    """Train what is missing of one fold."""
    plan = PLAN[dataset]
    missing = [
        (tree, head, path)
        for tree, head in arms
        if not (path := out / dataset / f"{tree}-{head}-fold{number}.json").exists()
    ]
    if not missing:
        return
    tree, examples = read(dataset)
    texts = {label: text for label, text in zip(tree.classes, _texts(dataset, tree), strict=True) if text != label}
    fold = split(tree, examples, number)
    trees: dict[str, tuple[Taxonomy, float]] = {}
    for name, head, path in missing:
        if name not in trees:
            started = time.process_time()
            trees[name] = make_tree(name, fold, plan.branching, number, texts), time.process_time() - started
        built, seconds = trees[name]
        record = {
            "dataset": dataset,
            "tree": name,
            "head": head,
            "fold": number,
            "seed": number,
            **measure(built, head, fold, number),
            "tree_seconds": round(seconds, 2),
            "nodes": built.num_nodes,
            "depth": built.depth,
            "distance": triplet_distance(built, tree),
            "fingerprint": built.fingerprint,
            "train_items": len(fold.train),
            "versions": {"arbormax": am.__version__, "torch": torch.__version__, "python": platform.python_version()},
            "command": "python experiments/trees/run.py",
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".part")
        temporary.write_text(json.dumps(record, indent=1) + "\n")
        temporary.replace(path)
        shown = " ".join(f"{100 * record[measure]:.2f}" for measure in ("accuracy", "macro_f1", "hf"))
        print(f"{path.relative_to(out)} {shown} {record['nll']:.3f} {record['seconds']:.0f} s", flush=True)


def _texts(dataset: str, tree: Taxonomy) -> list[str]:
    """The title of each class where a dataset has titles, else its label; only trees from names use them."""
    whole = load_taxonomy(dataset)
    return [whole.texts[whole.find(tree.path(leaf))] for leaf in tree.leaves.tolist()]
