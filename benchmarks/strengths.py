"""The search for the strength of the convex solver, with warm starts and without, and two solvers of its SVMs.

`strength="auto"` starts the multinomial regression of each strength from the solution of the last one. This is compared
with separate trainings, one for each strength of the search: TF-IDF of words, hierarchical head, a tenth of the
training texts held out. liblinear has no warm starts: the time that it takes for the SVMs of the top level is compared
with that of L-BFGS, which could have them, and which the solver uses with `parent_prior`. No test texts are read. Times
are seconds of one processor core. Rows are appended to benchmarks/results/strengths.csv.

    python benchmarks/strengths.py
    python benchmarks/strengths.py --datasets trec --show
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

import arbormax as am
from arbormax.data.datasets import load_split, load_taxonomy
from arbormax.training.priors import fit_towards
from common import append, circumstances
from defaults import words

RESULTS = Path(__file__).parent / "results" / "strengths.csv"
STRENGTHS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)  # that `strength="auto"` tries
STRENGTH = 2.0  # of the SVMs


def train(tax: am.Taxonomy, X: Any, y: list[str], **settings: Any) -> tuple[float, float]:
    """Seconds of a training, and the held-out loss."""
    clf = am.HierarchicalClassifier(tax, head="hierarchical", validation=0.1, refit=False, seed=0, **settings)
    start = time.process_time()
    clf.fit(X, y)
    return time.process_time() - start, clf.run_.curve[0]["loss"]


def search(tax: am.Taxonomy, X: Any, y: list[str]) -> Iterator[dict[str, object]]:
    """The search with warm starts, and the trainings that it would have without them."""
    seconds, loss = train(tax, X, y, convex_loss="log", strength="auto")
    yield {"solver": "regression, warm starts", "strength": "auto", "seconds": seconds, "loss": loss}
    losses: list[float] = []
    for strength in STRENGTHS:
        seconds, loss = train(tax, X, y, convex_loss="log", strength=strength)
        yield {"solver": "regression", "strength": strength, "seconds": seconds, "loss": loss}
        losses.append(loss)
        if losses[-1] > min(losses):
            break


def solvers(tax: am.Taxonomy, X: Any, nodes: np.ndarray) -> Iterator[dict[str, object]]:
    """The SVMs of the top level by liblinear and by L-BFGS."""
    top = tax.ancestor_at(nodes, 1)
    start = time.process_time()
    clf = LinearSVC(C=STRENGTH, tol=1e-2).fit(X, top)
    seconds = time.process_time() - start
    yield {"solver": "SVM, liblinear", "strength": STRENGTH, "seconds": seconds, "loss": ""}
    start = time.process_time()
    fit_towards(X, top[:, None] == clf.classes_, None, STRENGTH, np.zeros((len(clf.classes_), X.shape[1])))
    seconds = time.process_time() - start
    yield {"solver": "SVM, L-BFGS", "strength": STRENGTH, "seconds": seconds, "loss": ""}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["trec", "r52", "soc2020"])
    parser.add_argument("--show", action="store_true", help="print the rows without writing them")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for data in args.datasets:
        tax, examples = load_taxonomy(data), load_split(data, "train")
        X, y = words().fit_transform(examples.inputs), np.array(tax.classes)[tax.class_of[examples.nodes]].tolist()
        with threadpool_limits(1):
            for row in (*solvers(tax, X, examples.nodes), *search(tax, X, y)):
                rounded = {name: round(v, 4) if isinstance(v, float) else v for name, v in row.items()}
                print(data, *rounded.values(), flush=True)
                if not args.show:
                    append(RESULTS, [{"dataset": data, **rounded, **circumstances("scikit-learn", "scipy")}])


if __name__ == "__main__":
    main()
