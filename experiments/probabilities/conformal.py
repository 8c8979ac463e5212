"""Measure sets of guaranteed coverage on the scores of `scores.py`.

    pip install --no-deps --target SITE torchcp==1.2.0
    PYTHONPATH=SITE python experiments/probabilities/conformal.py --scores scores

The test texts are split into halves 200 times: one is held out, the other measured. Coverage is measured in every
split, for sets of at most 1, 3 and 5 nodes and within each branch, and the size of the sets in the first split of
each seed, next to torchcp's sets of classes (LAC and APS) on the same scores and splits. Without torchcp these are left
out. The records are results/conformal.jsonl.
"""

from __future__ import annotations

import argparse
import importlib.machinery
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from scores import RUNS, Scores, read_scores, taxonomy_of

from arbormax import Taxonomy
from arbormax.uncertainty.conformal import SetRule, class_groups, items_needed, set_scores, threshold
from arbormax.uncertainty.grow import LeafOrder

RESULTS = Path(__file__).parent / "results"
SPLITS, SIZES = 200, (1, 3, 5)
ALPHAS = (0.05, 0.1, 0.2)
SIZE_ALPHAS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3)
CHUNK = 512
MEASURED = 2000  # texts whose sets are counted in a split


def load_torchcp() -> Any:
    """torchcp's scores and predictors, None if it is not installed.

    Its package also imports graph networks and a sorting loss, which need further packages and are left out.
    """
    spec = importlib.machinery.PathFinder.find_spec("torchcp")
    if spec is None:
        return None
    package, sorting = ModuleType("torchcp"), ModuleType("torchsort")
    package.__path__ = list(spec.submodule_search_locations or ())
    sorting.soft_rank = sorting.soft_sort = None  # type: ignore[attr-defined]
    sys.modules.update({"torchcp": package, "torchsort": sorting})
    import torchcp.classification.predictor as predictor
    import torchcp.classification.score as score

    return predictor, score


