"""`arbormax predict`: classes for texts, from files of any size."""

from __future__ import annotations

import json as json_format
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arbormax.cli import output
from arbormax.cli.groups import expand_options
from arbormax.cli.inputs import warn_skipped
from arbormax.cli.options import Decoder, Device, Imports, InputOptions, Json, import_modules, resolve_device
from arbormax.cli.scoring import batches_of, decoding_of
from arbormax.data.tables import bad_rows_error
from arbormax.data.tables.writing import open_writer, resolve_format
from arbormax.errors import InputError, OptionError, did_you_mean

if TYPE_CHECKING:
    from arbormax.model.predict import Decoding

ENGINES = ("local", "ray")


@expand_options
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a model.")],
    table: InputOptions,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE|-]",
            help="Texts: .csv .tsv .jsonl .parquet .txt; -: lines of stdin; with Ray folders and several files.",
        ),
    ] = None,
    message: Annotated[str | None, typer.Option("--message", "-m", metavar="TEXT", help="One text, here.")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to: .csv .tsv .jsonl .parquet; stdout by default.")
    ] = None,
    format: Annotated[str | None, typer.Option(help="Of the output: jsonl, csv, tsv or parquet.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Write the input's own columns too, before ours.")] = False,
    top_k: Annotated[int, typer.Option(min=0, help="The most probable classes to tell.")] = 0,
    decoder: Decoder = None,
    tau: Annotated[
        float | None, typer.Option(help="Stop where the probability falls to this; --decoder threshold.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts at a time.")] = 256,
    engine: Annotated[
        str, typer.Option(help="local, or ray: many workers, on this machine or a cluster; Parquet to Parquet.")
    ] = "local",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Of --engine ray; by default as many as there are cores, or GPUs.")
    ] = None,
    device: Device = "auto",
    imports: Imports = None,
    json: Json = False,
) -> None:
    """Predict the class of texts, with its path in the tree and the probability at every level.

    Example: `arbormax predict reviews-model new.csv --text body --keep --top-k 3 --out predicted.csv`

    With Ray: `arbormax predict reviews-model corpus/ --engine ray --workers 8 --out predicted.parquet`
    """
    decoding = decoding_of(decoder, tau, top_k)
    if engine not in ENGINES:
        raise OptionError(f"--engine is one of {', '.join(ENGINES)}; found {engine!r}{did_you_mean(engine, ENGINES)}")
    if engine == "ray":
        options = {"batch_size": batch_size, "device": device, "workers": workers}
        _with_ray(model, files or [], table, message, _parquet_out(out, format, json), decoding, keep, imports, options)
        return
    if workers is not None:
        raise OptionError("--workers belongs to --engine ray")
    file = _one(files)
    _check(file, message, out, format, json)
    chosen = resolve_format(out, "jsonl" if json and out is None else format)
    import_modules(imports)
    from arbormax.model import load_model
    from arbormax.model.predict import predict as predict_texts
    from arbormax.model.rows import predict_rows

    if message is not None:
        if not message.strip():
            raise InputError("--message is empty: give it a text")
        loaded = load_model(model, resolve_device(device))
        (found,) = predict_texts(loaded, [message], **vars(decoding))
        _tell_one(message, found.to_dict(), json)
        return
    source = _source(file)
    batches, column = batches_of(source, table)
    loaded = load_model(model, resolve_device(device))
    skipped = Skipped(source, table.skip_bad_rows)
    count = 0
    with open_writer(out, chosen) as write, output.progress_bar("predicting") as advance:
        for row in predict_rows(
            loaded, batches, column, decoding, batch_size=batch_size, keep=keep, on_bad_rows=skipped
        ):
            write(row)
            count += 1
            if not count % 256:
                advance(256)
        if not count:
            raise InputError(f"{skipped.name}: there are no texts in it")
    skipped.tell()
    if out is not None:
        output.print_status(f"written: {out}, {count:,} rows")


def _with_ray(
    model: Path,
    files: list[str],
    table: InputOptions,
    message: str | None,
    out: Path,
    decoding: Decoding,
    keep: bool,
    imports: list[str] | None,
    options: dict[str, Any],
) -> None:
    if message is not None or not files or "-" in files:
        raise OptionError("--engine ray reads Parquet: give files, folders or patterns such as 'corpus/*.parquet'")
    plain = InputOptions(text=table.text, input_format=table.input_format, skip_bad_rows=table.skip_bad_rows)
    if table != plain:
        raise OptionError("--delimiter, --no-header, --quoting and --encoding belong to CSV and TSV; Ray reads Parquet")
    import_modules(imports)
    from arbormax.integrations.ray import predict_parquet

    skipped = Skipped(files[0] if len(files) == 1 else f"{len(files)} inputs", table.skip_bad_rows)
    with output.stage_progress("predicting") as progress:
        count = predict_parquet(
            model,
            files,
            out,
            decoding,
            text=table.text,
            keep=keep,
            modules=imports or (),
            format=table.input_format,
            on_problems=skipped,
            progress=progress,
            **options,
        )
    skipped.tell()
    output.print_status(f"written: {out}, {count:,} rows")


def _parquet_out(out: Path | None, format: str | None, json: bool) -> Path:
    if json:
        raise OptionError("--engine ray writes Parquet: leave --json away")
    if out is None or resolve_format(out, format) != "parquet":
        raise OptionError("--engine ray writes Parquet: give --out FILE.parquet")
    return out


class Skipped:
    """Rows that cannot be read: an error, or left out and told at the end."""

    def __init__(self, source: str, allowed: bool) -> None:
        self.name = "<stdin>" if source == "-" else Path(source).name
        self.allowed, self.count = allowed, 0
        self.first: list[str] = []

    def __call__(self, problems: list[str]) -> None:
        if not self.allowed:
            raise bad_rows_error(self.name, problems)
        self.count += len(problems)
        self.first += problems[: 3 - len(self.first)]

    def tell(self) -> None:
        if self.count:
            warn_skipped(self.name, self.first, self.count)


def _check(file: str | None, message: str | None, out: Path | None, format: str | None, json: bool) -> None:
    if message is not None and (file is not None or out is not None or format is not None):
        raise OptionError("--message is one text, printed here: it goes without FILE, --out and --format")
    if message is None and json and (out is not None or format not in (None, "jsonl")):
        raise OptionError("--json prints JSON lines on stdout: it goes without --out and --format")
    if file is not None and out is not None and file != "-" and out.exists() and out.samefile(file):
        raise OptionError(f"--out {out} is the input itself: choose another name")


def _one(files: list[str] | None) -> str | None:
    if files and len(files) > 1:
        raise OptionError(f"give one FILE, found {len(files)}: {', '.join(files[:3])}; --engine ray takes several")
    return files[0] if files else None


def _source(file: str | None) -> str:
    if file is None and sys.stdin.isatty():
        raise OptionError("give a FILE, or - for lines of stdin, or --message TEXT")
    return file or "-"


def _tell_one(text: str, row: dict[str, Any], json: bool) -> None:
    if json:
        print(json_format.dumps({"text": text, **row}, ensure_ascii=False, indent=2))
        return
    output.print_result(output.path_tree(output.printable(text), row["path"], row["probabilities"]))
    if not row["path"]:
        output.print_result("not sure enough of any class: the answer is the root of the tree")
    if "top" in row:
        best = [(output.printable(best["label"]), f"{best['probability']:.3f}") for best in row["top"]]
        output.print_result(output.table(("most probable classes", "probability"), best))
