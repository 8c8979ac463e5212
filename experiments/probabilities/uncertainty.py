"""Measure every method of uncertainty, next to the plain model and to temperature scaling.

    python experiments/probabilities/uncertainty.py --runs tfidf:trec bag:trec bilstm:trec --seeds 5

A run is ENCODER:DATASET. For each seed, some branches of the first level are unknown: their texts and classes are left
out of the training, and their test texts belong to no class. A tenth of the other training texts is held out for early
stopping and the temperature. Likelihood, calibration and accuracy are measured on the test texts of known classes, the
detection of unknown classes on all. A record is results/uncertainty/ENCODER-DATASET-SEED.json; one that is there is
kept.

S draws, B batch, N nodes, C classes, n items.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import time
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from arbormax import Taxonomy
from arbormax.data import load
from arbormax.data.examples import Examples
from arbormax.data.folds import hold_out
from arbormax.functional import scale_siblings
from arbormax.model import Model, TrainConfig
from arbormax.model.draws import mean_log_probs, node_draws
from arbormax.model.posterior import UNCERTAINTIES, Trained
from arbormax.training import fit
from arbormax.training.hardware import ONE_DEVICE
from arbormax.training.loop import Phase, TrainingLoop
from arbormax.uncertainty import CALIBRATIONS
from arbormax.uncertainty.measures import measure_probabilities
from arbormax.uncertainty.steps import find_steps, join_steps

RESULTS = Path(__file__).parent / "results" / "uncertainty"
RUNS = (
    *("tfidf:trec", "tfidf:r52", "tfidf:soc2020", "tfidf:icd10cm"),
    *("bag:trec", "bilstm:trec", "bag:r52", "bag:soc2020", "bag:icd10cm"),
)
UNKNOWN = 0.1, 0.25  # lowest and highest share of the training texts in unknown branches
SHARE = 0.1  # held out
COVERAGE = 0.8
MOST = {  # training and test texts of a run; the others are left out at random
    "tfidf:soc2020": (12_000, 2_000),
    "tfidf:icd10cm": (20_000, 2_000),
    "bag:r52": (2_500, 1_500),
    "bag:soc2020": (5_000, 2_000),
    "bag:icd10cm": (5_000, 2_000),
    "bilstm:trec": (3_000, None),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "tfidf": {},
    "bag": {"encoder_options": {"dim": 64}},
    "bilstm": {"encoder_options": {"dim": 64, "hidden": 64}, "epochs": 10},
}
MEMBERS = 3
METHODS: dict[str, dict[str, Any]] = {
    "laplace": {},
    "laplace, evidence": {"factor": 1},  # with sparse features only; with dense ones it is the default
    "laplace, kronecker": {"structure": "kronecker"},
    "laplace, diagonal": {"structure": "diagonal"},
    "dropout": {},
    "ensemble": {"members": MEMBERS},
    "ensemble, snapshots": {"members": MEMBERS, "snapshots": True},
}


@dataclass(frozen=True, eq=False)
class Split:
    """The texts of a seed, labelled with nodes of the tree of known classes."""

    tax: Taxonomy
    train: Examples
    valid: Examples
    known: Examples  # test texts of known classes
    unknown: Examples  # test texts of other classes; their labels mean nothing
    branches: tuple[str, ...]  # the unknown ones


def make_split(run: str, seed: int) -> Split:
    """Leave out branches at random until they have enough training texts."""
    data, draw = load(run.split(":")[1]), np.random.default_rng(seed)
    tax = data.taxonomy
    train, test = (
        part.take(np.sort(draw.permutation(len(part))[:most]))
        for part, most in zip((data.train, data.test), MOST.get(run, (None, None)), strict=True)
    )
    branches, left_out = tax.ancestor_at(train.nodes, 1), np.zeros(0, np.int64)
    for branch in draw.permutation(tax.children(0)).tolist():
        more = np.append(left_out, branch)
        if np.isin(branches, left_out).mean() < UNKNOWN[0] and np.isin(branches, more).mean() <= UNKNOWN[1]:
            left_out = more
    leaves = tax.leaves[~np.isin(tax.ancestor_at(tax.leaves, 1), left_out)]
    smaller = Taxonomy.from_paths([tax.path(leaf) for leaf in leaves.tolist()])
    new = np.full(tax.num_nodes, 0)
    for node in range(1, tax.num_nodes):
        if tax.ancestor_at(np.array([node]), 1)[0] not in left_out:
            new[node] = smaller.find(tax.path(node))

    def known(part: Examples) -> Examples:
        own = part.take(np.flatnonzero(new[part.nodes] > 0))
        return replace(own, nodes=new[own.nodes])

    part, valid = hold_out(known(train), SHARE, seed)
    assert valid is not None
    unknown = test.take(np.flatnonzero(new[test.nodes] == 0))
    names = tuple(tax.names[branch] for branch in left_out.tolist())
    return Split(smaller, part, valid, known(test), unknown, names)


@dataclass(frozen=True, eq=False)
class Scores:
    """What a method says about some texts."""

    logp: torch.Tensor  # (n, N) the logarithm of the mean probability over the draws
    epistemic: np.ndarray | None  # (n,) mutual information of the class and the draw

    def total(self, tax: Taxonomy) -> np.ndarray:
        """(n,) the entropy of the class."""
        return _entropy(self.logp[:, tax.leaves.copy()]).numpy()

    def highest(self, tax: Taxonomy) -> np.ndarray:
        """(n,) the probability of the most probable class."""
        return self.logp[:, tax.leaves.copy()].max(1)[0].exp().numpy()


def _entropy(logp: torch.Tensor) -> torch.Tensor:
    return -(logp.exp() * logp.clamp(min=-1e4)).sum(-1)


Score = Callable[[Model, Any], Scores]


def plain_scores(model: Model, inputs: Any) -> Scores:
    return Scores(torch.cat(list(model.node_log_probs(inputs))).float(), None)


def drawn_scores(model: Model, inputs: Any) -> Scores:
    leaves, logs, found = torch.tensor(model.taxonomy.leaves), [], []
    for logp_SBN in node_draws(model, inputs):
        mean_BN = mean_log_probs(logp_SBN.float())
        logs.append(mean_BN)
        found.append(_entropy(mean_BN[:, leaves]) - _entropy(logp_SBN[..., leaves]).mean(0))
    return Scores(torch.cat(logs), torch.cat(found).clamp(min=0).numpy())


def scaled_scores(model: Model, split: Split) -> Score:
    """The scores of a model with one temperature, fitted on the held-out texts."""
    logp = plain_scores(model, split.valid.inputs).logp
    steps = join_steps([find_steps(logp.numpy(), split.valid.nodes, split.tax)])
    scaling = CALIBRATIONS["temperature"](steps, split.tax)
    scale, shift = torch.from_numpy(scaling.scale), torch.from_numpy(scaling.shift)
    return lambda model, inputs: Scores(
        scale_siblings(plain_scores(model, inputs).logp, scale, shift, split.tax).float(), None
    )


def measure(known: Scores, unknown: Scores, split: Split) -> dict[str, Any]:
    """The measures of one method."""
    tax, true = split.tax, split.known.nodes
    found = measure_probabilities([(known.logp, true)], tax)
    right = tax.leaves[known.logp[:, tax.leaves.copy()].argmax(1).numpy()] == true
    sureness = {
        "max_probability": [scores.highest(tax) for scores in (known, unknown)],
        "total": [-scores.total(tax) for scores in (known, unknown)],
    }
    if known.epistemic is not None and unknown.epistemic is not None:
        sureness["epistemic"] = [-known.epistemic, -unknown.epistemic]
    count = round(COVERAGE * len(true))
    is_known = np.repeat([1, 0], [len(known.logp), len(unknown.logp)])
    return {
        **{name: found[name] for name in ("nll", "brier", "ece", "ece_debiased")},
        "accuracy": float(right.mean()),
        "accuracy_80": {
            name: float(right[np.argsort(-own, kind="stable")[:count]].mean()) for name, (own, _) in sureness.items()
        },
        "auroc": {name: float(roc_auc_score(is_known, np.concatenate(both))) for name, both in sureness.items()},
    }


BAYES: dict[str, dict[str, Any]] = {"bbb": {}, "bbb, KL × 1": {"kl_weight": 1.0}}


class Watch:
    """Seconds of the processor, and the growth of the process's memory at its highest point, in MiB (Linux only)."""

    def __enter__(self) -> Self:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # give back what is not in use
        Path("/proc/self/clear_refs").write_text("5")  # the highest memory becomes the present one
        self._before, self._start = _status("VmRSS"), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.process_time() - self._start
        self.memory = _status("VmHWM") - self._before


