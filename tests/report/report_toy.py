"""Helpers of the report tests: runs with random numbers, and a parser of the page."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import torch

import arbormax as am
from arbormax.data.examples import Examples
from arbormax.model.folder import format_metrics
from arbormax.studies.details import build_details, evaluation_details
from arbormax.studies.evaluate import evaluate_log_probs

TREE = am.Taxonomy.from_nested(
    {"animal": {"bird": ["owl", "hen"], "fish": ["cod", "eel"]}, "plant": {"tree": ["oak", "elm"], "grass": ["rye"]}}
)
CURVE = [
    {"loss": 1.0 / epoch, "macro_f1": 0.2 * epoch, "accuracy": 0.22 * epoch, "hf": 0.23 * epoch} for epoch in (1, 2, 3)
]


def write_run(folder: Path, tax=TREE, *, seed=0, head="hierarchical", texts=60, skill=2.0, said="text") -> Path:
    """Write the folder of a run with random scores that favour the truth."""
    draw = torch.Generator().manual_seed(1)
    nodes = torch.tensor(tax.leaves)[torch.randint(tax.num_leaves, (texts,), generator=draw)]
    examples = Examples([f"{said} {item}" for item in range(texts)], nodes.numpy())
    scores = torch.randn(texts, tax.num_nodes - 1, generator=torch.Generator().manual_seed(seed + 2))
    for item, node in enumerate(nodes.tolist()):
        scores[item, [step - 1 for step in (*tax.ancestors(node)[1:].tolist(), node)]] += skill
    found = evaluate_log_probs(am.functional.node_log_probs(scores, tax).split(16), examples, tax)
    made = {"command": "arbormax train x.csv", "date": "2026-01-02T03:04:05+00:00", "versions": {"arbormax": "0"}}
    config = {"encoder": "bag", "head": head, "seed": seed}
    levels = evaluation_details(examples, found)["calibration"]
    side = {name: found.metrics[name] for name in ("nll", "brier", "ece", "ece_debiased")} | {"levels": levels}
    metrics = {
        "test": found.metrics,
        "calibration": {"method": "parent", "items": texts, "applied": True, "before": side, "after": side},
        "training": {"curve": CURVE, "best_epoch": 2, "command": "arbormax train x.csv", "seconds": 1.5},
        "data": {"name": "toys"},
        "details": {**made, "config": config, **evaluation_details(examples, found)},
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.json").write_text(format_metrics(metrics), "utf-8")
    return folder


def write_large_run(folder: Path, tax, texts: int) -> Path:
    """Write the folder of a run over a large tree, without probabilities."""
    draw = np.random.default_rng(0)
    true = tax.leaves[draw.integers(tax.num_leaves, size=texts)]
    pred = np.where(draw.random(texts) < 0.6, true, tax.leaves[draw.integers(tax.num_leaves, size=texts)])
    details = build_details(Examples([f"text {item}" for item in range(texts)], true), pred, tax)
    folder.mkdir()
    metrics = {"test": {"accuracy": float((true == pred).mean())}, "details": details}
    (folder / "metrics.json").write_text(format_metrics(metrics), "utf-8")
    return folder


def balanced_tree(*widths: int) -> am.Taxonomy:
    """A tree with these numbers of children at each level, and long names."""
    level, parents, names = [0], [-1], ["root"]
    for depth, width in enumerate(widths):
        below = []
        for parent in level:
            for child in range(width):
                below.append(len(parents))
                parents.append(parent)
                names.append(f"{depth}.{child} a disorder of the {parent}th kind, unspecified, initial encounter")
        level = below
    return am.Taxonomy.from_parents(parents, names)


class Page(HTMLParser):
    """The content of a page: its text, the addresses it would load, its data and its ids."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.loads, self.ids, self.text, self.data, self.inside = [], [], [], "", ""
        self.feed(html)
        self.words = re.sub(r"[ \n]+", " ", "".join(self.text))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.inside = given.get("id", tag) if tag in ("script", "style") else ""
        self.ids += [given["id"]] if "id" in given else []
        wanted = ("src", "srcset", "data", "poster", "action", "background", "xlink:href")
        self.loads += [given[name] for name in wanted if name in given]
        self.loads += [given["href"]] if tag in ("link", "use", "image", "base") else []
        self.loads += [given["href"]] if tag == "a" and not given["href"].startswith("#") else []

    def handle_endtag(self, tag):
        self.inside = ""

    def handle_data(self, data):
        if not self.inside:
            self.text.append(data)
        elif self.inside == "data":
            self.data = json.loads(data)
        elif self.inside == "style":
            assert "@import" not in data
            assert "url(" not in data
