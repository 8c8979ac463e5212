"""The model card: what a model is, how it was made, how well it does."""

from __future__ import annotations

from typing import Any

import torch

from arbormax._version import __version__
from arbormax.metrics import MEASURES
from arbormax.metrics.registry import shown_measures
from arbormax.model.network import Model


def model_card(model: Model, metrics: dict[str, Any]) -> str:
    """The card in Markdown."""
    tax, config = model.taxonomy, model.config
    settings = [
        f"| {name.replace('_', ' ')} | {value} |"
        for name, value in {**config.model_dump(mode="json"), **model.encoder.options.model_dump(mode="json")}.items()
        if name != "encoder_options" and value is not None
    ]
    lines = [
        f"# {config.encoder} with a {config.head} softmax over {tax.num_leaves:,} classes",
        "",
        f"A text classifier made with arbormax {__version__} (torch {torch.__version__}). It gives a "
        f"probability to each of the {tax.num_nodes:,} nodes of a tree of depth {tax.depth}; a class is a leaf.",
        "",
        "```python",
        "import arbormax as am",
        "",
        'model = am.TextClassifier.load("this folder")',
        'model.predict(["a text"])',
        "```",
        "",
        "## The tree",
        "",
        "```text",
        tax.render(),
        "```",
        *_results(metrics),
        "",
        "## How it was made",
        "",
        f"{model.num_parameters:,} parameters.",
        "",
        "| setting | |",
        "|---|---|",
        *settings,
        "",
        "## Limits",
        "",
        "It knows the classes of its tree only, and gives every text to one of them; a text unlike its training "
        "texts gets a guess. Look at the probability, and at `predict_nodes`, which stops where it is not sure. Nobody "
        "has examined whether it treats people unequally.",
    ]
    return "\n".join(lines) + "\n"


def _results(metrics: dict[str, Any]) -> list[str]:
    names = shown_measures("main")
    rows = []
    for split, values in metrics.items():
        if isinstance(values, dict) and "accuracy" in values:
            cells = [f"{values[name]:.4f}" if isinstance(values.get(name), (int, float)) else "" for name in names]
            rows.append(f"| {split} | {values.get('items', '')} | {' | '.join(cells)} |")
    if not rows:
        return []
    head = ["", "## Results", "", f"| split | texts | {' | '.join(MEASURES[name].title for name in names)} |"]
    return [*head, f"|---|---|{'---|' * len(names)}", *rows]
