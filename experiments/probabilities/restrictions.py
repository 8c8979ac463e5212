"""Measure what it is worth to know a part of the classes: accuracy within the right branch, and within random classes.

    python experiments/probabilities/decoders.py --datasets trec r52 --work probabilities   # trains the models
    python experiments/probabilities/restrictions.py --datasets trec r52 --work probabilities
    python experiments/probabilities/restrictions.py --check    # is the table of docs/classifier.md up to date?

A test text is restricted to the branch of the first level that has its class, or to a random half or tenth of the
classes, of which its class is one. `results/restrictions/<dataset>.json` has the means of each seed, and intervals of
the differences from the unrestricted prediction over seeds and test texts.

B items, S seeds, n items, C classes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from decoders import BATCH, DATASETS, HERE, SEEDS, Nodes, describe, interval, rewrite_table, train

import arbormax as am
from arbormax.data import load

RESULTS, PAGE = HERE / "results" / "restrictions", HERE.parents[1] / "docs" / "classifier.md"
TITLES = {
    "none": "all classes",
    "half": "a random half of the classes",
    "tenth": "a random tenth of the classes",
    "branch": "the right branch of the first level",
}

Mask = Callable[[am.Taxonomy, Nodes, np.random.Generator], np.ndarray]  # (B,) true leaves -> (B, C) allowed classes


def random_classes(share: float) -> Mask:
    """A random share of the classes, and the true class."""

    def mask(tax: am.Taxonomy, true: Nodes, rng: np.random.Generator) -> np.ndarray:
        allowed = rng.random((len(true), tax.num_leaves)) < share
        allowed[np.arange(len(true)), tax.class_of[true]] = True
        return allowed

    return mask


def branch(tax: am.Taxonomy, true: Nodes, rng: np.random.Generator) -> np.ndarray:  # noqa: ARG001
    """The classes of the branch of the first level that has the true class."""
    first = tax.ancestor_at(tax.leaves, 1)
    return first[None] == tax.ancestor_at(true, 1)[:, None]


MASKS: dict[str, Mask] = {"half": random_classes(0.5), "tenth": random_classes(0.1), "branch": branch}


def measure(logp: torch.Tensor, true: Nodes, tax: am.Taxonomy) -> dict[str, dict[str, np.ndarray]]:
    """For each restriction, whether each prediction is right, and the loss of the true class."""
    rng = np.random.default_rng(0)
    found: dict[str, dict[str, list[np.ndarray]]] = {name: {"right": [], "nll": []} for name in TITLES}
    for start in range(0, len(true), BATCH):
        whole_BN, true_B = logp[start : start + BATCH], true[start : start + BATCH]
        masks = {name: torch.from_numpy(mask(tax, true_B, rng)) for name, mask in MASKS.items()}
        restricted = {name: am.decode.within(whole_BN, tax, mask) for name, mask in masks.items()}
        for name, logp_BN in {"none": whole_BN, **restricted}.items():
            found[name]["right"].append(am.decode.leaf(logp_BN, tax).numpy() == true_B)
            found[name]["nll"].append(-logp_BN[torch.arange(len(true_B)), torch.from_numpy(true_B)].numpy())
    return {
        name: {kind: np.concatenate(parts).astype(np.float64) for kind, parts in kinds.items()}
        for name, kinds in found.items()
    }


def summarise(dataset: str, paths: list[Path]) -> dict:
    """Means of the seeds, and intervals of the differences from the unrestricted prediction."""
    data = load(dataset)
    true = data.test.nodes
    seeds = [measure(torch.from_numpy(np.load(path)["test"]), true, data.taxonomy) for path in paths]
    result: dict = {**describe(dataset, len(paths), len(true), __file__), "restrictions": {}}
    for name in TITLES:
        result["restrictions"][name] = {}
        for kind in ("right", "nll"):
            rows_Sn = np.stack([seed[name][kind] for seed in seeds])
            gaps_Sn = rows_Sn - np.stack([seed["none"][kind] for seed in seeds])
            result["restrictions"][name][kind] = {"means": rows_Sn.mean(1).tolist(), "difference": interval(gaps_Sn)}
    return result


def table() -> str:
    """The table of docs/classifier.md."""
    files = {name: RESULTS / f"{name}.json" for name in DATASETS}
    records = {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}
    names = [DATASETS[name] for name in records]
    lines = [f"| accuracy, % | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for name, title in TITLES.items():
        cells = []
        for record in records.values():
            found = record["restrictions"][name]["right"]
            low, high = 100 * found["difference"]["low"], 100 * found["difference"]["high"]
            bounds = "" if name == "none" else f" ({low:+.1f} to {high:+.1f})"
            cells.append(f"{100 * np.mean(found['means']):.1f}{bounds}")
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="*", choices=tuple(DATASETS), default=[])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--work", type=Path, default=HERE / "results" / "unfinished", help="the probabilities")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the table is out of date")
    args = parser.parse_args()
    for dataset in args.datasets:
        record = summarise(dataset, [train(dataset, seed, args.work) for seed in range(args.seeds)])
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / f"{dataset}.json").write_text(json.dumps(record, indent=1) + "\n")
    return rewrite_table(PAGE, "restrictions", table(), args.check)


if __name__ == "__main__":
    sys.exit(main())
