"""What the hierarchical head needs on deep trees: MiniLM fine-tuned with several heads and options, on a GPU.

    python benchmarks/deep_head.py prepare FOLDER --model MINILM   tokenise soc2020, icd10cm and r52
    python benchmarks/deep_head.py run FOLDER --workers 15         train; results in benchmarks/results/deep_head.csv
    python benchmarks/deep_head.py chosen FOLDER --workers 8       the chosen configuration on the other datasets

All configurations train on 85 % of the training texts and are compared on the other 15 % (split "valid"). The planned
rows of the test split (split "test") train on all training texts; "chosen" is the hierarchical configuration with
adapters that has the best validation accuracy on soc2020. Several processes share one GPU: start NVIDIA MPS first.

Settings as in the reading that this benchmark follows: bfloat16, Adam 1e-4 for the encoder and 2e-3 for the head with
linear decay, mean pooling, features of length sqrt(D), no early stopping.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
import sys
import time
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass
from functools import cache
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import arbormax as am

sys.path.insert(0, str(Path(__file__).parent))
RESULTS = Path(__file__).parent / "results" / "deep_head.csv"
LENGTH = {"soc2020": 32, "icd10cm": 40, "r52": 128}
EPOCHS = {"soc2020": 8, "icd10cm": 3, "r52": 8}
BATCH = {"soc2020": 128, "icd10cm": 256, "r52": 64}


@dataclass(frozen=True)
class Job:
    """One training."""

    data: str
    split: str = "valid"
    name: str = ""
    head: str = "hierarchical"
    adapter: int = 0
    smoothing: float = 0.0
    names: bool = False  # rows start as the encoder's embeddings of the class names
    path_weight: float = 0.0
    dropout: float = 0.0
    level_factor: float = 1.0  # a level's loss weighs this much more than that of the level above
    prototypes: int = 1  # rows of each node, whose logits are joined by log-sum-exp
    head_rate: float = 2e-3
    encoder_rate: float = 1e-4
    seed: int = 0


class Prototypes(am.HierarchicalSoftmax):
    """Several rows for each node, joined by log-sum-exp: a prototype of an alternative to adapters."""

    def __init__(self, in_features: int, tax: am.Taxonomy, count: int, **options: Any) -> None:
        super().__init__(in_features, tax, **options)
        self.more = nn.Linear(in_features, (tax.num_nodes - 1) * count)
        nn.init.uniform_(self.more.weight, -0.1, 0.1)
        nn.init.zeros_(self.more.bias)

    def forward(self, h: Tensor) -> Tensor:
        return am.functional.leaf_log_probs(self._join(h), self.taxonomy)

    def loss(self, h: Tensor, target: Tensor, **options: Any) -> Tensor:  # type: ignore[override]
        return am.functional.hierarchical_cross_entropy(self._join(h), target, self.taxonomy, **options)

    def _join(self, h: Tensor) -> Tensor:
        return self.more(h).unflatten(-1, (self.taxonomy.num_nodes - 1, -1)).logsumexp(-1)


# Preparation: token ids of all texts, so that the GPU machine needs neither the datasets nor a tokeniser.


def prepare(folder: Path, model: str) -> None:
    from transformers import AutoModel, AutoTokenizer

    from arbormax.data import load

    folder.mkdir(parents=True, exist_ok=True)
    AutoModel.from_pretrained(model).half().save_pretrained(folder / "model")
    tokenizer = AutoTokenizer.from_pretrained(model)
    for name, length in LENGTH.items():
        data = load(name)
        tax = data.taxonomy
        tax.save(folder / f"{name}.json")
        arrays: dict[str, np.ndarray] = {}
        texts = {
            "train": data.train.inputs,
            "test": data.test.inputs,
            "names": [tax.texts[leaf] for leaf in tax.leaves],
        }
        for part, inputs in texts.items():
            rows = tokenizer(list(inputs), truncation=True, max_length=length)["input_ids"]
            arrays[f"{part}_lengths"] = np.array([len(row) for row in rows], np.int16)
            arrays[f"{part}_ids"] = np.concatenate([np.array(row, np.int16) for row in rows])
        for part, examples in (("train", data.train), ("test", data.test)):
            arrays[f"{part}_classes"] = tax.class_of[examples.nodes].astype(np.int16)
        np.savez_compressed(folder / f"{name}.npz", **arrays)


# Training


@dataclass(frozen=True, eq=False)
class Texts:
    """Token ids of texts, padded, on the GPU."""

    ids: Tensor  # (n, L)
    lengths: np.ndarray

    def batch(self, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        width = int(self.lengths[rows].max())
        ids = self.ids[torch.from_numpy(rows).cuda(), :width].long()
        return ids, (ids != 0).long()


@cache
def load_data(folder: Path, name: str) -> tuple[am.Taxonomy, dict[str, Texts], dict[str, Tensor]]:
    arrays = np.load(folder / f"{name}.npz")
    texts, classes = {}, {}
    for part in ("train", "test", "names"):
        lengths = arrays[f"{part}_lengths"].astype(np.int64)
        padded = np.zeros((len(lengths), lengths.max()), np.int16)
        padded[np.arange(padded.shape[1]) < lengths[:, None]] = arrays[f"{part}_ids"]
        texts[part] = Texts(torch.from_numpy(padded).cuda(), lengths)
        if part != "names":
            classes[part] = torch.from_numpy(arrays[f"{part}_classes"].astype(np.int64)).cuda()
    return am.Taxonomy.load(folder / f"{name}.json"), texts, classes


@cache
def pretrained(folder: Path) -> nn.Module:
    from transformers import AutoModel

    return AutoModel.from_pretrained(folder / "model", dtype=torch.float32).cuda()


def encode(encoder: nn.Module, ids: Tensor, mask: Tensor) -> Tensor:
    """(B, D) mean-pooled features of length sqrt(D)."""
    with torch.autocast("cuda", torch.bfloat16):
        states = encoder(input_ids=ids, attention_mask=mask).last_hidden_state
    pooled = (states.float() * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)
    return F.normalize(pooled, dim=-1) * math.sqrt(pooled.shape[1])


def batches(texts: Texts, rows: np.ndarray, size: int, draw: np.random.Generator) -> list[np.ndarray]:
    """The rows in a random order, in batches of similar length."""
    rows = draw.permutation(rows)
    found = []
    for start in range(0, len(rows), size * 20):
        chunk = rows[start : start + size * 20]
        chunk = chunk[np.argsort(texts.lengths[chunk], kind="stable")]
        found += [chunk[i : i + size] for i in range(0, len(chunk), size)]
    return [found[i] for i in draw.permutation(len(found))]


def make_head(job: Job, tax: am.Taxonomy, width: int) -> am.heads.TreeHead:
    if job.prototypes > 1:
        return Prototypes(width, tax, job.prototypes).cuda()
    options: dict[str, Any] = {"adapter": job.adapter} if job.adapter else {}
    return am.heads.HEADS[job.head](width, tax, **options).cuda()


@torch.no_grad()
def start_from_names(head: am.heads.TreeHead, encoder: nn.Module, names: Texts) -> None:
    """Leaf rows are unit embeddings of the names, inner rows means of the classes below; shared: differences."""
    tax, rows = head.taxonomy, np.arange(len(names.lengths))
    encoder.eval()
    parts = [encode(encoder, *names.batch(part)) for part in np.array_split(rows, max(1, len(rows) // 256))]
    encoder.train()
    leaves_CD = F.normalize(torch.cat(parts), dim=-1).double().cpu().numpy()
    if head.weight.shape[0] == tax.num_leaves:
        values = leaves_CD
    else:
        sums_ND = np.stack([tax.sum_up(column) for column in leaves_CD.T], axis=1)
        means_ND = sums_ND / tax.leaf_counts[:, None]
        means_ND[0] = 0.0
        values = means_ND[1:] - means_ND[tax.parent[1:]] if isinstance(head, am.SharedSoftmax) else means_ND[1:]
    head.weight.copy_(torch.from_numpy(values))


def level_weights(job: Job, tax: am.Taxonomy) -> Tensor:
    values = np.array([job.level_factor**level for level in range(tax.depth)])
    return am.functional.level_weights(tax, values / values.mean()).cuda()


def train(folder: Path, job: Job) -> dict[str, Any]:
    """Train one classifier and measure it."""
    begun = time.perf_counter()
    tax, texts, classes = load_data(folder, job.data)
    torch.manual_seed(job.seed)
    draw = np.random.default_rng(job.seed)
    order = np.random.default_rng(12345).permutation(len(classes["train"]))
    held = order[: int(0.15 * len(order))] if job.split == "valid" else order[:0]
    rows = order[len(held) :]
    encoder = type(pretrained(folder))(pretrained(folder).config).cuda()
    encoder.load_state_dict(pretrained(folder).state_dict())
    encoder.train()
    head = make_head(job, tax, encoder.config.hidden_size)
    if job.names:
        start_from_names(head, encoder, texts["names"])
    groups = [
        {"params": list(encoder.parameters()), "lr": job.encoder_rate},
        {"params": [p for p in head.parameters() if p.requires_grad], "lr": job.head_rate},
    ]
    optimiser = torch.optim.Adam(groups, fused=True)
    plan = [part for _ in range(EPOCHS[job.data]) for part in batches(texts["train"], rows, BATCH[job.data], draw)]
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 - step / len(plan))
    options: dict[str, Any] = {"label_smoothing": job.smoothing}
    if job.path_weight:
        options["path_weight"] = job.path_weight
    if job.level_factor != 1:
        options["node_weights"] = level_weights(job, tax)
    for part in plan:
        features = F.dropout(encode(encoder, *texts["train"].batch(part)), job.dropout)
        loss = head.loss(features, classes["train"][torch.from_numpy(part).cuda()], **options)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begun
    encoder.eval()
    where = "train" if job.split == "valid" else "test"
    judged = held if job.split == "valid" else np.arange(len(classes["test"]))
    judged = judged[np.argsort(texts[where].lengths[judged])]
    with torch.no_grad():
        parts = np.array_split(judged, max(1, len(judged) // 512))
        logp = torch.cat([head(encode(encoder, *texts[where].batch(part))) for part in parts]).cpu()
    truth = classes[where].cpu()[torch.from_numpy(judged)]
    nodes, predicted = tax.leaves[truth.numpy()], tax.leaves[logp.argmax(1).numpy()]
    measures = am.metrics.evaluate(nodes, predicted, tax)
    return {
        **asdict(job),
        "accuracy": 100 * measures["accuracy"],
        "macro_f1": 100 * measures["macro_f1"],
        "top_level": 100 * float((tax.ancestor_at(nodes, 1) == tax.ancestor_at(predicted, 1)).mean()),
        "nll": float(-logp[torch.arange(len(truth)), truth].mean()),
        "seconds": round(seconds, 1),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "arbormax": am.__version__,
    }


# The plan

PLAIN = {
    "flat": {"head": "flat"},
    "flat, smoothing 0.1": {"head": "flat", "smoothing": 0.1},
    "flat, path 0.6": {"head": "flat", "path_weight": 0.6},
    "shared": {"head": "shared"},
    "shared, path 0.6": {"head": "shared", "path_weight": 0.6},
    "hierarchical": {},
    "smoothing 0.1": {"smoothing": 0.1},
    "adapter 64": {"adapter": 64},
    "adapter 64, smoothing 0.1": {"adapter": 64, "smoothing": 0.1},
    "adapter 256, smoothing 0.1": {"adapter": 256, "smoothing": 0.1},
}
MORE = {
    "smoothing 0.05": {"smoothing": 0.05},
    "smoothing 0.2": {"smoothing": 0.2},
    "adapter 16, smoothing 0.1": {"adapter": 16, "smoothing": 0.1},
    "adapter 128, smoothing 0.1": {"adapter": 128, "smoothing": 0.1},
    "adapter 256": {"adapter": 256},
    "adapter 256, smoothing 0.05": {"adapter": 256, "smoothing": 0.05},
    "adapter 256, smoothing 0.2": {"adapter": 256, "smoothing": 0.2},
    "adapter 256, smoothing 0.1, head rate 1e-3": {"adapter": 256, "smoothing": 0.1, "head_rate": 1e-3},
    "adapter 256, smoothing 0.1, head rate 5e-3": {"adapter": 256, "smoothing": 0.1, "head_rate": 5e-3},
    "adapter 256, smoothing 0.1, encoder rate 2e-4": {"adapter": 256, "smoothing": 0.1, "encoder_rate": 2e-4},
    "encoder rate 2e-4": {"encoder_rate": 2e-4},
    "flat, encoder rate 2e-4": {"head": "flat", "encoder_rate": 2e-4},
    "head rate 5e-3": {"head_rate": 5e-3},
    "dropout 0.2": {"dropout": 0.2},
    "adapter 256, smoothing 0.1, dropout 0.2": {"adapter": 256, "smoothing": 0.1, "dropout": 0.2},
    "levels x1.5": {"level_factor": 1.5},
    "levels x0.67": {"level_factor": 0.67},
    "adapter 256, smoothing 0.1, levels x1.5": {"adapter": 256, "smoothing": 0.1, "level_factor": 1.5},
    "4 prototypes": {"prototypes": 4},
    "4 prototypes, smoothing 0.1": {"prototypes": 4, "smoothing": 0.1},
}
NAMED = ["flat", "flat, path 0.6", "shared", "hierarchical", "smoothing 0.1", "adapter 64, smoothing 0.1"]
NAMED += ["adapter 256, smoothing 0.1"]
TESTED = ["flat", "flat, path 0.6", "shared", "hierarchical", "smoothing 0.1", "chosen"]
SEEDS = {"soc2020": 2, "icd10cm": 1, "r52": 3}


def selection_jobs() -> list[Job]:
    jobs = []
    for data in ("soc2020", "icd10cm", "r52"):
        plan = {**PLAIN, **(MORE if data == "soc2020" else {})}
        named = {f"{name}, names": {**PLAIN[name], "names": True} for name in NAMED}
        for name, options in {**plan, **named}.items():
            jobs += [Job(data, "valid", name, seed=seed, **options) for seed in range(SEEDS[data])]  # type: ignore[arg-type]
    return jobs


def test_jobs(chosen: dict[str, Any]) -> list[Job]:
    options = {**PLAIN, "chosen": chosen}
    jobs = []
    for data, seeds in (("soc2020", 3), ("icd10cm", 2), ("r52", 3)):
        for name in TESTED:
            for names in (False, True):
                label = f"{name}, names" if names else name
                jobs += [
                    Job(data, "test", label, seed=seed, names=names, **options[name])  # type: ignore[arg-type]
                    for seed in range(seeds)
                ]
    return jobs


def chosen_jobs() -> list[Job]:
    """The chosen configuration on the test split of soc2020, and against others on the validation of two datasets."""
    fast = {"encoder_rate": 2e-4}
    chosen: dict[str, Any] = {"adapter": 256, "smoothing": 0.1, **fast}
    jobs = [
        Job("soc2020", "test", "chosen" + ", names" * names, names=names, seed=seed, **chosen)
        for names in (False, True)
        for seed in range(2)
    ]
    others: dict[str, dict[str, Any]] = {
        "chosen": chosen,
        "encoder rate 2e-4": fast,
        "flat, encoder rate 2e-4": {"head": "flat", **fast},
    }
    jobs += [Job(data, "valid", name, **others[name]) for name in others for data in ("icd10cm", "r52")]
    jobs += [Job("r52", "valid", name, seed=1, **others[name]) for name in others]
    return jobs


def choose(rows: list[dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    """The configuration with adapters that has the best mean validation accuracy on soc2020, without names."""
    means: dict[str, float] = {}
    for name, options in {**PLAIN, **MORE}.items():
        found = [row["accuracy"] for row in rows if (row["data"], row["name"]) == ("soc2020", name)]
        if options.get("adapter") and found:
            means[name] = statistics.mean(found)
    name = max(means, key=means.__getitem__)
    return name, {**PLAIN, **MORE}[name]


def run_all(folder: Path, jobs: list[Job], pool: ProcessPoolExecutor, out: Path, until: float) -> list[dict[str, Any]]:
    """Run jobs until the time is over; rows are written as they arrive."""
    rows, pending, waiting = [], set(), list(jobs)
    while pending or (waiting and time.time() < until):
        while waiting and len(pending) < pool._max_workers and time.time() < until:  # noqa: SLF001
            pending.add(pool.submit(train, folder, waiting.pop(0)))
        done, pending = wait(pending, return_when=FIRST_COMPLETED)
        for future in done:
            rows.append(future.result())
            is_new = not out.exists()
            with out.open("a", newline="") as stream:
                writer = csv.DictWriter(stream, rows[-1])
                if is_new:
                    writer.writeheader()
                writer.writerow(rows[-1])
    if waiting:
        print(f"{len(waiting)} jobs were left out, for lack of time")
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    def key(row: dict[str, Any]) -> tuple[str, str, str]:
        return row["data"], row["split"], row["name"]

    for (data, split, name), group in groupby(sorted(rows, key=key), key):
        found = list(group)
        columns = [[float(row[c]) for row in found] for c in ("accuracy", "macro_f1", "top_level", "nll", "seconds")]
        values = " / ".join(f"{statistics.mean(c):.2f}" for c in columns)
        spread = statistics.stdev(columns[0]) if len(found) > 1 else math.nan
        print(f"{data:8} {split:6} {name:48} {values}  ±{spread:.2f} ({len(found)} seeds)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("prepare", "run", "chosen", "show"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", help="folder of all-MiniLM-L6-v2")
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--select-seconds", type=float, default=math.inf, help="no selection job starts later")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no job starts later")
    given = parser.parse_args()
    if given.what == "prepare":
        prepare(given.folder, given.model)
        return
    if given.what == "show":
        with given.out.open() as stream:
            show(list(csv.DictReader(stream)))
        return
    start = time.time()
    with ProcessPoolExecutor(given.workers, get_context("spawn")) as pool:
        if given.what == "chosen":
            show(run_all(given.folder, chosen_jobs(), pool, given.out, start + given.seconds))
            return
        rows = run_all(given.folder, selection_jobs(), pool, given.out, start + given.select_seconds)
        name, chosen = choose(rows)
        print(f"chosen: {name}, after {time.time() - start:.0f} s")
        rows += run_all(given.folder, test_jobs(chosen), pool, given.out, start + given.seconds)
    show(rows)
    print(f"{time.time() - start:.0f} s")


if __name__ == "__main__":
    main()
