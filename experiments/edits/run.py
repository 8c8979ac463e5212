"""Accuracy on moved, split, merged and added classes: before an edit, after it, and after training with new texts.

export ARBORMAX_DATA=path/to/data
python experiments/edits/run.py --plan soc2020:blended soc2020:hierarchical --seeds 0 1 2
"""

from __future__ import annotations

import argparse
import json
import time
from copy import deepcopy
from pathlib import Path

import numpy as np

import arbormax as am
from arbormax.data import load
from arbormax.data.examples import Examples
from arbormax.model import Model, TrainConfig
from arbormax.taxonomy.edits import Edited
from arbormax.training import continue_training, fit
from arbormax.training.continuing import change_config

RESULTS = Path(__file__).parent / "results"
PLAN = [
    *("soc2020:blended", "soc2020:hierarchical", "soc2020:flat", "soc2020:bag-shared"),
    *("icd10cm:blended", "icd10cm:hierarchical"),
]
MOST_TEXTS = 20_000  # of the training split, so that the study takes less than an hour on one core
COUNTS = {"moved": 3, "split": 3, "merged": 3, "added": 5}
NEW = {"continued 1 %": 0.01, "continued 10 %": 0.1}  # shares of the texts that come after the edit
MIN_TEXTS, MAX_SHARE = 30, 0.02  # training texts of a chosen class


def choose(tax: am.Taxonomy, nodes: np.ndarray, seed: int) -> dict[str, list]:
    """Random nodes for each kind of edit, none of which is in the branch of another; only training texts are seen."""
    draw, counts = np.random.default_rng(seed), tax.sum_up(np.bincount(nodes, minlength=tax.num_nodes))
    is_usual = (counts >= MIN_TEXTS) & (counts <= MAX_SHARE * len(nodes))
    used: set[int] = set()
    chosen: dict[str, list] = {kind: [] for kind in COUNTS}

    def free(parent: int) -> bool:
        return parent > 0 and not {parent, *tax.ancestors(parent).tolist()[1:]} & used

    for kind, count in COUNTS.items():
        for node in draw.permutation(np.flatnonzero(is_usual)).tolist():
            parent = int(tax.parent[node])
            siblings = [n for n in tax.children(parent).tolist() if n != node and tax.is_leaf[n] and counts[n]]
            if len(chosen[kind]) == count or not free(parent) or len(tax.children(parent)) < 3:
                continue
            if kind == "split" and not tax.is_leaf[node] and tax.is_leaf[tax.children(node)].all():
                chosen[kind].append(node)
            elif kind == "merged" and tax.is_leaf[node] and siblings:
                chosen[kind].append((node, int(draw.choice(siblings))))
            elif kind == "added" and tax.is_leaf[node]:
                chosen[kind].append(node)
            elif kind == "moved" and (homes := _homes(tax, node)):
                chosen[kind].append((node, int(draw.choice(homes))))
            else:
                continue
            used |= {node, parent}
    return chosen


def _homes(tax: am.Taxonomy, node: int) -> list[int]:
    """The inner nodes in other branches on the level of a node's parent."""
    branch, level = tax.ancestors(node)[1:2], tax.node_depth[node] - 1
    names = set(tax.names[node])
    return [
        n
        for n in range(1, tax.num_nodes)
        if tax.node_depth[n] == level
        and not tax.is_leaf[n]
        and n not in branch
        and not set(tax.ancestors(n)[1:2]) & set(branch)
        and not names & {tax.names[c] for c in tax.children(n)}
    ]


def follow(old: am.Taxonomy, node_map: np.ndarray, others: dict[int, int]) -> np.ndarray:
    """(N,) the new node of every node; a node that is gone has the value of `others`, or that of its parent."""
    found = node_map.copy()
    for node in range(1, old.num_nodes):
        if node in others:
            found[node] = others[node]
        elif found[node] < 0:
            found[node] = found[old.parent[node]]
    return found