def _status(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def stored(model: Model) -> float:
    """MiB of all weights and of the posterior."""
    tensors = [*model.state_dict().values(), *(model.posterior.state().values() if model.posterior else ())]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors) / 2**20


Trial = tuple[str, Model, Score, Watch]  # a method with its model and what its training takes


def trained(encoder: str, split: Split, seed: int, **given: Any) -> Model:
    settings = {"encoder": encoder, "head": "hierarchical", "seed": seed, "calibration": "none", **OPTIONS[encoder]}
    return fit(TrainConfig.make(**settings, **given), split.tax, split.train, split.valid).model


def methods(encoder: str, split: Split, seed: int) -> Iterator[Trial]:
    """The plain model and each method that starts from it."""
    with Watch() as plain:
        model = trained(encoder, split, seed)
    yield "plain", model, plain_scores, plain
    with Watch() as more:
        scores = scaled_scores(model, split)
    yield "temperature", model, scores, _sum(plain, more)
    is_linear = encoder == "tfidf"
    found = ("laplace", "laplace, evidence") if is_linear else (n for n in METHODS if n != "laplace, evidence")
    for name in found:
        kind = UNCERTAINTIES[name.split(",")[0]]
        with Watch() as more:
            options = kind.choose(Trained(model, split.train), split.valid, kind.Options(**METHODS[name]))
            model.posterior = kind.fit(Trained(model, split.train, partial(again, model.config, split)), options)
        yield name, model, drawn_scores, _sum(plain, more)
    if not is_linear:
        yield "last snapshot", model.posterior.others[-1], plain_scores, _sum(plain, more)


