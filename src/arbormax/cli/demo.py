"""`arbormax demo`: the default classifier and two networks on a built-in dataset."""

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
_BAG: dict[str, Any] = {
    "encoder": "bag",
    "encoder_options": {"char_ngrams": 0, "dropout": 0.2},
    "epochs": 6,
    "monitor": "macro_f1",
    "refit": False,
    "calibration": "none",
}
CLASSIFIERS: dict[str, dict[str, Any]] = {
    "bag of words, flat": {**_BAG, "head": "flat"},
    "bag of words, hierarchical": {**_BAG, "head": "hierarchical"},
    "default": {},
}
TRAIN, TEST = None, None  # maximum number of texts; None: all
QUICK_TRAIN, QUICK_TEST, QUICK_EPOCHS = 3000, 300, 2
TEXTS = (0.2, 0.5, 0.8)  # test texts to show, as positions from 0 to 1


def demo(
    quick: Annotated[
        bool, typer.Option("--quick", help="Use a small part of the data: takes seconds, with poor results.")
    ] = False,
    json: Json = False,
) -> None:
    """Train three classifiers of diagnoses and compare them. Takes about two minutes.

    The first two are networks that average word vectors, with one softmax over all classes and with one per parent. The
    third is what `arbormax train` uses by default.

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
    for name, settings in CLASSIFIERS.items():
        output.print_status(f"Training: {name} …")
        model, results[name] = _train(settings, data, train, test, QUICK_EPOCHS if quick else None)
    examples = _examples(model, test)
    columns = {name: MEASURES[name].title for name in shown_measures("headline")} | {name: name for name in COSTS}
    if json:
        classifiers = {key: {name: values[name] for name in columns} for key, values in results.items()}
        counts = {"train": len(train), "test": len(test)}
        output.print_json({"dataset": DATASET, **counts, "classifiers": classifiers, "texts": examples})
        return
    rows = [(key, *(_cell(name, values[name]) for name in columns)) for key, values in results.items()]
    output.print_result(output.table(("classifier", *columns.values()), rows))
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
    settings: dict[str, Any], data: Dataset, train: Examples, test: Examples, epochs: int | None
) -> tuple[Model, dict[str, Any]]:
    from arbormax.model import TrainConfig
    from arbormax.studies import evaluate
    from arbormax.training import fit

    if epochs is not None and "epochs" in settings:
        settings = {**settings, "epochs": epochs}
    run = fit(TrainConfig.make(**settings), data.taxonomy, train, progress=output.is_terminal())
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
