"""`arbormax export`: a model for other runtimes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from arbormax.cli import output
from arbormax.cli.options import Imports, Json, import_modules

FORMATS = {"onnx": "onnxruntime", "torch-export": "torch.export"}


def export(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a model.")],
    format: Annotated[str, typer.Option(help="onnx or torch-export.")] = "onnx",
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where to; by default MODEL-FORMAT beside the model.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a former export.")] = False,
    no_check: Annotated[
        bool, typer.Option("--no-check", help="Do not run the exported graph and compare it with torch.")
    ] = False,
    imports: Imports = None,
    json: Json = False,
) -> None:
    """Write a model as a graph for onnxruntime or torch.export, with all it takes to use it without arbormax.

    Example: `arbormax export reviews-model --format onnx --out reviews-onnx`
    """
    import_modules(imports)
    from arbormax.integrations.onnx import TOLERANCE, export_model

    folder = out or model.resolve().parent / f"{model.resolve().name}-{format}"
    with output.stage_progress("exporting") as progress:
        made = export_model(model, folder, format, check=not no_check, force=force, progress=progress)  # type: ignore[arg-type]
    if json:
        output.print_json({**vars(made), "tolerance": None if no_check else TOLERANCE})
        return
    rows = [(name, f"{size:,}") for name, size in made.files.items()]
    output.print_result(output.table(("file", "bytes"), rows, f"{model} for {FORMATS[made.format]}"))
    for name, told in made.inputs.items():
        output.print_result(f"takes {name} {told}")
    output.print_result("gives leaf_log_probs (batch, classes) and node_log_probs (batch, nodes)")
    if made.difference is None:
        output.print_result("Not checked against torch.")
    else:
        output.print_result(
            f"Agrees with torch on {made.texts} texts of different lengths: the largest difference is "
            f"{made.difference:.1e} ({TOLERANCE:.0e} is allowed)."
        )
    output.print_status(f"written: {made.folder}")
