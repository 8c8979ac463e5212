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

__all__ = ["CONTENDERS", "predict"]

_NEIGHBOURS = (1, 3, 5, 10, 20, 50)
_SHARPNESS = (1.0, 10.0, 30.0)  # of the neighbours' weights, exp(sharpness × cosine)


def predict(job: Job, tax: Taxonomy, train: Examples, test: Examples, models: Mapping[str, str]) -> np.ndarray:
    """(n,) the predicted nodes of the evaluated texts."""
    name = job.arm.model
    if name == "knn":
        return _neighbours(train, test, models["minilm"], tax.num_nodes)
    if name == "fasttext":
        return _fasttext(train, test, job.seed)
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline, make_union
    from sklearn.svm import LinearSVC

    terms = [TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, dtype=np.float32)]
    if name == "svc-characters":
        terms.append(TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True, dtype=np.float32))
    machine = make_pipeline(make_union(*terms), LinearSVC(random_state=job.seed)).fit(train.inputs, train.nodes)
    return np.asarray(machine.predict(test.inputs))


def _fasttext(train: Examples, test: Examples, seed: int) -> np.ndarray:
    """fastText's softmax with words, word pairs and subwords; the other settings are those of its tutorial."""
    import fasttext

    def words(text: str) -> str:
        return " ".join(re.findall(r"\w+|[^\w\s]", text.lower()))

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "train.txt"
        pairs = zip(train.inputs, train.nodes.tolist(), strict=True)
        file.write_text("".join(f"__label__{node} {words(text)}\n" for text, node in pairs), "utf-8")
        model = fasttext.train_supervised(
            str(file), lr=0.5, epoch=25, wordNgrams=2, minn=2, maxn=5, bucket=500_000, thread=1, seed=seed, verbose=0
        )
        labels, _ = model.predict([words(text) for text in test.inputs])
    return np.array([int(found[0].removeprefix("__label__")) for found in labels])


def _neighbours(train: Examples, test: Examples, model: str, nodes: int) -> np.ndarray:
    """A vote of the nearest training texts; held-out training texts select their number and weights."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    vectors, queries = (_embed(part.inputs, model, device) for part in (train, test))
    labels = torch.from_numpy(train.nodes).to(device)
    outside = choose_held_out(train.nodes, HELD_OUT, seed=0)
    inside = np.setdiff1d(np.arange(len(train)), outside)
    known, held = (torch.from_numpy(places).to(device) for places in (inside, outside))
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
def _embed(texts: list[str], model: str, device: str) -> torch.Tensor:
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