def run(name: str, arm: str, seed: int, texts: int) -> dict:
    dataset = load(name)
    tax, chosen = dataset.taxonomy, choose(dataset.taxonomy, dataset.train.nodes, seed)
    order = np.random.default_rng(seed).permutation(len(dataset.train))[:texts]
    last = round(max(NEW.values()) * len(order))
    first = dataset.train.take(order[last:])

    shrink = am.edit(tax)  # the tree before: added classes and the parts of split ones are not known yet
    for node in chosen["added"]:
        shrink.remove(tax.path(node))
    for node in chosen["split"]:
        for child in tax.children(node).tolist():
            shrink.remove(tax.path(child), emptied="class")
    before = shrink.done()
    to_before = follow(tax, before.node_map, dict.fromkeys(chosen["added"], -1))
    is_known = to_before[first.nodes] > 0
    old_train = Examples([first.inputs[i] for i in np.flatnonzero(is_known)], to_before[first.nodes[is_known]])
    encoder, head = arm.split("-") if "-" in arm else (None, arm)
    config = TrainConfig.make(encoder=encoder, head=head, seed=seed)
    started = time.perf_counter()
    model = fit(config, before.taxonomy, old_train).model
    train_seconds = time.perf_counter() - started

    merged_into = {to_before[b]: to_before[a] for a, b in chosen["merged"]}
    truth = np.array([merged_into.get(n, n) for n in to_before.tolist()])
    found = predict(model, dataset.test.inputs)
    right = {"before": np.array([merged_into.get(n, n) for n in found.tolist()]) == truth[dataset.test.nodes]}

    edited_model, edited, edit_seconds = edit(model, tax, chosen, None)
    joined = {b: int(edited.node_map[to_before[a]]) for a, b in chosen["merged"]}
    fresh = {node: edited.taxonomy.find(tax.path(node)) for node in chosen["added"]}
    fresh |= {c: edited.taxonomy.find(tax.path(c)) for node in chosen["split"] for c in tax.children(node).tolist()}
    carried = np.where(to_before >= 0, edited.node_map[to_before], -1)
    to_after = follow(tax, carried, {**joined, **fresh})
    right["edited"] = predict(edited_model, dataset.test.inputs) == to_after[dataset.test.nodes]
    edited_model, edited, seconds = edit(model, tax, chosen, list(old_train.inputs))
    right["edited with texts"] = predict(edited_model, dataset.test.inputs) == to_after[dataset.test.nodes]

    timed = {"train": train_seconds, "edit": edit_seconds, "edit with texts": seconds}
    for when, share in NEW.items():
        new = dataset.train.take(order[: round(share * len(order))])
        started = time.perf_counter()
        examples = Examples(new.inputs, to_after[new.nodes])
        continued = continue_training(edited_model, change_config(edited_model, {"seed": seed}), examples)
        timed[when] = time.perf_counter() - started
        right[when] = predict(continued.run.model, dataset.test.inputs) == to_after[dataset.test.nodes]
    return {
        "dataset": name,
        "arm": arm,
        "seed": seed,
        "train_texts": len(old_train),
        "accuracy": measure(tax, chosen, dataset.test.nodes, right),
        "kept": list(edited.kept.values()),
        "seconds": timed,
    }


def edit(model: Model, tax: am.Taxonomy, chosen: dict, texts: list[str] | None) -> tuple[Model, Edited, float]:
    """A copy of the model with all edits, made with unlabelled texts or without."""
    model = deepcopy(model)
    edits = am.edit(model)
    for node, home in chosen["moved"]:
        edits.move(tax.path(node), under=tax.path(home), emptied="class")
    for node in chosen["added"]:
        edits.add(tax.names[node], under=tax.path(tax.parent[node]))
    for node in chosen["split"]:
        edits.split(tax.path(node), [tax.names[child] for child in tax.children(node).tolist()])
    for stays, gone in chosen["merged"]:
        edits.merge(tax.path(gone), into=tax.path(stays))
    started = time.perf_counter()
    edited = edits.done(features=texts)
    return model, edited, time.perf_counter() - started


def predict(model: Model, texts: list[str]) -> np.ndarray:
    """(n,) the node of the most probable class of each text."""
    from arbormax.model.predict import Decoding, decode_batches

    return np.concatenate([batch.nodes.numpy() for batch in decode_batches(model, texts, Decoding())])


def measure(tax: am.Taxonomy, chosen: dict, nodes: np.ndarray, right: dict[str, np.ndarray]) -> dict:
    """The accuracy at each time on the texts of each kind, and on all others."""
    part = np.full(len(nodes), "others", object)
    for kind, members in chosen.items():
        for member in members:
            for node in member if kind == "merged" else [member[0] if kind == "moved" else member]:
                part[tax.lca(nodes, np.full_like(nodes, node)) == node] = kind
    measured = {}
    for kind in (*COUNTS, "others"):
        is_part = part == kind
        measured[kind] = {
            "items": int(is_part.sum()),
            **{when: float(ok[is_part].mean()) for when, ok in right.items()},
        }
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", nargs="+", default=PLAN)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--texts", type=int, default=MOST_TEXTS, help="maximum number of training texts")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    for seed in options.seeds:
        for step in options.plan:
            name, arm = step.split(":")
            path = options.out / f"{name}-{arm}-{seed}.json"
            if not path.exists():
                record = run(name, arm, seed, options.texts)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(record, indent=1) + "\n")
                print(path.name, json.dumps(record["accuracy"]), flush=True)


if __name__ == "__main__":
    main()
