"""`HierarchicalClassifier` beside hiclass: the same TF-IDF features, the same splits, accuracy and time.

    python benchmarks/versus_hiclass.py --data trec icd10cm --threads 1     measures, appends to results/hiclass.csv
    python benchmarks/versus_hiclass.py --page                              writes the table of the documentation

Seconds are the processor's, summed over threads, beside those of the clock: other programs on the machine slow the
clock far more. hiclass trains one logistic regression per parent (its
`LocalClassifierPerParentNode`); ours is one linear head, or one with a hidden layer before it, for the whole tree.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hiclass import LocalClassifierPerParentNode
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

import arbormax as am
from arbormax.data import load
from common import append, circumstances

RESULTS = Path(__file__).parent / "results" / "hiclass.csv"
PAGE = Path(__file__).parents[1] / "docs" / "coming-from-hiclass.md"
TERMS = {"trec": {"ngram_range": (1, 2)}, "icd10cm": {"max_features": 10_000}}  # of the TF-IDF features


def contenders(regularisation: float) -> dict[str, Any]:
    """What is compared, by name."""
    regression = LogisticRegression(C=regularisation, max_iter=1000)
    hiclass = f"hiclass LocalClassifierPerParentNode(LogisticRegression(C={regularisation:g}))"
    return {
        hiclass: LocalClassifierPerParentNode(regression),
        "arbormax HierarchicalClassifier(hidden=(256,))": am.HierarchicalClassifier(hidden=(256,), accelerator="cpu"),
        "arbormax HierarchicalClassifier()": am.HierarchicalClassifier(accelerator="cpu"),
    }


def paths(tax: am.Taxonomy, nodes: np.ndarray) -> np.ndarray:
    """(n, depth) rows of names, as hiclass takes them."""
    rows = {node: [*tax.path(node), *[""] * tax.depth][: tax.depth] for node in np.unique(nodes).tolist()}
    return np.array([rows[node] for node in nodes.tolist()])


def measure(data: str, name: str, clf: Any, threads: int, items: int | None) -> dict[str, object]:
    found = load(data)
    tax, train = found.taxonomy, found.train
    if items is not None and items < len(train):
        train = train.take(np.sort(np.random.default_rng(0).permutation(len(train))[:items]))
    vectoriser = TfidfVectorizer(sublinear_tf=True, token_pattern=r"(?u)\b\w+\b", dtype=np.float32, **TERMS[data])
    X, X_test = vectoriser.fit_transform(train.inputs), vectoriser.transform(found.test.inputs)
    y = paths(tax, train.nodes)
    with threadpool_limits(threads), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clock = [(time.perf_counter(), time.process_time())]
        clf.fit(X, y)
        clock.append((time.perf_counter(), time.process_time()))
        predicted = clf.predict(X_test)
        clock.append((time.perf_counter(), time.process_time()))
    seconds = np.diff(clock, axis=0).round(3)
    known = {tuple(name for name in tax.path(node) if name): node for node in tax.leaves.tolist()}
    nodes = np.array([known.get(tuple(name for name in row if name), 0) for row in predicted.tolist()])
    measures = am.metrics.evaluate(found.test.nodes, nodes, tax)
    return {
        "data": data,
        "contender": name,
        "train": X.shape[0],
        "test": X_test.shape[0],
        "features": X.shape[1],
        "classes": tax.num_leaves,
        "threads": threads,
        "accuracy": round(measures["accuracy"], 4),
        "macro_f1": round(measures["macro_f1"], 4),
        "hf": round(measures["hf"], 4),
        "fit_seconds": seconds[0, 1],
        "predict_seconds": seconds[1, 1],
        "fit_clock_seconds": seconds[0, 0],
        "predict_clock_seconds": seconds[1, 0],
    }


def write_table() -> None:
    """Put the latest row of each contender on each data into the page."""
    with RESULTS.open(newline="") as stream:
        latest = {(row["data"], int(row["train"]), row["contender"]): row for row in csv.DictReader(stream)}
    lines = [
        "| data | training texts, features | | accuracy | macro-F1 | hF | fit | predict |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (data, train, name), row in sorted(latest.items()):
        package, call = name.split(" ", 1)
        marks = " | ".join(f"{float(row[column]):.4f}" for column in ("accuracy", "macro_f1", "hf"))
        spent = " | ".join(f"{float(row[column]):.3g} s" for column in ("fit_seconds", "predict_seconds"))
        lines.append(f"| {data} | {train:,}, {int(row['features']):,} | {package}: `{call}` | {marks} | {spent} |")
    text = PAGE.read_text("utf-8")
    before, rest = text.split("<!-- table:begin -->")
    PAGE.write_text(
        "\n".join([f"{before}<!-- table:begin -->", *lines, "<!-- table:end -->"])
        + rest.split("<!-- table:end -->")[1],
        "utf-8",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", choices=list(TERMS), default=list(TERMS))
    parser.add_argument("--only", default="", help="contenders with this in their names")
    parser.add_argument("--regularisation", type=float, default=10.0, help="C of the logistic regressions")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--items", type=int, help="train on so many texts, drawn at random; None: on all")
    parser.add_argument("--page", action="store_true", help="write the table of docs/coming-from-hiclass.md")
    given = parser.parse_args()
    if given.page:
        write_table()
        return
    torch.set_num_threads(given.threads)
    where = circumstances("hiclass", "scikit-learn", "torch")
    for data in given.data:
        for name, clf in contenders(given.regularisation).items():
            if given.only in name:
                row = measure(data, name, clf, given.threads, given.items)
                print(row, flush=True)
                append(RESULTS, [{**row, **where}])


if __name__ == "__main__":
    main()
