"""Compare decoders by the measures that they are optimal for.

    python experiments/probabilities/decoders.py --datasets trec r52 soc2020 icd10cm
    python experiments/probabilities/decoders.py --check    # is the table of docs/choosing.md up to date?

One training for each dataset and seed, on a random 85 % of the training texts. The temperature of the probabilities
and the thresholds that serve as rivals are chosen on the other 15 %. Everything is measured on the test texts.
`results/decoders/<dataset>.json` has the means of each seed, and intervals of the differences over seeds and test
texts; `--work` keeps the values of single texts, so that the command can be run again.

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
from arbormax.data.datasets import load_taxonomy
from arbormax.functional import flat_node_log_probs

HERE = Path(__file__).parent
RESULTS, PAGE = HERE / "results" / "decoders", HERE.parents[1] / "docs" / "choosing.md"
DATASETS = {"trec": "TREC", "r52": "R52", "soc2020": "SOC 2020", "icd10cm": "ICD-10-CM"}
SEEDS, HELD_OUT, RESAMPLES = 5, 0.15, 1000
TEMPERATURES = np.round(np.geomspace(0.4, 2.5, 41), 4)
TAUS = np.round(np.arange(0.05, 1.0, 0.05), 2)
START, END = "<!-- table of the best decoders -->", "<!-- end of table -->"
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


def run(dataset: str, seed: int, work: Path) -> Path:
    """Train one model and write the values of each measure for each decoder and test text."""
    path = work / f"{dataset}-{seed}.npz"
    if path.exists():
        return path
    data, begin = load(dataset), time.perf_counter()
    tax, train = data.taxonomy, data.train
    order = np.random.default_rng(seed).permutation(len(train))
    held, kept = np.split(order, [int(HELD_OUT * len(train))])
    texts = np.array(train.inputs, dtype=object)
    clf = am.TextClassifier(tax, seed=seed)
    clf.fit(texts[kept].tolist(), [tax.path(node) for node in train.nodes[kept].tolist()])
    seconds = time.perf_counter() - begin
    true = {"valid": train.nodes[held], "test": data.test.nodes}
    valid_texts, test_texts = texts[held].tolist(), list(data.test.inputs)
    losses = temperature_losses(clf, valid_texts, true["valid"])
    temperature = float(TEMPERATURES[losses.argmin()])
    pred = {
        "valid": decode_all(clf, valid_texts, temperature),
        "test": decode_all(clf, test_texts, temperature),
    }
    plain = decode_all(clf, test_texts, 1.0)
    assert (pred["test"]["tree_distance"] == pred["test"]["threshold"]).all()
    values: dict[str, np.ndarray] = {}
    for name, measure in MEASURES.items():
        rivals = {rival: rival for rival in (["leaf", "greedy"] if measure.only_classes else RIVALS)}
        if not measure.only_classes:
            held_out = [measure.value(tax, true["valid"], pred["valid"][f"tau{tau}"]).mean() for tau in TAUS]
            tau = TAUS[int(np.argmax(measure.sign * np.array(held_out)))]
            values[f"{name}/tau"], rivals["tuned"] = np.array(tau), f"tau{tau}"
        for label, decoder in {**rivals, "optimal": name}.items():
            values[f"{name}/{label}"] = measure.value(tax, true["test"], pred["test"][decoder])
        values[f"{name}/uncalibrated"] = measure.value(tax, true["test"], plain[name])
    items = [len(kept), len(held), len(data.test)]
    np.savez_compressed(path, seconds=seconds, items=items, temperature=temperature, **values)
    print(f"{dataset} {seed}: {seconds:.0f} s", flush=True)
    return path


def temperature_losses(clf: am.TextClassifier, inputs: list[str], true: Nodes) -> np.ndarray:
    """The mean loss of the classes of held-out texts at each of TEMPERATURES."""
    tax, start, total = clf.taxonomy_, 0, np.zeros(len(TEMPERATURES))
    for logp_BN in clf.model_.node_log_probs(inputs):
        classes = torch.from_numpy(tax.class_of[true[start : start + len(logp_BN)]].copy())
        start += len(logp_BN)
        logp_BC = logp_BN[:, torch.tensor(tax.leaves)]
        for place, temperature in enumerate(TEMPERATURES.tolist()):
            loss = torch.nn.functional.cross_entropy(logp_BC / temperature, classes, ignore_index=-1, reduction="sum")
            total[place] += float(loss)
    return total / max(1, start)


def decode_all(clf: am.TextClassifier, inputs: list[str], temperature: float) -> dict[str, np.ndarray]:
    """(n,) the predictions of each decoder, and of each threshold."""
    tax = clf.taxonomy_
    decoders = {**RIVALS, **{name: measure.decode for name, measure in MEASURES.items()}}
    decoders |= {f"tau{tau}": partial(am.decode.threshold, tau=float(tau)) for tau in TAUS}
    found: dict[str, list[torch.Tensor]] = {name: [] for name in decoders}
    for raw_BN in clf.model_.node_log_probs(inputs):
        logp_BN = raw_BN
        if temperature != 1:
            logp_BN = flat_node_log_probs(raw_BN[:, torch.tensor(tax.leaves)] / temperature, tax)
        for name, decoder in decoders.items():
            found[name].append(decoder(logp_BN, tax))
    return {name: torch.cat(parts).numpy() for name, parts in found.items()}


def summarise(dataset: str, paths: list[Path]) -> dict:
    """Means of the seeds, and intervals of the differences between the optimal decoder and each rival."""
    seeds = [dict(np.load(path)) for path in paths]
    rng = np.random.default_rng(0)
    result: dict = {
        "dataset": dataset,
        "seeds": len(seeds),
        "items": seeds[0]["items"].tolist(),
        "temperatures": [float(seed["temperature"]) for seed in seeds],
        "seconds": [round(float(seed["seconds"]), 1) for seed in seeds],
        "command": f"python experiments/probabilities/decoders.py --datasets {dataset}",
        "versions": {"arbormax": am.__version__, "torch": torch.__version__, "python": platform.python_version()},
        "measures": {},
    }
    n = int(seeds[0]["items"][2])
    draws = [(rng.integers(len(seeds), size=len(seeds)), rng.integers(n, size=n)) for _ in range(RESAMPLES)]
    for name in MEASURES:
        keys = [key.split("/")[1] for key in seeds[0] if key.startswith(f"{name}/") and not key.endswith("/tau")]
        rows = {key: np.stack([seed[f"{name}/{key}"] for seed in seeds]) for key in keys}
        found: dict = {"means": {key: [float(v) for v in row.mean(1)] for key, row in rows.items()}}
        if f"{name}/tau" in seeds[0]:
            found["taus"] = [float(seed[f"{name}/tau"]) for seed in seeds]
        found["differences"] = {}
        for key in keys:
            if key == "optimal":
                continue
            gaps_Sn = rows["optimal"] - rows[key]
            drawn = [gaps_Sn[own][:, items].mean() for own, items in draws] if gaps_Sn.any() else [0.0]
            low, high = np.percentile(drawn, [2.5, 97.5])
            found["differences"][key] = {"mean": float(gaps_Sn.mean()), "low": float(low), "high": float(high)}
        result["measures"][name] = found
    return result


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


def update_page(check: bool) -> int:
    """Write the table into the page; with `check`, only say whether it is up to date."""
    text = PAGE.read_text()
    head, _, rest = text.partition(START)
    _, _, tail = rest.partition(END)
    new = f"{head}{START}\n\n{table()}\n\n{END}{tail}"
    if check:
        print(f"{PAGE.name}: {'up to date' if new == text else 'out of date'}")
        return int(new != text)
    PAGE.write_text(new)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="*", choices=tuple(DATASETS), default=[])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--work", type=Path, default=HERE / "results" / "unfinished", help="values of single texts")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the table is out of date")
    args = parser.parse_args()
    if args.check:
        return update_page(check=True)
    args.work.mkdir(parents=True, exist_ok=True)
    for dataset in args.datasets:
        load_taxonomy(dataset)
        record = summarise(dataset, [run(dataset, seed, args.work) for seed in range(args.seeds)])
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / f"{dataset}.json").write_text(json.dumps(record, indent=1) + "\n")
    return update_page(check=False)


if __name__ == "__main__":
    sys.exit(main())
