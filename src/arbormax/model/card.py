"""The model card: what the model does, its results and its settings."""

from __future__ import annotations

from typing import Any

import torch

from arbormax._version import __version__
from arbormax.metrics import MEASURES
from arbormax.metrics.registry import shown_measures
from arbormax.model.network import Model


def model_card(model: Model, metrics: dict[str, Any]) -> str:
    """The card in Markdown."""
    kind, loader, inputs = (
        ("text classifier", "TextClassifier", '["a text"]')
        if model.encoder.takes_texts
        else ("classifier of feature matrices", "HierarchicalClassifier", "X")
    )
    tax, config = model.taxonomy, model.config
    settings = [
        f"| {name.replace('_', ' ')} | {value} |"
        for name, value in {**config.model_dump(mode="json"), **model.encoder.options.model_dump(mode="json")}.items()
        if name != "encoder_options" and value is not None
    ]
    how, no_data = "trained", list[str]()
    if config.names == "only":
        how = "built from the texts of its taxonomy's nodes alone, without training data,"
        no_data = ["The model was not trained: its rows are the features of the texts of the nodes (zero-shot).", ""]
    lines = [
        f"# {config.encoder} with a {config.head} softmax over {tax.num_leaves:,} classes",
        "",
        f"A {kind}, {how} with arbormax {__version__} (torch {torch.__version__}). It assigns a "
        f"probability to each of the {tax.num_nodes:,} nodes of a {'graph' if tax.is_graph else 'tree'} of depth "
        f"{tax.depth}; classes are leaves.",
        "",
        "```python",
        "import arbormax as am",
        "",
        f'clf = am.{loader}.load("this folder")',
        f"clf.predict({inputs})",
        "```",
        "",
        "## Taxonomy",
        "",
        "```text",
        tax.render(),
        "```",
        *_results(metrics),
        "",
        "## Training",
        "",
        *no_data,
        f"{model.num_parameters:,} parameters.{_draws(model)}{_epochs(metrics.get('training') or {})}",
        "",
        "| setting | value |",
        "|---|---|",
        *settings,
        "",
        "## Limits",
        "",
        "The model assigns every input to a class of its taxonomy, also an input that is unlike the training data. "
        "Check the probability, or use `predict_nodes`, which stops at an inner node if no class is probable enough. "
        "The model has not been tested for unequal treatment of groups of people.",
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
    head = ["", "## Results", "", f"| split | items | {' | '.join(MEASURES[name].title for name in names)} |"]
    return [*head, f"|---|---|{'---|' * len(names)}", *rows]


def _draws(model: Model) -> str:
    if model.posterior is None:
        return ""
    return (
        f" Probabilities are means over {model.posterior.draws} draws of the network ({model.config.uncertainty}); "
        "`predict_uncertainty` says how much these differ."
    )


def _epochs(training: dict[str, Any]) -> str:
    """How the number of epochs was chosen, if all examples were used in the end."""
    again, best, epochs = (training.get(name) for name in ("refit_epochs", "best_epoch", "epochs"))
    if again is None:
        return ""
    return (
        f" Epoch {best} of {epochs} was the best on held-out examples; the model was then trained again on all "
        f"examples, for {again} epoch{'s' * (again != 1)}."
    )
