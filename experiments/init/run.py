"""Cross-validated comparison of the heads' starts on the training splits of TREC and Reuters-52."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import statistics
import warnings
from pathlib import Path

import numpy as np
import torch
from sklearn.model_selection import KFold
from torch import Tensor, nn

import arbormax as am

HEADS = {"hierarchical": am.HierarchicalSoftmax, "flat": am.FlatSoftmax, "shared": am.SharedSoftmax}
RATES = {"trec": 3e-3, "r52": 3e-3, "icd10cm": 3e-3}


class AveragedWords(nn.Module):
    def __init__(self, vectors: Tensor, head: nn.Module) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag.from_pretrained(vectors.clone(), freeze=False, mode="mean", padding_idx=0)
        self.dropout = nn.Dropout(0.3)
        self.head = head

    def features(self, tokens: Tensor, starts: Tensor) -> Tensor:
        return self.dropout(self.words(tokens, starts))


def read(folder: Path) -> tuple[am.Taxonomy, list[list[str]], np.ndarray]:
    tax = am.Taxonomy.load(folder / "taxonomy.json")
    rows = [line.split("\t", 1) for line in (folder / "train.tsv").read_text("utf-8").splitlines()]
    nodes = tax.find_many(label for label, _ in rows)
    return tax, [text.lower().split() for _, text in rows], tax.class_of[nodes]


def read_icd10cm() -> tuple[am.Taxonomy, list[list[str]], np.ndarray]:
    """Titles of all ICD-10-CM codes, each with its three-character category as class."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package reads its data through a deprecated module
        import simple_icd_10_cm as icd
    paths, texts = [], []
    stack = [(code, (), True) for code in reversed(icd.get_all_codes(True)) if icd.is_chapter(code)]
    while stack:
        code, path, is_block = stack.pop()
        inside = path and not path[-1][1]  # below a category the path stays the category's
        path = path if inside else (*path, (code, is_block and icd.is_chapter_or_block(code)))
        if not path[-1][1]:
            paths.append(tuple(name for name, _ in path))
            texts.append(icd.get_description(code, prioritize_blocks=False).lower().replace(",", " ").split())
        for child in reversed(icd.get_children(code, prioritize_blocks=is_block)):
            stack.append((child, path, is_block and child != code))
    tax = am.Taxonomy.from_paths(list(dict.fromkeys(paths)))
    return tax, texts, tax.class_of[tax.find_many(paths)]


def encode(texts: list[list[str]], glove: dict[str, np.ndarray]) -> tuple[list[Tensor], Tensor]:
    """Word numbers of each text, and a vector per word: its own, or zero where GloVe has none."""
    vocabulary = {"": 0}
    rows = [[vocabulary.setdefault(word, len(vocabulary)) for word in words] for words in texts]
    size = len(next(iter(glove.values())))
    vectors = np.stack([glove.get(word, np.zeros(size, np.float32)) for word in vocabulary])
    return [torch.tensor(row) for row in rows], torch.from_numpy(vectors)


def fit(
    tax: am.Taxonomy,
    rows: list[Tensor],
    y: Tensor,
    vectors: Tensor,
    folds: tuple,
    head: str,
    init: str,
    seed: int,
    rate: float,
    epochs: int,
) -> dict[str, float]:
    torch.manual_seed(seed)
    model = AveragedWords(vectors, HEADS[head](vectors.shape[1], tax, init=init))
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    train, valid = folds

    def batch(items: np.ndarray) -> tuple[Tensor, Tensor]:
        lengths = torch.tensor([len(rows[i]) for i in items])
        return torch.cat([rows[i] for i in items]), lengths.cumsum(0) - lengths

    for _ in range(epochs):
        for part in torch.randperm(len(train)).split(64 if len(train) < 20_000 else 256):
            items = train[part.numpy()]
            optimiser.zero_grad()
            model.head.loss(model.features(*batch(items)), y[items]).backward()
            optimiser.step()
    model.eval()
    with torch.no_grad():
        features = model.features(*batch(valid))
        logp = model.head(features)
        truth, found = tax.leaves[y[valid].numpy()], tax.leaves[logp.argmax(-1).numpy()]
        values = am.metrics.evaluate(truth, found, tax)
        nll = float(model.head.loss(features, y[valid]))
    return {"nll": nll, **{name: values[name] for name in ("macro_f1", "accuracy", "hf")}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--datasets", nargs="+", default=["trec", "r52"])
    parser.add_argument("--folds", type=int, default=4, help="how many of the four folds to run")
    parser.add_argument("--heads", nargs="+", default=list(HEADS))
    args = parser.parse_args()
    data = Path(os.environ["ARBORMAX_DATA"])
    archive = np.load(data / "glove" / "glove.6B.50d.subset.npz")
    words = archive["words"].item().decode("utf-8").split("\n")
    glove = dict(zip(words, archive["vectors"].astype(np.float32), strict=True))
    out = Path(__file__).parent / "results" / f"{'-'.join(args.datasets)}-{args.epochs}.jsonl"
    out.parent.mkdir(exist_ok=True)
    records = []
    with out.open("w") as file:
        for dataset in args.datasets:
            tax, texts, classes = read_icd10cm() if dataset == "icd10cm" else read(data / dataset)
            rows, vectors = encode(texts, glove)
            if dataset == "icd10cm":  # few of its words are among the vectors at hand
                vectors = 0.1 * torch.randn(len(vectors), 128, generator=torch.Generator().manual_seed(0))
            print(f"{dataset}: {tax}, {len(rows):,} texts, {len(vectors):,} words", flush=True)
            y = torch.from_numpy(classes)
            for seed in range(args.seeds):
                splits = KFold(4, shuffle=True, random_state=seed).split(rows)
                for fold, folds in enumerate(itertools.islice(splits, args.folds)):
                    for head in args.heads:
                        for init in ("zeros", "paper", "torch"):
                            values = fit(tax, rows, y, vectors, folds, head, init, seed, RATES[dataset], args.epochs)
                            record = {"dataset": dataset, "head": head, "init": init, "seed": seed, "fold": fold}
                            records.append({**record, **values, "torch": torch.__version__, "arbormax": am.__version__})
                            file.write(json.dumps(records[-1]) + "\n")
                            file.flush()
    runs = args.folds * args.seeds
    print(f"mean ± standard deviation over {runs} folds, {args.epochs} epochs, {platform.machine()} CPU\n")
    print("| dataset | head | start | macro-F1 | accuracy | NLL |\n|---|---|---|---|---|---|")
    for dataset in args.datasets:
        for head in args.heads:
            for init in ("zeros", "paper", "torch"):
                mine = [r for r in records if (r["dataset"], r["head"], r["init"]) == (dataset, head, init)]
                cells = []
                for name, scale, digits in (("macro_f1", 100, 1), ("accuracy", 100, 1), ("nll", 1, 3)):
                    values = [scale * record[name] for record in mine]
                    mean, spread = statistics.mean(values), statistics.stdev(values)
                    cells.append(f"{mean:.{digits}f} ± {spread:.{digits}f}")
                print(f"| {dataset} | {head} | {init} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
