"""`arbormax calibrate`: calibrate the probabilities of a model on labelled texts that it was not trained on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arbormax.cli import output
from arbormax.cli.groups import NameOption, expand_options
from arbormax.cli.inputs import read_split
from arbormax.cli.options import Features, Json, LabelOptions, LoadOptions
from arbormax.errors import OptionError
from arbormax.metrics import MEASURES

if TYPE_CHECKING:
    from arbormax.model import Model
    from arbormax.uncertainty import CalibrationReport


@expand_options
def calibrate(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of the model.")],
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="A dataset, of which the test texts are used, or a file.")
    ],
    table: LabelOptions,
    loading: LoadOptions,
    method: Annotated[
        str, NameOption("arbormax.uncertainty:calibration_choices", "What is fitted; none keeps the probabilities")
    ] = "parent",
    coverage: Annotated[
        float | None,
        typer.Option(
            help="The guaranteed coverage that the service's page uses by default, such as 0.9. Half of the texts are "
            "set aside for the guarantee, also without this option if there are at least 100 texts; 0 disables it."
        ),
    ] = None,
    split: Annotated[str, typer.Option(help="Part of a dataset: test or train.")] = "test",
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the calibrated model; by default MODEL itself.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the model in --out.")] = False,
    features: Features = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the halves.")] = 0,
    json: Json = False,
) -> None:
    """Calibrate a model on labelled texts that it was not trained on, and save it.

    Do not evaluate the model on the same texts afterwards.

    Example: `arbormax calibrate reviews-model held-out.csv --text body --label category --coverage 0.9`
    """
    from arbormax.model.folder import has_model, read_metrics, save_model
    from arbormax.uncertainty.calibration import calibrate as calibrate_model

    folder = model if out is None else out
    if out is not None and has_model(out, "out") and not overwrite:
        raise OptionError(f"{out} contains a model already", argument="out", fix={"overwrite": True})
    loaded = loading.load(model)
    examples = read_split(data, split, table, features, model, loaded, needs_known_labels=True)
    with output.progress_bar("calibrating", len(examples)) as advance:
        report = calibrate_model(
            loaded,
            examples,
            method,
            coverage=False if coverage == 0 else coverage,
            seed=seed,
            progress=advance,
        )
    # the measures of a test before the calibration are not those of this model
    kept = {name: value for name, value in read_metrics(model).items() if name in ("training", "data")}
    save_model(loaded, folder, {**kept, "calibration": report.to_dict()})
    record = model / "classifier.json"
    if folder.resolve() != model.resolve() and record.exists():
        shutil.copy(record, folder / record.name)
    if json:
        output.print_json({"model": str(folder), **report.to_dict(), **_coverage(loaded)})
        return
    _print_report(report, loaded)
    output.print_result(f"The model is in {folder}")


def _coverage(model: Model) -> dict[str, Any]:
    """The threshold of the default coverage."""
    from arbormax.uncertainty.conformal import climbing_threshold

    if model.coverage is None or model.coverage.target is None:
        return {}
    target = model.coverage.target
    return {"coverage": {"target": target, "threshold": climbing_threshold(model, target)}}


def _print_report(report: CalibrationReport, model: Model) -> None:
    if report.method is not None:
        rows: list[tuple[str, ...]] = []
        for name in ("nll", "brier", "ece", "ece_debiased"):
            before, after = report.before[name], report.after[name]
            if not isinstance(before, list):
                rows.append((MEASURES[name].title, f"{before:.4f}", f"{after:.4f}"))
                continue
            for level, (old, new) in enumerate(zip(before, after, strict=True), 1):
                cells = ("–" if value is None else f"{value:.4f}" for value in (old, new))
                rows.append((f"{MEASURES[name].title} {level}".replace("per level", "of level"), *cells))
        output.print_result(output.table((f"{report.items:,} held-out items", "before", "after"), rows))
        for level, found in enumerate(report.temperatures, 1):
            spread = f"{found['lowest']:.2f} to {found['highest']:.2f}, median {found['median']:.2f}"
            output.print_result(f"Temperatures of level {level}: {spread}")
    items = report.coverage_items
    if coverage := _coverage(model).get("coverage"):
        target, threshold = coverage["target"], coverage["threshold"]
        output.print_result(
            f"Coverage {target:g}, from the scores of {items:,} items: the answer is the lowest node with a "
            f"probability above {threshold:.4f} (arbormax predict --coverage {target:g})"
        )
    elif items:
        output.print_result(
            f"The scores of {items:,} other items guarantee coverage: arbormax predict --coverage 0.9, and the slider "
            "of the service's page"
        )
    else:
        output.print_result("No coverage is guaranteed: that needs 100 items, or the option --coverage")
