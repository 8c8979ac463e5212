"""A graph, the tree of its first parents and a flat softmax on definitions of WordNet; one JSON record for each run.

python experiments/trees/graph/run.py --seeds 3
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

import arbormax as am
from arbormax.data import load

RESULTS = Path(__file__).parent / "results"
MEASURES = ("accuracy", "macro_f1", "hf", "tree_distance", "mistake_severity")

# name: (which hierarchy, settings)
_ADAM = {"encoder": "bag", "solver": "adam"}
METHODS = {
    "graph": ("graph", {"head": "hierarchical", **_ADAM}),
    "tree": ("tree", {"head": "hierarchical", **_ADAM}),
    "flat": ("graph", {"head": "flat", **_ADAM}),
    "shared": ("graph", {"head": "shared", **_ADAM}),
    "tree-default": ("tree", {}),
}


def run(method: str, seed: int) -> dict:
    """Train one method, and measure its classes on the graph."""
    data = load("wordnet")
    graph = data.taxonomy
    kind, settings = METHODS[method]
    tax = graph if kind == "graph" else graph.to_tree()
    labels = [graph.classes[c] for c in graph.class_of[data.train.nodes]]
    started = time.perf_counter()
    clf = am.TextClassifier(taxonomy=tax, seed=seed, calibration="none", **settings).fit(data.train.inputs, labels)
    seconds = time.perf_counter() - started
    logp = clf.predict_log_proba(data.test.inputs)  # (n, C): both hierarchies have the same class order
    predicted = graph.leaves[logp.argmax(1)]
    truth = data.test.nodes
    several = graph.path_counts[truth] > 1
    values = am.metrics.evaluate(truth, predicted, graph)
    return {
        "method": method,
        "seed": seed,
        "settings": settings,
        "train": len(data.train),
        "test": len(data.test),
        **{name: values[name] for name in MEASURES},
        "nll": float(-logp[np.arange(len(truth)), graph.class_of[truth]].mean()),
        "accuracy_several_paths": float((predicted == truth)[several].mean()),
        "items_several_paths": int(several.sum()),
        "parameters": clf.model_.num_parameters,
        "epochs": clf.n_iter_,
        "seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    options = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    for seed in range(options.seeds):
        for method in options.methods:
            path = RESULTS / f"{method}-{seed}.json"
            if not path.exists():
                path.write_text(json.dumps(run(method, seed), indent=2) + "\n")
                print(path.name, flush=True)


if __name__ == "__main__":
    main()
