"""`arbormax taxonomy`: look at, check, convert and edit trees."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arbormax.cli import output
from arbormax.cli.edit import EditOptions, edit_file, edit_model, tell
from arbormax.cli.errors import BAD_INPUT
from arbormax.cli.groups import OptionGroup, expand_options
from arbormax.cli.options import FILE, Imports, InputOptions, Json, LabelOptions, import_modules
from arbormax.errors import InputError, OptionError, TaxonomyError, did_you_mean

if TYPE_CHECKING:
    import numpy as np

    from arbormax.taxonomy import Taxonomy

taxonomy = typer.Typer(
    help="Look at, check, convert and edit trees of classes.\n\nExample: `arbormax taxonomy show trec`",
    no_args_is_help=True,
)


@dataclass(frozen=True)
class TreeOptions(OptionGroup):
    """How the file of a tree is written."""

    input_format: Annotated[
        str | None,
        typer.Option(metavar="FORMAT", help="Such as json, csv, txt, newick; else the suffix.", rich_help_panel=FILE),
    ] = None
    inner_classes: Annotated[
        str,
        typer.Option(help="A class above other classes: error, or stop for a leaf of its own.", rich_help_panel=FILE),
    ] = "error"
    separator: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Between the names of a path (txt).", rich_help_panel=FILE)
    ] = None
    layout: Annotated[
        str | None, typer.Option(help="Of csv, tsv, txt; docs/taxonomy-files.md has them.", rich_help_panel=FILE)
    ] = None
    delimiter: Annotated[
        str | None, typer.Option(metavar="CHAR", help="Between the cells (csv, tsv).", rich_help_panel=FILE)
    ] = None
    header: Annotated[
        bool | None, typer.Option(help="Whether the first line names columns (csv, tsv).", rich_help_panel=FILE)
    ] = None
    root: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of the root (csv, tsv, txt).", rich_help_panel=FILE)
    ] = None
    encoding: Annotated[str | None, typer.Option(metavar="NAME", help="Such as latin-1.", rich_help_panel=FILE)] = None

    def read(self, source: str) -> Taxonomy:
        """The tree of a dataset, a model or a file."""
        from arbormax.data.datasets import DATASETS, load_taxonomy
        from arbormax.taxonomy import Taxonomy

        given = {name: getattr(self, name) for name in ("layout", "delimiter", "header", "root", "encoding")}
        options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if options.get("delimiter") == r"\t":
            options["delimiter"] = "\t"
        if self.separator is not None:
            options["sep"] = self.separator
        path = Path(source)
        if source in DATASETS:
            if self != TreeOptions():
                raise OptionError(f"options such as --layout belong to files, and {source} is a dataset")
            return load_taxonomy(source)
        if path.is_dir() and (path / "taxonomy.json").is_file():
            path /= "taxonomy.json"  # a model's own
        if not path.exists() and not path.suffix:
            told = f"neither a dataset ({', '.join(DATASETS)}) nor a file{did_you_mean(source, DATASETS)}"
            raise InputError(f"{source!r} is {told}")
        return Taxonomy.load(path, format=self.input_format, inner_classes=self.inner_classes, **options)  # type: ignore[arg-type]


@taxonomy.command("show")
@expand_options
def show_tree(
    source: Annotated[str, typer.Argument(metavar="FILE|DATASET", help="A file, a dataset or a model's folder.")],
    options: TreeOptions,
    depth: Annotated[int | None, typer.Option(min=1, help="Levels to show.")] = None,
    max_children: Annotated[
        int | None, typer.Option(min=1, help="Children of one node to show; in the terminal by default 20.")
    ] = None,
    max_lines: Annotated[int, typer.Option(min=1, help="Lines to show, about.")] = 200,
    counts: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Count the examples of a dataset or a file of labelled texts at each node."),
    ] = None,
    text: Annotated[str, typer.Option(metavar="COLUMN", help="Of the texts in the file of --counts.")] = "text",
    label: Annotated[str, typer.Option(metavar="COLUMN", help="Of the labels in the file of --counts.")] = "label",
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a picture, too.")] = None,
    dot: Annotated[Path | None, typer.Option(metavar="FILE", help="Write Graphviz text, too.")] = None,
    max_leaves: Annotated[int, typer.Option(min=1, help="Lines of --svg and --dot, beyond which they fold.")] = 200,
    json: Json = False,
) -> None:
    """Draw a tree of classes, with bars of the classes or the examples below each node; a large one is folded.

    Example: `arbormax taxonomy show icd10cm --depth 2 --max-children 5 --svg icd10.svg`
    """
    tax = options.read(source)
    examples = None if counts is None else _counts(tax, counts, text, label)
    from arbormax.cli.drawn import taxonomy_tree, write_drawing
    from arbormax.report import tree_dot, tree_svg

    for file, draw in ((svg, tree_svg), (dot, tree_dot)):
        if file is not None:
            write_drawing(file, draw(tax, max_leaves=max_leaves, depth=depth, max_children=max_children))
    if json:
        counted = {} if examples is None else {"examples": _by_path(tax, examples)}
        output.print_json({**output.taxonomy_size(tax), "tree": tax.to_nested(), **counted})
    else:
        output.print_result(taxonomy_tree(tax, depth, max_children or 20, max_lines, examples))


@taxonomy.command()
@expand_options
def check(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file of a tree.")],
    options: TreeOptions,
    json: Json = False,
) -> None:
    """Tell every defect of a file (exit code 2), or that it has none.

    Example: `arbormax taxonomy check classes.csv`
    """
    try:
        tax = options.read(file)
    except TaxonomyError as error:
        if json:
            output.print_json({"file": file, "ok": False, "problems": list(error.problems)})
        else:
            output.print_status(
                f"arbormax: {file}: {len(error.problems)} defect{'s' * (len(error.problems) != 1)}", style="red"
            )
            for problem in error.problems:
                output.print_status(f"  - {problem}")
        raise typer.Exit(BAD_INPUT) from None
    repeated = sum(count > 1 for count in Counter(tax.names[1:]).values())
    told = {
        "file": file,
        "ok": True,
        **output.taxonomy_size(tax),
        "parents": tax.num_parents,
        "only_children": int((tax.num_children == 1).sum()),
        "repeated_names": repeated,
    }
    if json:
        output.print_json(told)
        return
    output.print_result(
        output.table(
            ("property", "value"),
            [(name.replace("_", " "), output.format_number(v)) for name, v in told.items() if name != "ok"],
        )
    )
    output.print_result("No defects.")


@taxonomy.command()
@expand_options
def convert(
    source: Annotated[str, typer.Argument(metavar="IN", help="A file, a dataset or a model's folder.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="A file: .json .yaml .csv .tsv .txt .nwk …")],
    options: TreeOptions,
    output_format: Annotated[str | None, typer.Option(metavar="FORMAT", help="Of OUT, if not its suffix.")] = None,
    lossy: Annotated[bool, typer.Option("--lossy", help="Write it even if the format cannot hold all of it.")] = False,
) -> None:
    """Write a tree in another format.

    Example: `arbormax taxonomy convert classes.csv classes.json`
    """
    tax = options.read(source)
    if target.parent != Path() and not target.parent.is_dir():
        raise OptionError(f"{target}: there is no folder {target.parent} to write it in")
    tax.save(target, format=output_format, lossy=lossy)
    output.print_status(f"written: {target}, {tax.num_leaves:,} classes, {tax.num_nodes:,} nodes, depth {tax.depth}")


@taxonomy.command("edit")
@expand_options
def edit_tree(
    source: Annotated[str, typer.Argument(metavar="MODEL|FILE", help="A model's folder, a file or a dataset.")],
    edits: EditOptions,
    options: TreeOptions,
    out: Annotated[Path, typer.Option(metavar="PATH", help="A folder for a model, else a file.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    lossy: Annotated[bool, typer.Option("--lossy", help="Write it even if the format cannot hold all of it.")] = False,
    imports: Imports = None,
    json: Json = False,
) -> None:
    """Change a tree of classes; of a model the weights go with it, and it predicts with the new tree.

    Example: `arbormax taxonomy edit model --add news/culture --split sport=golf,chess --remove hats --out model2`
    """
    is_model = (Path(source) / "config.json").is_file()
    if is_model and options != TreeOptions():
        raise OptionError(f"options such as --layout belong to files, and {source} is a model")
    import_modules(imports)
    tax = options.read(source)
    made = edit_model(Path(source), edits, out, overwrite) if is_model else edit_file(tax, edits, out, overwrite, lossy)
    tell(made, tax, out, json)


def _counts(tax: Taxonomy, data: str, text: str, label: str) -> np.ndarray:
    """(N,) the number of examples of a dataset or a file at or below each node."""
    import numpy as np

    from arbormax.cli.inputs import is_dataset, read_file

    if is_dataset(data):
        from arbormax.data import load

        with output.progress_bar(f"reading {data}"):
            dataset = load(data)
        own = dataset.taxonomy
        if own != tax:
            raise InputError(
                f"the examples of {data} belong to its own tree of {own.num_leaves:,} classes, not to this one of "
                f"{tax.num_leaves:,}"
            )
        nodes = np.concatenate([part.nodes for part in (dataset.train, dataset.test) if part is not None])
    else:
        examples, _ = read_file(Path(data), InputOptions(text=text), LabelOptions(label=label), tax)
        nodes = examples.nodes
    counts = np.bincount(nodes, minlength=tax.num_nodes)
    for level in range(tax.depth, 0, -1):
        inside = np.arange(tax.level_start[level], tax.level_start[level + 1])
        np.add.at(counts, tax.parent[inside], counts[inside])
    return counts


def _by_path(tax: Taxonomy, counts: np.ndarray) -> list[dict[str, Any]]:
    return [{"path": tax.path(node), "examples": count} for node, count in enumerate(counts.tolist())]
