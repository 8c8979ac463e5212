"""A graph, the tree of its first parents and a flat softmax on definitions of WordNet; one JSON record for each run.

python experiments/trees/graph/run.py --seeds 5
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

import arbormax as am
from arbormax.data import load
from arbormax.heads import HEADS, TreeHead

RESULTS = Path(__file__).parent / "results"
BRANCH = "physical entity"  # the part of the graph that is used
# The same for all methods, and fixed before the first of the records in `results`.
SETTINGS = {"features": 96, "epochs": 30, "batch_size": 256, "learning_rate": 0.01}
FEATURES, EPOCHS, BATCH = (int(SETTINGS[name]) for name in ("features", "epochs", "batch_size"))
MEASURES = ("accuracy", "macro_f1", "hf", "tree_distance", "mistake_severity")
# name: (which hierarchy, head)
METHODS = {
    "graph": ("graph", "hierarchical"),
    "tree": ("tree", "hierarchical"),
    "flat": ("graph", "flat"),
    "shared": ("graph", "shared"),
}


class Task:
    """Features of the definitions and their classes, in one part of the graph."""

    def __init__(self) -> None:
        data = load("wordnet")
        whole = data.taxonomy
        assert isinstance(whole, am.Graph)
        self.graph = whole.below(BRANCH)
        class_of = {name: number for number, name in enumerate(self.graph.classes)}
        texts, self.classes = {}, {}
        for split, examples in (("train", data.train), ("test", data.test)):
            names = [whole.names[node] for node in examples.nodes.tolist()]
            kept = [place for place, name in enumerate(names) if name in class_of]
            texts[split] = [examples.inputs[place] for place in kept]
            self.classes[split] = torch.tensor([class_of[names[place]] for place in kept])
        terms = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), min_df=2)
        svd = TruncatedSVD(FEATURES, random_state=0)
        train = svd.fit_transform(terms.fit_transform(texts["train"]))
        test = svd.transform(terms.transform(texts["test"]))
        scale = train.std()
        self.features = {
            "train": torch.tensor(train / scale, dtype=torch.float32),
            "test": torch.tensor(test / scale, dtype=torch.float32),
        }


def train(head: TreeHead, task: Task, seed: int) -> float:
    """Train the head, and return the seconds it took."""
    h, target = task.features["train"], task.classes["train"]
    optimizer = torch.optim.Adam(head.parameters(), SETTINGS["learning_rate"])
    generator = torch.Generator().manual_seed(seed)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, EPOCHS * -(-len(h) // BATCH))
    started = time.perf_counter()
    for _ in range(EPOCHS):
        for items in torch.randperm(len(h), generator=generator).split(BATCH):
            optimizer.zero_grad()
            head.loss(h[items], target[items]).backward()
            optimizer.step()
            schedule.step()
    return time.perf_counter() - started


def run(method: str, seed: int, task: Task) -> dict[str, Any]:
    """Train one method, and measure its classes on the graph."""
    kind, name = METHODS[method]
    graph = task.graph
    tax = graph if kind == "graph" else graph.to_tree()
    assert tax.classes == graph.classes
    torch.manual_seed(seed)
    head = HEADS[name](FEATURES, tax)
    seconds = train(head, task, seed)
    truth = task.classes["test"].numpy()
    with torch.no_grad():
        logp = head(task.features["test"]).numpy()
    predicted = logp.argmax(1)
    several = graph.path_counts[graph.leaves[truth]] > 1
    values = am.metrics.evaluate(graph.leaves[truth], graph.leaves[predicted], graph)
    return {
        "method": method,
        "seed": seed,
        "branch": BRANCH,
        "settings": SETTINGS,
        "versions": {"torch": str(torch.__version__), "arbormax": am.__version__},
        "graph": repr(graph),
        "train": len(task.classes["train"]),
        "test": len(truth),
        **{measure: values[measure] for measure in MEASURES},
        "nll": float(-logp[np.arange(len(truth)), truth].mean()),
        "accuracy_several_paths": float((predicted == truth)[several].mean()),
        "nll_several_paths": float(-logp[np.arange(len(truth)), truth][several].mean()),
        "items_several_paths": int(several.sum()),
        "rows": len(head.row_nodes()),
        "seconds": round(seconds, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    options = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    task = Task()
    for seed in range(options.seeds):
        for method in options.methods:
            path = RESULTS / f"{method}-{seed}.json"
            if not path.exists():
                path.write_text(json.dumps(run(method, seed, task), indent=2) + "\n")
                print(path.name, flush=True)


if __name__ == "__main__":
    main()
