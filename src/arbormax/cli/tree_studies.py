"""`arbormax taxonomy compare` and `refine`: which tree is better, and what would improve one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arbormax.cli import errors, output
from arbormax.cli.groups import expand_options
from arbormax.cli.inputs import check_new_file, check_no_table_options, is_dataset, read_file
from arbormax.cli.options import Json, LabelOptions, MachineOptions, ModelOptions, Overwrite
from arbormax.cli.taxonomy import TreeOptions
from arbormax.errors import LabelError, OptionError

if TYPE_CHECKING:
    from arbormax.data import Examples
    from arbormax.studies.refine import Refinement
    from arbormax.studies.trees import TreeComparison
    from arbormax.taxonomy import Taxonomy

Data = Annotated[
    str | None,
    typer.Option(metavar="DATA", help="A dataset, of which the training texts are used, or a file of labelled texts."),
]
Level = Annotated[float, typer.Option(help="Confidence level of the intervals.")]
Resamples = Annotated[int, typer.Option(min=1, help="Number of bootstrap resamples.")]


@expand_options
def compare(
    ctx: typer.Context,
    trees: Annotated[
        list[str],
        typer.Argument(
            metavar="TREE...", help="Files, datasets or models with the same classes; the first is the reference."
        ),
    ],
    model: ModelOptions,
    table: LabelOptions,
    machine: MachineOptions,
    data: Data = None,
    flat: Annotated[bool, typer.Option("--flat", help="Also without a tree.")] = False,
    shuffled: Annotated[
        bool, typer.Option("--shuffled", help="Also the first tree with its classes at random leaves.")
    ] = False,
    folds: Annotated[int, typer.Option(min=2, help="Number of folds.")] = 5,
    resamples: Resamples = 2000,
    level: Level = 0.95,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw where the second tree differs from the first.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of finished folds; the same command resumes from it.")
    ] = None,
    json: Json = False,
) -> None:
    """Compare trees over the same classes: their distance and, with `--data`, the same model trained on each of them.

    Example: `arbormax taxonomy compare human.json induced.json --data notes.csv --flat --shuffled`
    """
    named = _read_trees(trees)
    reference = next(iter(named.values()))
    from arbormax.induce import flatten, shuffle_classes

    config = model.config()
    named |= {"flat": flatten(reference)} if flat else {}
    named |= {"shuffled": shuffle_classes(reference, config.seed)} if shuffled else {}
    if len(named) < 2:
        raise OptionError("expected at least two trees, or --flat or --shuffled", argument="trees")
    distances = _distances(named)
    if svg is not None:
        from arbormax.cli.trees import write_drawing
        from arbormax.report import tree_difference_svg

        first, second = [*named][:2]
        write_drawing(svg, tree_difference_svg(named[second], reference, f"{second}, compared with {first}"))
    if data is None:
        _print_distances(named, distances, json)
        return
    examples = _read_examples(data, table, reference)
    from arbormax.studies.trees import compare_trees

    with output.stage_progress("comparison") as progress, errors.resume_hint(out, errors.command_line(ctx)):
        result = compare_trees(
            config,
            named,
            examples,
            folds,
            hardware=machine.hardware(),
            folder=out,
            progress=progress,
            resamples=resamples,
            level=level,
        )
    if json:
        output.print_json(result.to_dict())
        return
    _print_comparison(result, f"{data}, {config.encoder}, {config.head}, {folds} folds")


@expand_options
def refine(
    source: Annotated[str, typer.Argument(metavar="TREE", help="A file, a dataset or the folder of a model.")],
    model: ModelOptions,
    table: LabelOptions,
    machine: MachineOptions,
    data: Annotated[str, typer.Option(metavar="DATA", help="A dataset or a file of labelled texts.")],
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the edits that help as a patch.")] = None,
    proposals: Annotated[int, typer.Option(min=1, help="Maximum number of proposals to test.")] = 10,
    folds: Annotated[int, typer.Option(min=2, help="Folds that give the confusions.")] = 3,
    measure: Annotated[str, typer.Option(help="The measure to improve: macro_f1, accuracy, ….")] = "macro_f1",
    resamples: Resamples = 2000,
    level: Level = 0.95,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Propose edits of a tree from the confusions of one half of the texts, and test each on the other half.

    Example: `arbormax taxonomy refine tree.json --data notes.csv --out patch.json`, then
    `arbormax taxonomy edit tree.json --patch patch.json --out better.json`
    """
    if out is not None:
        check_new_file(out, overwrite)
    tax = TreeOptions().read(source)
    config = model.config()
    examples = _read_examples(data, table, tax)
    from arbormax.studies.refine import refine as run
    from arbormax.taxonomy.edits.patch import write_patch

    with output.stage_progress("refinement") as progress:
        result = run(
            config,
            tax,
            examples,
            proposals=proposals,
            folds=folds,
            measure=measure,
            resamples=resamples,
            level=level,
            hardware=machine.hardware(),
            progress=progress,
        )
    if out is not None:
        write_patch(out, result.patch)
    if json:
        output.print_json(result.to_dict())
    else:
        _print_refinement(result)
    if out is not None:
        output.print_status(f"written: {out}")


