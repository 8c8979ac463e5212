"""Compare decoders by the measures that they are optimal for.

    python experiments/probabilities/decoders.py --datasets trec r52 soc2020 icd10cm
    python experiments/probabilities/decoders.py --check    # is the table of docs/choosing.md up to date?

One training for each dataset and seed, on a random 85 % of the training texts. One temperature for each
level, and the thresholds that serve as rivals, are chosen on the other 15 %. Everything is measured on the test texts.
`results/decoders/<dataset>.json` has the means of each seed, and intervals of the differences over seeds and test
texts; `--work` keeps the probabilities, so that the command can be run again.

n items, S seeds, C classes, N nodes.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

import arbormax as am
from arbormax.data import load
from arbormax.functional import node_log_probs

HERE = Path(__file__).parent
RESULTS, PAGE = HERE / "results" / "decoders", HERE.parents[1] / "docs" / "choosing.md"
DATASETS = {"trec": "TREC", "r52": "R52", "soc2020": "SOC 2020", "icd10cm": "ICD-10-CM"}
SEEDS, HELD_OUT, RESAMPLES, BATCH = 5, 0.15, 1000, 1024
TEMPERATURES = np.round(np.geomspace(0.5, 2.0, 21), 4)
TAUS = np.round(np.arange(0.05, 1.0, 0.05), 2)
BRANCH_COST, CLASS_COST = 1.0, 0.25

Nodes = np.ndarray
Value = Callable[[am.Taxonomy, Nodes, Nodes], np.ndarray]  # (true leaves, predicted nodes) -> a number for each item


def shared(tax: am.Taxonomy, true: Nodes, pred: Nodes) -> np.ndarray:
    """The number of nodes below the root that both paths share."""
    return tax.node_depth[tax.lca(true, pred)].astype(np.float64)


def item_hf(tax: am.Taxonomy, true: Nodes, pred: Nodes, beta: float = 1.0) -> np.ndarray:
    return (1 + beta**2) * shared(tax, true, pred) / (beta**2 * tax.node_depth[true] + tax.node_depth[pred])


def distance(tax: am.Taxonomy, true: Nodes, pred: Nodes) -> np.ndarray:
    return np.asarray(tax.distance(true, pred), np.float64)


def cost(tax: am.Taxonomy, true: Nodes, pred: Nodes) -> np.ndarray:
    """1 for a wrong branch of the first level, 0.25 for a wrong class of the right branch."""
    wrong_branch = tax.ancestor_at(true, 1) != tax.ancestor_at(pred, 1)
    return np.where(wrong_branch, BRANCH_COST, np.where(true == pred, 0.0, CLASS_COST))


def reward(tax: am.Taxonomy, true: Nodes, pred: Nodes, lam: float = 0.0) -> np.ndarray:
    is_right = tax.lca(true, pred) == pred
    return np.where(is_right, np.log2(tax.num_leaves / tax.leaf_counts[pred]) + lam, 0.0)


@cache
def class_costs(tax: am.Taxonomy) -> np.ndarray:
    """(C, C) the costs of `cost`."""
    return cost(tax, np.broadcast_to(tax.leaves, (tax.num_leaves,) * 2), tax.leaves[:, None] + 0 * tax.leaves[None])


class Measure(NamedTuple):
    """A measure, and the decoder that is optimal for it."""

    title: str
    value: Value
    sign: int  # 1 if higher is better
    decoder: str  # in the table
    decode: Callable[[torch.Tensor, am.Taxonomy], torch.Tensor]
    only_classes: bool  # whether the prediction must be a class
    scale: float = 1.0  # 100 for percent


def optimal(metric: str, **options: float) -> Callable[[torch.Tensor, am.Taxonomy], torch.Tensor]:
    return lambda logp, tax: am.decode.optimal(logp, tax, metric, **options)


MEASURES = {
    "accuracy": Measure("accuracy, %", lambda _, t, p: (t == p).astype(float), 1, "`leaf`", am.decode.leaf, True, 100),
    "hf": Measure("hF of each item, %", item_hf, 1, "`optimal`, `hf`", optimal("hf"), False, 100),
    "hf_half": Measure(
        "hF, β = ½, %",
        partial(item_hf, beta=0.5),
        1,
        "`optimal`, `hf`, `beta=0.5`",
        optimal("hf", beta=0.5),
        False,
        100,
    ),
    "tree_distance": Measure(
        "tree distance", distance, -1, "`optimal`, `tree_distance`", optimal("tree_distance"), False
    ),
    "class_distance": Measure(
        "tree distance of a class", distance, -1, "`optimal`, `risk`", optimal("risk"), True
    ),
    "cost": Measure(
        "cost: branch 1, class ¼",
        cost,
        -1,
        "`optimal`, `risk`, `costs=`",
        lambda logp, tax: am.decode.optimal(logp, tax, "risk", costs=class_costs(tax)),
        True,
    ),
    "information": Measure(
        "correct bits", reward, 1, "`optimal`, `information`", optimal("information"), False
    ),
    "information_2": Measure(
        "correct bits + 2",
        partial(reward, lam=2.0),
        1,
        "`optimal`, `information`, `lam=2`",
        optimal("information", lam=2.0),
        False,
    ),
}  # fmt: skip
RIVALS = {
    "leaf": am.decode.leaf,
    "greedy": am.decode.greedy,
    "threshold": am.decode.threshold,
}


def train(dataset: str, seed: int, work: Path) -> Path:
    """Train one model, and keep the log-probabilities of all nodes for the held-out texts and the test texts."""
    path = work / f"{dataset}-{seed}.npz"
    if path.exists():
        return path
    work.mkdir(parents=True, exist_ok=True)
    data, begin = load(dataset), time.perf_counter()
    tax, texts = data.taxonomy, np.array(data.train.inputs, dtype=object)
    order = np.random.default_rng(seed).permutation(len(texts))
    held, kept = np.split(order, [int(HELD_OUT * len(texts))])
    clf = am.TextClassifier(tax, seed=seed)
    clf.fit(texts[kept].tolist(), [tax.path(node) for node in data.train.nodes[kept].tolist()])
    seconds = time.perf_counter() - begin
    logp = {
        part: torch.cat(list(clf.model_.node_log_probs(inputs))).numpy()
        for part, inputs in (("valid", texts[held].tolist()), ("test", list(data.test.inputs)))
    }
    np.savez(path, seconds=seconds, held=held, kept=len(kept), **logp)
    print(f"{dataset} {seed}: {seconds:.0f} s", flush=True)
    return path


def measure(dataset: str, path: Path) -> dict[str, np.ndarray]:
    """The value of each measure for each decoder and test text, and the choices on held-out texts."""
    data, saved = load(dataset), np.load(path)
    tax = data.taxonomy
    true = {"valid": data.train.nodes[saved["held"]], "test": data.test.nodes}
    logp = {part: torch.from_numpy(saved[part]) for part in true}
    temperatures = level_temperatures(logp["valid"], true["valid"], tax)
    pred = {part: decode_all(rows, tax, temperatures) for part, rows in logp.items()}
    plain = decode_all(logp["test"], tax, [1.0] * tax.depth)
    assert (pred["test"]["tree_distance"] == pred["test"]["threshold"]).all()
    values: dict[str, np.ndarray] = {"temperatures": np.array(temperatures), "seconds": saved["seconds"]}
    values["items"] = np.array([int(saved["kept"]), len(true["valid"]), len(true["test"])])
    for name, each in MEASURES.items():
        rivals = {rival: rival for rival in (["leaf", "greedy"] if each.only_classes else RIVALS)}
        if not each.only_classes:
            held_out = [each.value(tax, true["valid"], pred["valid"][f"tau{tau}"]).mean() for tau in TAUS]
            tau = TAUS[int(np.argmax(each.sign * np.array(held_out)))]
            values[f"{name}/tau"], rivals["tuned"] = np.array(tau), f"tau{tau}"
        for label, decoder in {**rivals, "optimal": name}.items():
            values[f"{name}/{label}"] = each.value(tax, true["test"], pred["test"][decoder])
        values[f"{name}/uncalibrated"] = each.value(tax, true["test"], plain[name])
    return values


def level_temperatures(logp_BN: torch.Tensor, true: Nodes, tax: am.Taxonomy) -> list[float]:
    """For each level, the temperature of P(node | parent) with the lowest loss of the true nodes on this level."""
    parent = torch.tensor(tax.parent)
    losses = np.zeros((len(TEMPERATURES), tax.depth))
    for start in range(0, len(true), BATCH):
        part_BN, true_B = logp_BN[start : start + BATCH], true[start : start + BATCH]
        for place, temperature in enumerate(TEMPERATURES.tolist()):
            scaled_BN = rescale(part_BN, tax, [temperature] * tax.depth)
            for level in range(1, tax.depth + 1):
                rows = np.flatnonzero(tax.node_depth[true_B] >= level)
                nodes = torch.from_numpy(tax.ancestor_at(true_B[rows], level))
                losses[place, level - 1] -= float((scaled_BN[rows, nodes] - scaled_BN[rows, parent[nodes]]).sum())
    return [float(TEMPERATURES[best]) for best in losses.argmin(0).tolist()]


def rescale(logp_BN: torch.Tensor, tax: am.Taxonomy, temperatures: list[float]) -> torch.Tensor:
    """The log-probabilities with the conditional ones of each level divided by its temperature, and normalised."""
    of_node = torch.tensor([1.0, *temperatures])[torch.tensor(tax.node_depth[1:])]
    conditional_BM = logp_BN[:, 1:] - logp_BN[:, torch.tensor(tax.parent[1:])]
    return node_log_probs(conditional_BM / of_node, tax)


def decode_all(logp_BN: torch.Tensor, tax: am.Taxonomy, temperatures: list[float]) -> dict[str, np.ndarray]:
    """(n,) the predictions of each decoder, and of each threshold."""
    decoders = {**RIVALS, **{name: measure.decode for name, measure in MEASURES.items()}}
    decoders |= {f"tau{tau}": partial(am.decode.threshold, tau=float(tau)) for tau in TAUS}
    found: dict[str, list[torch.Tensor]] = {name: [] for name in decoders}
    for part_BN in logp_BN.split(BATCH):
        scaled_BN = rescale(part_BN, tax, temperatures)
        for name, decoder in decoders.items():
            found[name].append(decoder(scaled_BN, tax))
    return {name: torch.cat(parts).numpy() for name, parts in found.items()}


def summarise(dataset: str, seeds: list[dict[str, np.ndarray]]) -> dict:
    """Means of the seeds, and intervals of the differences between the optimal decoder and each rival."""
    result: dict = {
        **describe(dataset, len(seeds), int(seeds[0]["items"][2]), __file__),
        "texts": dict(zip(("train", "held out", "test"), seeds[0]["items"].tolist(), strict=True)),
        "temperatures": [seed["temperatures"].tolist() for seed in seeds],
        "seconds": [round(float(seed["seconds"]), 1) for seed in seeds],
        "measures": {},
    }
    for name in MEASURES:
        keys = [key.split("/")[1] for key in seeds[0] if key.startswith(f"{name}/") and not key.endswith("/tau")]
        rows = {key: np.stack([seed[f"{name}/{key}"] for seed in seeds]) for key in keys}
        found: dict = {"means": {key: [float(v) for v in row.mean(1)] for key, row in rows.items()}}
        if f"{name}/tau" in seeds[0]:
            found["taus"] = [float(seed[f"{name}/tau"]) for seed in seeds]
        found["differences"] = {key: interval(rows["optimal"] - rows[key]) for key in keys if key != "optimal"}
        result["measures"][name] = found
    return result


def describe(dataset: str, seeds: int, items: int, script: str) -> dict:
    """What a record begins with."""
    return {
        "dataset": dataset,
        "seeds": seeds,
        "items": items,
        "command": f"python experiments/probabilities/{Path(script).name} --datasets {dataset}",
        "versions": {"arbormax": am.__version__, "torch": torch.__version__, "python": platform.python_version()},
    }


def interval(gaps_Sn: np.ndarray) -> dict[str, float]:
    """The mean, and the bounds of the 95 % bootstrap interval over seeds and items."""
    rng, (seeds, n) = np.random.default_rng(0), gaps_Sn.shape
    drawn = [gaps_Sn[rng.integers(seeds, size=seeds)].mean(0)[rng.integers(n, size=n)].mean() for _ in range(RESAMPLES)]
    low, high = np.percentile(drawn, [2.5, 97.5])
    return {"mean": float(gaps_Sn.mean()), "low": float(low), "high": float(high)}


def table() -> str:
    """The table of docs/choosing.md."""
    records = {
        name: json.loads((RESULTS / f"{name}.json").read_text())
        for name in DATASETS
        if (RESULTS / f"{name}.json").exists()
    }
    lines = [
        f"| measure | decoder | {' | '.join(DATASETS[name] for name in records)} |",
        f"|---|---|{'---|' * len(records)}",
    ]
    for name, measure in MEASURES.items():
        cells = [cell(record["measures"][name], measure) for record in records.values()]
        lines.append(f"| {measure.title} | {measure.decoder} | {' | '.join(cells)} |")
    return "\n".join(lines)


def cell(found: dict, measure: Measure) -> str:
    """The mean of the optimal decoder, and its difference from the best rival with the interval."""
    digits = 1 if measure.scale > 1 else 3
    rivals = {
        key: measure.sign * np.mean(means)
        for key, means in found["means"].items()
        if key not in ("optimal", "uncalibrated")
    }
    if measure.decoder == "`leaf`":
        del rivals["leaf"]
    if measure.decode is MEASURES["tree_distance"].decode:
        del rivals["threshold"]
    best = max(rivals, key=lambda key: rivals[key])
    gap = found["differences"][best]
    mean, low, high = (measure.scale * gap[key] for key in ("mean", "low", "high"))
    titles = {"tuned": "tuned τ", "threshold": "τ = ½"}
    value = f"{measure.scale * np.mean(found['means']['optimal']):.{digits}f}"
    return f"{value}; {mean:+.{digits}f} ({low:+.{digits}f} to {high:+.{digits}f}), {titles.get(best, best)}"


def rewrite_table(page: Path, name: str, content: str, check: bool) -> int:
    """Write a table into a page; with `check`, only say whether it is up to date. Returns the exit status."""
    text = page.read_text()
    start, end = f"<!-- table: {name} -->", "<!-- end of table -->"
    head, _, rest = text.partition(start)
    _, _, tail = rest.partition(end)
    new = f"{head}{start}\n\n{content}\n\n{end}{tail}"
    if check:
        print(f"{page.name}: {'up to date' if new == text else 'out of date'}")
        return int(new != text)
    page.write_text(new)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="*", choices=tuple(DATASETS), default=[])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument(
        "--work", type=Path, default=HERE / "results" / "unfinished", help="the folder of the probabilities"
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the table is out of date")
    args = parser.parse_args()
    for dataset in args.datasets:
        paths = [train(dataset, seed, args.work) for seed in range(args.seeds)]
        record = summarise(dataset, [measure(dataset, path) for path in paths])
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / f"{dataset}.json").write_text(json.dumps(record, indent=1) + "\n")
    return rewrite_table(PAGE, "decoders", table(), args.check)


if __name__ == "__main__":
    sys.exit(main())
