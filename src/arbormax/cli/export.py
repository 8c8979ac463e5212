"""`arbormax export`: convert a model for another runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from arbormax.cli import output
from arbormax.cli.options import Imports, Json, import_modules


def export(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a trained model.")],
    format: Annotated[str, typer.Option(help="onnx or torch-export.")] = "onnx",
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder to write; by default MODEL-FORMAT next to the model.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing export.")] = False,
    no_check: Annotated[bool, typer.Option("--no-check", help="Do not compare the exported graph with torch.")] = False,
    imports: Imports = None,
    json: Json = False,
) -> None:
    """Export a model to ONNX or torch.export, with everything that is needed to use it without arbormax.

    Example: `arbormax export reviews-model --format onnx --out reviews-onnx`
    """
    import_modules(imports)
    from arbormax.integrations.onnx import TOLERANCE, export_model

    folder = out or model.resolve().parent / f"{model.resolve().name}-{format}"
    with output.stage_progress("exporting") as progress:
        exported = export_model(model, folder, format, check=not no_check, force=force, progress=progress)  # type: ignore[arg-type]
    if json:
        output.print_json({**vars(exported), "tolerance": None if no_check else TOLERANCE})
        return
    rows = [(name, f"{size:,}") for name, size in exported.files.items()]
    output.print_result(output.table(("file", "bytes"), rows, f"{model}, exported to {exported.format}"))
    for name, about in exported.inputs.items():
        output.print_result(f"input {name}: {about}")
    output.print_result("outputs leaf_log_probs (batch, classes) and node_log_probs (batch, nodes)")
    if exported.difference is None:
        output.print_result("Not checked against torch.")
    else:
        output.print_result(
            f"Agrees with torch on {exported.texts} texts of different lengths: largest difference "
            f"{exported.difference:.1e}, tolerance {TOLERANCE:.0e}."
        )
    output.print_status(f"written: {exported.folder}")