def _read_trees(sources: list[str]) -> dict[str, Taxonomy]:
    """The trees by the names of their files, which are made unique."""
    found: dict[str, Taxonomy] = {}
    for source in sources:
        name = Path(source).stem
        found[name if name not in found else source] = TreeOptions().read(source)
    if len({*sources}) < len(sources):
        raise OptionError("expected each tree once", argument="trees")
    return found


def _distances(trees: dict[str, Taxonomy]) -> dict[str, float]:
    """The distance of each tree from the first."""
    from arbormax.taxonomy.distance import triplet_distance

    reference, first = next(iter(trees.items()))
    found = {}
    for name, tree in trees.items():
        try:
            found[name] = triplet_distance(first, tree)
        except LabelError as error:
            message = f"{name} has other classes than the first tree, {reference}:"
            raise LabelError(message, error.problems, argument="trees") from None
    return found


def _read_examples(data: str, table: LabelOptions, tax: Taxonomy) -> Examples:
    """The labelled texts with nodes of this taxonomy."""
    with output.progress_bar(f"reading {data}"):
        if not is_dataset(data):
            return read_file(Path(data), table, tax)[0]
        check_no_table_options(data, table)
        import numpy as np

        from arbormax.data import Examples, load
        from arbormax.taxonomy.distance import match_classes

        dataset = load(data)
        own, train = dataset.taxonomy, dataset.train
        at = np.flatnonzero(own.class_of[train.nodes] >= 0)
        examples = train.take(at)
        return Examples(examples.inputs, tax.leaves[match_classes(own, tax)][own.class_of[examples.nodes]])


def _print_distances(trees: dict[str, Taxonomy], distances: dict[str, float], json: bool) -> None:
    if json:
        rows = {name: {**output.taxonomy_size(tree), "distance": distances[name]} for name, tree in trees.items()}
        output.print_json(rows)
        return
    body = [(name, f"{tree.num_nodes:,}", str(tree.depth), f"{distances[name]:.4f}") for name, tree in trees.items()]
    columns = ("tree", "nodes", "depth", "triplet distance")
    output.print_result(output.table(columns, body, f"{next(iter(trees.values())).num_leaves:,} classes"))


def _print_comparison(result: TreeComparison, title: str) -> None:
    from arbormax.studies.trees import SHOWN

    body = [("triplet distance", *(f"{distance:.4f}" for distance in result.distance.values()))]
    for name in SHOWN:
        cells = []
        for tree, values in result.pooled.items():
            deviation = result.std[tree].get(name)
            is_measure = name not in ("seconds", "parameters")
            more = f" ± {deviation:.4f}" if is_measure and deviation is not None else ""
            cells.append(f"{values[name]:.4f}{more}" if is_measure else f"{values[name]:,.{int(name == 'seconds')}f}")
        body.append((name, *cells))
    output.print_result(output.table(("measure", *result.pooled), body, title))
    output.print_result(f"All measures are those of classes on the tree {result.reference}; ± is over the folds.")
    for difference in result.differences:
        output.print_result(difference.sentence)


def _print_refinement(result: Refinement) -> None:
    from arbormax.metrics import MEASURES

    measure = MEASURES[result.measure]
    for proposal in result.tested:
        gain = measure.format_difference(proposal.gain, proposal.low, proposal.high)
        verdict = "helps" if proposal.helps else "no clear gain"
        output.print_result(f"{proposal.title}: {verdict}\n  {proposal.evidence}\n  {measure.title} {gain}")
    if result.together is not None:
        joint = result.together
        gain = measure.format_difference(joint.gain, joint.low, joint.high)
        output.print_result(f"{joint.title}: {measure.title} {gain}")
    tested, helpful = len(result.tested), len(result.helpful)
    verdict = f"{helpful} of {tested} tested proposals help" if helpful else f"none of {tested} tested proposals helps"
    output.print_result(
        f"{verdict} ({100 * result.level:g} % intervals; found on {result.found_on:,} texts, tested on "
        f"{result.tested_on:,} others)"
    )
