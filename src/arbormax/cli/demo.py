"""`arbormax demo`: a flat and a hierarchical classifier on a built-in dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from arbormax.cli import output
from arbormax.cli.options import Json
from arbormax.metrics import MEASURES
from arbormax.metrics.registry import COSTS, shown_measures

if TYPE_CHECKING:
    from arbormax.data import Dataset, Examples
    from arbormax.model import Model

# These settings decide how long the demo takes and how good its results are.
DATASET = "icd10cm"
HEADS = ("flat", "hierarchical")
SETTINGS: dict[str, Any] = {"encoder": "bag", "epochs": 6, "seed": 0}
TRAIN, TEST = None, None  # maximum number of texts; None: all
QUICK_SETTINGS: dict[str, Any] = {**SETTINGS, "epochs": 2, "encoder_options": {"dim": 32}}
QUICK_TRAIN, QUICK_TEST = 3000, 300
TEXTS = (0.2, 0.5, 0.8)  # test texts to show, as positions from 0 to 1


def demo(
    quick: Annotated[
        bool, typer.Option("--quick", help="Use a small part of the data: takes seconds, with poor results.")
    ] = False,
    json: Json = False,
) -> None:
    """Train a flat and a hierarchical classifier of diagnoses and compare them. Takes about a minute.

    Example: `arbormax demo`
    """
    from arbormax.cli.trees import path_tree
    from arbormax.data import load
    from arbormax.taxonomy.render import printable

    with output.progress_bar(f"reading {DATASET}"):
        data = load(DATASET)
    most = (QUICK_TRAIN, QUICK_TEST) if quick else (TRAIN, TEST)
    train, test = (_part(texts, count) for texts, count in zip((data.train, data.test), most, strict=True))
    tax = data.taxonomy
    output.print_status(
        f"{data.source}: {len(train):,} training texts, {len(test):,} test texts, "
        f"{tax.num_leaves:,} classes in a tree of depth {tax.depth}."
    )
    results: dict[str, dict[str, Any]] = {}
    for head in HEADS:
        output.print_status(f"Training with a {head} softmax …")
        model, results[head] = _train(head, data, train, test, QUICK_SETTINGS if quick else SETTINGS)
    examples = _examples(model, test)
    columns = {name: MEASURES[name].title for name in shown_measures("headline")} | {name: name for name in COSTS}
    if json:
        heads = {head: {name: values[name] for name in columns} for head, values in results.items()}
        output.print_json(
            {"dataset": DATASET, "train": len(train), "test": len(test), "heads": heads, "texts": examples}
        )
        return
    rows = [(head, *(_cell(name, values[name]) for name in columns)) for head, values in results.items()]
    output.print_result(output.table(("softmax", *columns.values()), rows))
    output.print_result(
        "Higher is better, except for mistake severity: the mean number of levels from a mistake up to the lowest node "
        "that it shares with the truth."
    )
    for example in examples:
        output.print_result("")
        output.print_result(path_tree(printable(example["text"]), example["path"], example["probabilities"]))
        verdict = (
            "correct" if example["label"] == example["truth"] else f"true class: {' > '.join(example['truth_path'])}"
        )
        output.print_result(f"  {verdict}")
    output.print_result(
        "\nNext: arbormax train my-texts.csv --text TEXT-COLUMN --label LABEL-COLUMN    train on your own texts\n"
        f"      arbormax taxonomy show {DATASET} --depth 2                             show the tree\n"
        f"      arbormax compare {DATASET} --epochs 3                                  compare with folds and intervals"
    )


def _cell(name: str, value: Any) -> str:
    return f"{value:.1f}" if name == "seconds" else output.format_number(value)


def _part(texts: Examples, count: int | None) -> Examples:
    """At most `count` of the texts, spread evenly over the list."""
    if count is None or count >= len(texts):
        return texts
    return texts.take([place * len(texts) // count for place in range(count)])


def _train(
    head: str, data: Dataset, train: Examples, test: Examples, settings: dict[str, Any]
) -> tuple[Model, dict[str, Any]]:
    from arbormax.model import TrainConfig
    from arbormax.studies import evaluate
    from arbormax.training import fit

    run = fit(TrainConfig.make(head=head, **settings), data.taxonomy, train, progress=output.is_terminal())
    with output.progress_bar("evaluating", len(test)) as advance:
        values = evaluate(run.model, test, progress=advance).metrics
    return run.model, {**values, "parameters": run.model.num_parameters, "seconds": round(run.seconds, 1)}


def _examples(model: Model, test: Examples) -> list[dict[str, Any]]:
    """Some test texts with their predictions and true classes."""
    from arbormax.model.predict import NodeNames, predict

    chosen = test.take([int(share * len(test)) for share in TEXTS])
    found = predict(model, chosen.inputs)
    names = NodeNames(model.taxonomy)
    return [
        {"text": text, **prediction.to_dict(), "truth": names.label(node), "truth_path": list(names.path(node))}
        for text, node, prediction in zip(chosen.inputs, chosen.nodes.tolist(), found, strict=True)
    ]
