"""`arbormax evaluate`: every measure of a model on labelled texts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arbormax.cli import errors, output
from arbormax.cli.groups import expand_options
from arbormax.cli.inputs import check_exists, is_dataset, on_tree, read_file
from arbormax.cli.options import (
    Device,
    Imports,
    InputOptions,
    Json,
    LabelOptions,
    import_modules,
    resolve_device,
)
from arbormax.cli.report import NoTexts
from arbormax.errors import OptionError

if TYPE_CHECKING:
    from arbormax.data import Examples
    from arbormax.taxonomy import Taxonomy


@expand_options
def evaluate(
    ctx: typer.Context,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a model.")],
    data: Annotated[str, typer.Argument(metavar="DATA", help="A dataset, whose test texts are taken, or a file.")],
    table: InputOptions,
    labels: LabelOptions,
    split: Annotated[str, typer.Option(help="Of a dataset: test or train.")] = "test",
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the measures there, as JSON; `arbormax report FILE` shows them."),
    ] = None,
    no_texts: NoTexts = False,
    predictions: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write what was predicted: .csv .tsv .jsonl .parquet")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts at a time.")] = 256,
    device: Device = "auto",
    imports: Imports = None,
    json: Json = False,
) -> None:
    """Measure a model on labelled texts.

    Example: `arbormax evaluate reviews-model held-out.csv --text body --label category`
    """
    from arbormax.cli import writers

    if predictions is not None:
        writers.format_of(predictions, None)
    import_modules(imports)
    from arbormax.model import load_model, read_metrics
    from arbormax.studies import evaluate as measured
    from arbormax.studies.record import Recorder, origin, to_json

    loaded = load_model(model, resolve_device(device))
    examples = _read(data, split, table, labels, loaded.taxonomy)
    with output.progress_bar("measuring", len(examples)) as advance:
        recorder = None if out is None else Recorder(loaded.taxonomy)
        found = measured(loaded, examples, batch_size, advance, recorder)
    metrics = output.to_plain(found.metrics)
    if predictions is not None:
        _write_predictions(predictions, examples, found.predicted.tolist(), loaded.taxonomy)
    if out is not None and recorder is not None:
        from arbormax._files import write_file

        before = read_metrics(model)
        told = recorder.details(examples, found.predicted, texts=not no_texts)
        known = {name: value for name, value in before.items() if name in ("training", "data")}
        made = origin(errors.command_line(ctx), loaded.config)
        write_file(out, to_json({**metrics, **known, "details": {**made, **told}}).encode())
    if json:
        output.print_json(metrics)
    else:
        output.print_result(output.measure_table(metrics, f"{model} on {data}"))
    for path in (out, predictions):
        if path is not None:
            output.print_status(f"written: {path}")


def _read(data: str, split: str, table: InputOptions, labels: LabelOptions, tree: Taxonomy) -> Examples:
    if split not in ("test", "train"):
        raise OptionError(f"--split is test or train, found {split!r}")
    check_exists(data)
    with output.progress_bar(f"reading {data}"):
        if not is_dataset(data):
            if split != "test":
                raise OptionError(f"--split belongs to datasets, and {data} is a file")
            return read_file(Path(data), table, labels, tree)[0]
        if (table, labels) != (InputOptions(), LabelOptions()):
            raise OptionError(f"options such as --text and --delimiter belong to files, and {data} is a dataset")
        from arbormax.data import load

        dataset = load(data)
        return on_tree(dataset.test if split == "test" else dataset.train, dataset.taxonomy, tree, data)


def _write_predictions(path: Path, examples: Examples, predicted: list[int], tree: Taxonomy) -> None:
    from arbormax.cli.writers import writer
    from arbormax.model.predict import NodeNames

    names = NodeNames(tree)
    with writer(path, None) as write:
        rows = zip(examples.inputs, examples.nodes.tolist(), predicted, strict=True)
        for text, true, node in rows:
            write(
                {
                    "text": text,
                    "label": names.label(true),
                    "predicted": names.label(node),
                    "predicted_path": list(names.path(node)),
                    "right": true == node,
                }
            )
