"""One training of the study and its record."""

from __future__ import annotations

import time
from dataclasses import asdict
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from heads_study.contenders import embed
from heads_study.jobs import about, pack, plain

import arbormax as am
from arbormax.data.datasets import load_split, load_taxonomy
from arbormax.errors import InputError
from when_study.plan import Job
from when_study.trees import make_labels, make_tree


@lru_cache(maxsize=2)
def read(dataset: str, model: str, package: str) -> tuple[am.Taxonomy, Any, Any, np.ndarray, np.ndarray]:
    """The taxonomy, the inputs of both splits, and their classes."""
    tax, train, test = load_taxonomy(dataset), load_split(dataset, "train"), load_split(dataset, "test")
    classes = [tax.class_of[part.nodes] for part in (train, test)]
    if min(found.min() for found in classes) < 0:
        raise InputError(f"{dataset}: a text has a label that is no class")
    inputs = [part.inputs for part in (train, test)]
    if model == "minilm":
        device = "cuda" if torch.cuda.is_available() else "cpu"
        inputs = [embed(texts, package, device).numpy() for texts in inputs]
    return tax, inputs[0], inputs[1], classes[0], classes[1]


def run(job: Job, package: str) -> dict[str, Any]:
    """Train, evaluate on the original taxonomy, and return the record."""
    torch.set_num_threads(1)
    tax, train, test, train_classes, test_classes = read(job.dataset, job.model, package)
    start = time.perf_counter()
    tree = make_tree(tax, job.tree, job.seed)
    places, labels = make_labels(tree, train_classes, job.share, job.rest, job.seed)
    if job.model == "minilm":
        clf = am.HierarchicalClassifier(taxonomy=tree, head=job.head, solver="adam", seed=job.seed)
        clf.fit(train[places], labels)
    else:
        clf = am.TextClassifier(taxonomy=tree, head=job.head, seed=job.seed)
        clf.fit([train[place] for place in places], labels)
    predicted = clf.predict_proba(test).argmax(1)  # the classes of every tree have the same order
    measures = am.metrics.evaluate(tax.leaves[test_classes], tax.leaves[predicted], tax)
    return {
        **asdict(job),
        "setting": job.setting,
        "examples": len(places),
        "seconds": round(time.perf_counter() - start, 1),
        **{name: plain(measures[name]) for name in ("accuracy", "macro_f1", "hf", "tree_distance", "mistake_severity")},
        **about("auto" if torch.cuda.is_available() else "cpu"),
        "predicted": pack(predicted),
    }