def bayesian_methods(encoder: str, split: Split, seed: int, done: Container[str]) -> Iterator[Trial]:
    """Bayes by Backprop, which starts from no other model."""
    for name, options in BAYES.items():
        if name not in done and encoder != "tfidf":
            with Watch() as watch:
                model = trained(encoder, split, seed, uncertainty="bbb", uncertainty_options=options)
            yield name, model, drawn_scores, watch


def again(
    config: TrainConfig, split: Split, seed: int, *, start: Model | None = None, epochs: int | None = None
) -> Model:
    """Another network, or further epochs of one, as in `arbormax.training.fit`."""
    config = config.model_copy(update={"seed": seed})
    loop = TrainingLoop(config, split.tax, ONE_DEVICE, None, False, False, (), None)
    valid, epochs = (split.valid, config.epochs) if start is None else (None, epochs)
    return loop.run(Phase("last.ckpt", "logs", None), split.train, valid, epochs, start=start)[0]


def _sum(first: Watch, second: Watch) -> Watch:
    both = Watch()
    both.seconds, both.memory = first.seconds + second.seconds, max(first.memory, second.memory)
    return both


def make_record(run: str, seed: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The record of a run and seed; `rows` are those of an unfinished one."""
    encoder = run.split(":")[0]
    split = make_split(run, seed)
    done = [row["method"] for row in rows]
    first = () if done else methods(encoder, split, seed)
    for method, model, scores, training in chain(first, bayesian_methods(encoder, split, seed, done)):
        with Watch() as prediction:
            known = scores(model, split.known.inputs)
        row = {
            "method": method,
            **measure(known, scores(model, split.unknown.inputs), split),
            "train_seconds": round(training.seconds, 3),
            "train_memory": round(training.memory, 1),
            "predict_ms": round(1000 * prediction.seconds / len(split.known), 4),
            "predict_memory": round(prediction.memory, 1),
            "stored": round(stored(model), 2),
            "fit": model.posterior.describe() if model.posterior else {},
        }
        rows.append(row)
        own = row["auroc"]["epistemic"] if "epistemic" in row["auroc"] else row["auroc"]["max_probability"]
        top = f"NLL {row['nll']:.3f}, accuracy {row['accuracy']:.3f}, AUROC {own:.3f}"
        print(f"{run}, {seed}, {method}: {top}; {row['train_seconds']:.0f} s", flush=True)
    counts = {name: len(getattr(split, name)) for name in ("train", "valid", "known", "unknown")}
    return {"run": run, "seed": seed, "branches": split.branches, **counts, "methods": rows}


def main(arguments: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", nargs="+", default=RUNS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args(None if arguments is None else list(arguments))
    args.out.mkdir(parents=True, exist_ok=True)
    for seed in range(args.seeds):
        for run in args.runs:
            path = args.out / f"{run.replace(':', '-')}-{seed}.json"
            rows = json.loads(path.read_text("utf-8"))["methods"] if path.exists() else []
            needed = set() if run.startswith("tfidf") else BAYES.keys()
            if not rows or needed - {row["method"] for row in rows}:
                path.write_text(json.dumps(make_record(run, seed, rows)) + "\n", "utf-8")


if __name__ == "__main__":
    main()