def halves(items: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The held-out and the measured half of each split."""
    draw = np.random.default_rng(seed)
    for _ in range(SPLITS):
        order = draw.permutation(items)
        yield order[: items // 2], order[items // 2 :]


def coverage_records(scores_nW: np.ndarray, nodes: np.ndarray, tax: Taxonomy, seed: int) -> Iterator[dict[str, Any]]:
    """The coverage over all splits, and within branches with thresholds of all items and of their own."""
    _, group_C = class_groups(tax, "branch")
    branch_N = np.maximum(tax.ancestor_at(np.arange(tax.num_nodes), 1) - 1, 0)
    branch = branch_N[nodes]
    count = int(group_C.max()) + 1
    for column, size in enumerate(SIZES):
        own = scores_nW[:, column]
        for alpha in ALPHAS:
            covered = []
            within = np.full((2, SPLITS, count), np.nan)
            for place, (held_out, rest) in enumerate(halves(len(nodes), seed)):
                limit = threshold(own[held_out], alpha)
                covered.append((own[rest] <= limit).mean())
                for g in range(count):
                    items, tested = held_out[branch[held_out] == g], rest[branch[rest] == g]
                    if len(items) >= items_needed(alpha) and len(tested) >= 20:
                        within[0, place, g] = (own[tested] <= limit).mean()
                        # the sets of a group contain at least what its own threshold asks for
                        within[1, place, g] = (own[tested] <= threshold(own[items], alpha)).mean()
            kept = np.isfinite(within[0]).sum(0) >= SPLITS // 2
            by_branch = [np.nanmean(each[:, kept], 0) if kept.any() else np.zeros(0) for each in within]
            yield {
                "kind": "coverage",
                "size": size,
                "alpha": alpha,
                "coverage": float(np.mean(covered)),
                "standard_error": float(np.std(covered) / np.sqrt(SPLITS)),
                "lowest": float(np.min(covered)),
                "branches": int(kept.sum()),
                "lowest_branch": float(by_branch[0].min()) if kept.any() else None,
                "lowest_branch_own": float(by_branch[1].min()) if kept.any() else None,
            }


def size_records(
    p_nN: np.ndarray, scores_nW: np.ndarray, nodes: np.ndarray, tax: Taxonomy, seed: int, flat: Any
) -> Iterator[dict[str, Any]]:
    """The size of the sets in the first split: classes, nodes, and the share of single classes."""
    held_out, rest = next(halves(len(nodes), seed))
    rest = rest[:MEASURED]
    order = LeafOrder(tax)
    counts = tax.leaf_counts[:, None]
    for alpha in SIZE_ALPHAS:
        for column, size in enumerate(SIZES):
            rule = SetRule(order, size, np.array([threshold(scores_nW[held_out, column], alpha)]), counts)
            found = np.concatenate([rule.nodes(p_nN[part]) for part in np.array_split(rest, -(-len(rest) // CHUNK))])
            classes = np.where(found >= 0, tax.leaf_counts[found], 0).sum(1)
            yield {
                "kind": "size",
                "method": f"at most {size} node{'s' * (size > 1)}",
                "alpha": alpha,
                "coverage": float(order.covers(found, nodes[rest]).mean()),
                "classes": float(classes.mean()),
                "median_classes": float(np.median(classes)),
                "nodes": float((found >= 0).sum(1).mean()),
                "single": float((classes == 1).mean()),
            }
        is_class = tax.class_of[nodes] >= 0
        if flat is None or not is_class.all():
            continue
        predictor, score = flat
        labels = torch.from_numpy(tax.class_of[nodes])
        logits = torch.from_numpy(p_nN[:, tax.leaves]).clamp(min=1e-30).log().float()
        for name, function in (("LAC", score.LAC()), ("APS", score.APS())):
            model = predictor.SplitPredictor(function, device=torch.device("cpu"))
            model.calculate_threshold(logits[held_out], labels[held_out], alpha)
            sets = model.predict_with_logits(logits[rest]).bool()
            sizes = sets.sum(1).double()
            yield {
                "kind": "size",
                "method": f"torchcp {name}",
                "alpha": alpha,
                "coverage": float(sets.gather(1, labels[rest][:, None]).double().mean()),
                "classes": float(sizes.mean()),
                "median_classes": float(sizes.median()),
                "nodes": float(sizes.mean()),
                "single": float((sizes == 1).double().mean()),
            }


def measure(run: str, seed: int, scores: Scores, tax: Taxonomy, flat: Any) -> Iterator[dict[str, Any]]:
    """All records of one model."""
    p_nN, nodes, order = scores.test.double().exp().numpy(), scores.test_nodes, LeafOrder(tax)
    chunks = np.array_split(np.arange(len(nodes)), -(-len(nodes) // CHUNK))
    scores_nW = np.stack(
        [np.concatenate([set_scores(p_nN[part], nodes[part], order, size) for part in chunks]) for size in SIZES], 1
    )
    for record in coverage_records(scores_nW, nodes, tax, seed):
        yield {"run": run, "seed": seed, **record}
    for record in size_records(p_nN, scores_nW, nodes, tax, seed, flat):
        yield {"run": run, "seed": seed, **record}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scores", type=Path, required=True)
    parser.add_argument("--runs", nargs="+", default=RUNS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS / "conformal.jsonl")
    args = parser.parse_args()
    torch.manual_seed(0)  # torchcp breaks ties at random
    flat = load_torchcp()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with args.out.open("w") as out:
        for run in args.runs:
            tax = taxonomy_of(run)
            for seed in range(args.seeds):
                if (scores := read_scores(args.scores, run, seed)) is None:
                    continue
                for record in measure(run, seed, scores, tax, flat):
                    out.write(json.dumps(record) + "\n")
                print(run, seed, flush=True)
                out.flush()


if __name__ == "__main__":
    main()
