"""`arbormax evaluate`: every measure of a model on labelled texts or rows of a feature matrix."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arbormax._files import to_plain
from arbormax.cli import errors, output
from arbormax.cli.groups import expand_options
from arbormax.cli.inputs import is_dataset, read_split
from arbormax.cli.options import Features, Json, LabelOptions, LoadOptions
from arbormax.cli.report import NoTexts
from arbormax.cli.sets import SetOptions

if TYPE_CHECKING:
    from arbormax.data import Examples
    from arbormax.studies.evaluate import Evaluation


@expand_options
def evaluate(
    ctx: typer.Context,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of the model.")],
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="A dataset, of which the test texts are used, or a file.")
    ],
    table: LabelOptions,
    decoder: SetOptions,
    loading: LoadOptions,
    split: Annotated[str, typer.Option(help="Part of a dataset: test or train.")] = "test",
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the measures to this JSON file, for `arbormax report FILE`."),
    ] = None,
    features: Features = None,
    no_texts: NoTexts = False,
    predictions: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the predictions to this file: .csv .tsv .jsonl .parquet")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Number of texts in one batch.")] = 256,
    json: Json = False,
) -> None:
    """Evaluate a model on labelled texts, or on the labelled rows of a feature matrix.

    Example: `arbormax evaluate reviews-model held-out.csv --text body --label category`

    Sets of at most three nodes: `arbormax evaluate reviews-model held-out.csv --coverage 0.9 --max-nodes 3`

    A feature matrix: `arbormax evaluate flowers-model flowers.parquet --label species`
    """
    from arbormax.data.tables.writing import resolve_format

    if predictions is not None:
        resolve_format(predictions)
    from arbormax.studies.record import Record, evaluation

    if decoder.coverage is not None and decoder.max_nodes is None:
        decoder = replace(decoder, max_nodes=1)  # to measure the coverage
    loaded = loading.load(model)
    examples = read_split(data, split, table, features, model, loaded)
    with output.progress_bar("evaluating", len(examples)) as advance:
        record, found = evaluation(
            loaded,
            examples,
            command=errors.command_line(ctx),
            texts=not no_texts,
            batch_size=batch_size,
            progress=advance,
            decoding=decoder.decoding_of(loaded),
        )
    if predictions is not None:
        _write_predictions(predictions, examples, found)
    if out is not None:
        saved = Record.read(model)
        record.training, record.calibration = saved.training, saved.calibration
        tested_on = f"the {split} texts of {data}" if is_dataset(data) else Path(data).name
        record.data = {**(saved.data or {}), "test": tested_on}
        record.write_evaluation(out)
    if json:
        output.print_json(found.metrics)
    else:
        hidden = ("count", "sets")  # equal to items; a table of its own
        shown = {name: value for name, value in found.metrics.items() if name not in hidden}
        output.print_result(output.measure_table(to_plain(shown), f"{model} on {data}"))
        if "sets" in found.metrics:
            _print_sets(found.metrics["sets"], decoder.coverage)
    if (unseen := examples.describe_unseen(loaded.taxonomy)) is not None:
        output.print_status(unseen, style="yellow")
    for path in (out, predictions):
        if path is not None:
            output.print_status(f"written: {path}")


def _print_sets(sets: dict[str, Any], asked: float | None) -> None:
    """The coverage and the size of the sets, and the coverage of each group."""
    rows = [("all", sets["items"], sets["coverage"])]
    rows += [(name, group["items"], group["coverage"]) for name, group in sets.get("groups", {}).items()]
    cells = [(name, f"{items:,}", output.format_number(coverage)) for name, items, coverage in rows]
    size = "1 node" if sets["max_nodes"] == 1 else f"{sets['max_nodes']} nodes"
    title = (
        f"sets of at most {size} for a coverage of {asked:g}: {sets['nodes']:.2f} nodes and "
        f"{sets['classes']:.2f} classes on average"
    )
    output.print_result(output.table(("group", "items", "coverage"), cells, title))


def _write_predictions(path: Path, examples: Examples, found: Evaluation) -> None:
    from arbormax.data.tables.writing import open_writer
    from arbormax.model.predict import NodeNames

    names = NodeNames(found.taxonomy)
    texts = examples.inputs if isinstance(examples.inputs, list) else None
    with open_writer(path) as write:
        for place, (true, node) in enumerate(zip(found.true.tolist(), found.predicted.tolist(), strict=True)):
            write(
                {
                    **({} if texts is None else {"text": texts[place]}),
                    "label": names.label(true),
                    "predicted": names.label(node),
                    "predicted_path": list(names.path(node)),
                    "right": true == node,
                }
            )
