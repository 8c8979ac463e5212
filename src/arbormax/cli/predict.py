"""`arbormax predict`: predictions for one text or for tables of any size."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arbormax.cli import output
from arbormax.cli.groups import expand_options
from arbormax.cli.inputs import feature_columns, read_text, warn_skipped
from arbormax.cli.options import Features, InputOptions, Json, LoadOptions, import_modules
from arbormax.cli.sets import SetOptions
from arbormax.data.tables.writing import open_writer, resolve_format
from arbormax.data.tokens import show_fields
from arbormax.errors import InputError, OptionError, check_choice

if TYPE_CHECKING:
    from arbormax.model.predict import Decoding, Prediction

ENGINES = ("local", "ray")


@expand_options
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a model.")],
    table: InputOptions,
    decoder: SetOptions,
    loading: LoadOptions,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE|-]",
            help="Texts: .csv .tsv .jsonl .parquet .xlsx .txt; - reads lines of stdin. For a model of feature "
            "matrices, tables of numbers or .npz. With --engine ray also folders and several files.",
        ),
    ] = None,
    message: Annotated[
        str | None,
        typer.Option(
            "--message",
            "-m",
            metavar="TEXT",
            help="Predict this text and print the result. For a model of several columns also JSON, such as "
            """'{"name": "Red scarf", "brand": "Acme"}'.""",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Output file: .csv .tsv .jsonl .parquet .xlsx; stdout by default. CSV is written like the input.",
        ),
    ] = None,
    output_format: Annotated[
        str | None,
        typer.Option("--format", metavar="FORMAT", help="Format of the output: jsonl, csv, tsv, parquet or xlsx."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Also write the columns of the input, first.")] = False,
    top_k: Annotated[int, typer.Option(min=0, help="Number of most probable classes to list.")] = 0,
    within_column: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of the nodes that restrict each row, with ; between them."),
    ] = None,
    without_column: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of the nodes that are excluded for each row.")
    ] = None,
    features: Features = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts per batch.")] = 256,
    engine: Annotated[
        str, typer.Option(help="local, or ray for many workers on this machine or a cluster, Parquet to Parquet.")
    ] = "local",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Workers of --engine ray; by default the number of cores or GPUs.")
    ] = None,
    json: Json = False,
) -> None:
    """Predict the class of texts, with its path in the taxonomy and the probability of each step.

    Example: `arbormax predict reviews-model new.csv --text body --keep --top-k 3 --out predicted.csv`

    Restricted to the species of a region: `arbormax predict birds-model new.csv --within-column species_here`

    Sets of at most three nodes: `arbormax predict reviews-model new.csv --coverage 0.9 --max-nodes 3`

    With Ray: `arbormax predict reviews-model corpus/ --engine ray --workers 8 --out predicted.parquet`
    """
    import_modules(loading.imports)  # which may register decoders
    decoding = decoder.decoding(top_k)
    check_choice("engine", engine, ENGINES)
    if decoder.coverage is not None:
        _check_unrestricted(within_column, without_column)
    columns = {"within_column": within_column, "without_column": without_column}
    if engine == "ray":
        if decoder.coverage is not None:
            raise OptionError("not available with --engine ray; give --decoder climb --tau", argument="coverage")
        if json or message is not None:
            option = "--json" if json else "--message"
            raise OptionError(f"{option} cannot be combined with --engine ray, which reads and writes Parquet")
        if out is None or resolve_format(out, output_format) != "parquet":
            raise OptionError("--engine ray writes Parquet: give --out FILE.parquet")
        options = {"keep": keep, "batch_size": batch_size, "device": loading.device, "workers": workers, **columns}
        _predict_with_ray(model, files or [], table, out, decoding, modules=loading.imports or (), **options)
        return
    if workers is not None:
        raise OptionError("requires --engine ray", argument="workers")
    if message is not None:
        if files or out is not None or output_format is not None:
            raise OptionError("cannot be combined with FILE, --out and --format", argument="message")
        for name, value in columns.items():
            if value is not None:
                raise OptionError("cannot be combined with --message, which is no table", argument=name)
        _predict_one(model, message, decoder, top_k, loading, json)
        return
    source = _check_source(files, out)
    if json and (out is not None or output_format not in (None, "jsonl")):
        raise OptionError("prints JSON lines on stdout and cannot be combined with --out and --format", argument="json")
    chosen = resolve_format(out, "jsonl" if json else output_format)
    from arbormax.data.matrices import FEATURES, iter_features
    from arbormax.model.rows import BadRows, Rows, predict_rows, read_rows, source_name

    loaded = loading.load(model)
    decoding = decoder.decoding_of(loaded, top_k)
    numbers = feature_columns(Path(source), model, loaded, features, table)
    if numbers is None:
        rows = read_rows(source, table.columns(loaded.config.columns), **table.reader())
    else:
        rows = Rows(iter_features(source, *numbers, **table.reader()), FEATURES)
    bad_rows = BadRows(source_name(source), table.skip_bad_rows)
    count = 0
    style = rows.source.dialect if rows.source is not None and rows.source.format in ("csv", "tsv") else None
    separator = loaded.config.separator or " > "
    widths = {"top": min(decoding.alternatives, loaded.taxonomy.num_leaves)}
    with open_writer(out, chosen, style, separator, widths) as write, output.progress_bar("predicting") as advance:
        for row in predict_rows(
            loaded, rows, decoding, batch_size=batch_size, keep=keep, **columns, on_bad_rows=bad_rows
        ):
            write(row)
            count += 1
            if not count % 256:
                advance(256)
        if not count:
            what = "texts" if loaded.encoder.takes_texts else "rows"
            raise InputError(f"{bad_rows.source}: found no {what}")
    _print_written(out, count, bad_rows)


def _check_unrestricted(*columns: str | None) -> None:
    from arbormax.uncertainty.conformal import refuse_restriction

    try:
        refuse_restriction(*columns)
    except OptionError as error:
        raise OptionError(error.message, argument=f"{error.argument}_column") from None


def _predict_one(model: Path, text: str, decoder: SetOptions, top_k: int, loading: LoadOptions, json: bool) -> None:
    if not text.strip():
        raise InputError("the text is empty", argument="message")
    from arbormax.model.predict import predict as predict_texts

    loaded = loading.load(model)
    if not loaded.encoder.takes_texts:
        raise OptionError(f"{model} classifies feature matrices, not texts: give a FILE", argument="message")
    text = read_text(loaded, text)
    (prediction,) = predict_texts(loaded, [text], **vars(decoder.decoding_of(loaded, top_k)))
    if json:
        output.print_json({"text": show_fields(text), **prediction.to_dict()})
    else:
        _print_prediction(show_fields(text), prediction)


def _predict_with_ray(
    model: Path, files: list[str], table: InputOptions, out: Path, decoding: Decoding, **options: Any
) -> None:
    if not files or "-" in files:
        raise OptionError("--engine ray reads Parquet: give files, folders or patterns such as 'corpus/*.parquet'")
    if table.input_format not in (None, "parquet"):
        raise OptionError("--engine ray reads Parquet", argument="input_format")
    kept = ("text", "template", "also", "input_format", "skip_bad_rows")
    if table != InputOptions(**{name: getattr(table, name) for name in kept}):
        raise OptionError(
            "--engine ray reads Parquet; options such as --delimiter are for files that one process reads"
        )
    from arbormax.integrations.ray import predict_parquet
    from arbormax.model.rows import BadRows, source_name

    bad_rows = BadRows(source_name(files[0]) if len(files) == 1 else f"{len(files)} inputs", table.skip_bad_rows)
    with output.stage_progress("predicting") as progress:
        text = table.columns() if table.text or table.template or table.also else None
        count = predict_parquet(
            model, files, out, decoding, text=text, on_bad_rows=bad_rows, progress=progress, **options
        )
    _print_written(out, count, bad_rows)


def _check_source(files: list[str] | None, out: Path | None) -> str:
    if files and len(files) > 1:
        raise OptionError(f"expected one FILE, found {len(files)}: {', '.join(files[:3])}; --engine ray takes several")
    if not files:
        if sys.stdin.isatty():
            raise OptionError("expected a FILE, - for lines of stdin, or --message TEXT")
        return "-"
    if out is not None and files[0] != "-" and out.exists() and out.samefile(files[0]):
        raise OptionError(f"{out} is the input file", argument="out")
    return files[0]


def _print_written(out: Path | None, count: int, bad_rows: Any) -> None:
    if bad_rows.count:
        warn_skipped(bad_rows.source, bad_rows.first, bad_rows.count)
    if out is not None:
        output.print_status(f"written: {out}, {count:,} rows")


def _print_prediction(text: str, prediction: Prediction) -> None:
    from arbormax.cli.trees import path_tree
    from arbormax.taxonomy.render import printable

    output.print_result(path_tree(printable(text), prediction.path, prediction.probabilities))
    if not prediction.path:
        output.print_result("No class is probable enough: the prediction is the root of the taxonomy.")
    if prediction.reason:
        output.print_result(printable(prediction.reason))
    if prediction.set:
        names = "; ".join(label or "all classes" for label in prediction.set)
        output.print_result(f"The set: {printable(names)}")
    if prediction.uncertainty:
        steps = zip(prediction.path, prediction.uncertainty, strict=True)
        cells = [(printable(name), *(f"{value:.3f}" for value in step)) for name, step in steps]
        output.print_result(output.table(("uncertainty", "std of P", "total", "aleatoric", "epistemic"), cells))
    if prediction.alternatives:
        rows = [(printable(label), f"{probability:.3f}") for label, probability in prediction.alternatives]
        output.print_result(output.table(("most probable classes", "probability"), rows))
