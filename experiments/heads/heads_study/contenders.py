"""What the heads are compared with: linear models, fastText, and nearest neighbours of MiniLM's embeddings."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import numpy as np
import torch

from arbormax.data.examples import Examples
from arbormax.data.folds import choose_held_out
from arbormax.encoders import ENCODERS
from arbormax.taxonomy import Taxonomy
from heads_study.plan import CONTENDERS, HELD_OUT, Job

__all__ = ["CONTENDERS", "embed", "predict"]

_NEIGHBOURS = (1, 3, 5, 10, 20, 50)
_SHARPNESS = (1.0, 10.0, 30.0)  # of the neighbours' weights, exp(sharpness × cosine)
_RATES, _EPOCHS, _SUBWORDS = (0.25, 0.5, 1.0), (25, 50), (0, 5)  # of fastText; subwords of at most so many characters
_STRENGTHS = (0.3, 1.0, 3.0)  # C of LinearSVC
_CHOSEN: dict[str, tuple[float, int, int]] = {}  # fastText's settings for each dataset


def predict(job: Job, tax: Taxonomy, train: Examples, test: Examples, models: Mapping[str, str]) -> np.ndarray:
    """(n,) the predicted nodes of the evaluated texts."""
    name = job.arm.model
    if name == "knn":
        return _neighbours(train, test, models["minilm"], tax.num_nodes)
    if name == "fasttext":
        return _fasttext(job, train, test)
    return _machine(name, train, test, job.seed)


def _machine(name: str, train: Examples, test: Examples, seed: int) -> np.ndarray:
    """LinearSVC on TF-IDF weights; held-out training texts select C."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_union
    from sklearn.svm import LinearSVC

    terms = [TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, dtype=np.float32)]
    if name == "svc-characters":
        terms.append(TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True, dtype=np.float32))
    features = make_union(*terms)
    vectors = features.fit_transform(train.inputs).tocsr()
    inside, outside = _inside_and_outside(train)

    def score(c: float) -> float:
        machine = LinearSVC(C=c, random_state=0).fit(vectors[inside], train.nodes[inside])
        return float(machine.score(vectors[outside], train.nodes[outside]))

    best = max(_STRENGTHS, key=score)
    machine = LinearSVC(C=best, random_state=seed).fit(vectors, train.nodes)
    return np.asarray(machine.predict(features.transform(test.inputs)))


def _fasttext(job: Job, train: Examples, test: Examples) -> np.ndarray:
    """fastText's softmax with words and word pairs; held-out training texts select its three main settings."""
    inside, outside = _inside_and_outside(train)
    queries = [train.inputs[i] for i in outside]

    def score(choice: tuple[float, int, int]) -> float:
        return float(np.mean(_train_fasttext(train, inside, queries, *choice, seed=0) == train.nodes[outside]))

    if job.dataset not in _CHOSEN:
        _CHOSEN[job.dataset] = max(product(_RATES, _EPOCHS, _SUBWORDS), key=score)
    return _train_fasttext(train, np.arange(len(train)), test.inputs, *_CHOSEN[job.dataset], seed=job.seed)


def _train_fasttext(
    train: Examples, rows: np.ndarray, queries: list[str], rate: float, epochs: int, subwords: int, seed: int
) -> np.ndarray:
    import fasttext

    def words(text: str) -> str:
        return " ".join(re.findall(r"\w+|[^\w\s]", text.lower()))

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "train.txt"
        lines = (f"__label__{train.nodes[i]} {words(train.inputs[i])}\n" for i in rows)
        file.write_text("".join(lines), "utf-8")
        options = {"minn": 2 if subwords else 0, "maxn": subwords, "bucket": 500_000, "wordNgrams": 2}
        model = fasttext.train_supervised(str(file), lr=rate, epoch=epochs, thread=1, seed=seed, verbose=0, **options)
        labels, _ = model.predict([words(text) for text in queries])
    return np.array([int(found[0].removeprefix("__label__")) for found in labels])


def _inside_and_outside(train: Examples) -> tuple[np.ndarray, np.ndarray]:
    """The places of the training texts that settings are fitted on, and of those that select them."""
    outside = choose_held_out(train.nodes, HELD_OUT, seed=0)
    return np.setdiff1d(np.arange(len(train)), outside), outside


def _neighbours(train: Examples, test: Examples, model: str, nodes: int) -> np.ndarray:
    """A vote of the nearest training texts; held-out training texts select their number and weights."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    vectors, queries = (embed(part.inputs, model, device) for part in (train, test))
    labels = torch.from_numpy(train.nodes).to(device)
    known, held = (torch.from_numpy(places).to(device) for places in _inside_and_outside(train))
    truth = labels[held]

    def score(choice: tuple[int, float]) -> float:
        return float((_vote(vectors[held], vectors[known], labels[known], *choice, nodes) == truth).float().mean())

    k, sharp = max(product(_NEIGHBOURS, _SHARPNESS), key=score)
    return _vote(queries, vectors, labels, k, sharp, nodes).cpu().numpy()


def _vote(
    queries: torch.Tensor, vectors: torch.Tensor, labels: torch.Tensor, k: int, sharp: float, nodes: int
) -> torch.Tensor:
    found = []
    for part in queries.split(512):
        near, place = (part @ vectors.T).topk(k)
        votes = torch.zeros(len(part), nodes, device=part.device)
        found.append(votes.scatter_add_(1, labels[place], (sharp * near).exp()).argmax(1))
    return torch.cat(found)


@torch.inference_mode()
def embed(texts: list[str], model: str, device: str) -> torch.Tensor:
    """(n, D) embeddings of length one."""
    kind = ENCODERS["transformer"]
    encoder = kind.fit([], kind.Options(model=model, freeze=True, max_length=256)).eval().to(device)
    order = np.argsort([len(text) for text in texts])
    vectors = torch.empty(len(texts), encoder.out_features, device=device)
    for start in range(0, len(texts), 256):
        part = order[start : start + 256]
        inputs = encoder.collate(encoder.encode([texts[i] for i in part]))
        vectors[torch.from_numpy(part).to(device)] = encoder(*(each.to(device) for each in inputs)).float()
    return torch.nn.functional.normalize(vectors, dim=1)
