"""`arbormax taxonomy`: show, check, convert and edit taxonomies."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arbormax.cli import output
from arbormax.cli.edit import EditOptions, edit_file, edit_model, print_edited
from arbormax.cli.errors import BAD_INPUT
from arbormax.cli.groups import NameOption, OptionGroup, expand_options
from arbormax.cli.options import FILE, Imports, Json, LabelOptions, NodeTexts, Spelling, import_modules
from arbormax.errors import InputError, OptionError, TaxonomyError, did_you_mean

if TYPE_CHECKING:
    import numpy as np

    from arbormax.taxonomy import Taxonomy

taxonomy = typer.Typer(
    help="Show, check, convert and edit taxonomies.\n\nExample: `arbormax taxonomy show trec`", no_args_is_help=True
)

FORMATS = "arbormax.taxonomy.formats:FORMATS"
Lossy = Annotated[
    bool, typer.Option("--lossy", help="Write the file even if the format cannot store the whole taxonomy.")
]


@dataclass(frozen=True)
class TreeOptions(OptionGroup):
    """The format of a taxonomy file and its options."""

    panel = FILE

    input_format: Annotated[
        str | None, NameOption(FORMATS, "Format of the file, by default that of its suffix", metavar="FORMAT")
    ] = None
    inner_classes: Annotated[
        str, typer.Option(help="For a class above other classes: error, or stop to add a leaf.")
    ] = "error"
    separator: Annotated[str | None, typer.Option(metavar="TEXT", help="Separator of the names in a path (txt).")] = (
        None
    )
    layout: Annotated[
        str | None, typer.Option(help="Content of the lines: edges or paths (csv, tsv), paths or children (txt).")
    ] = None
    delimiter: Annotated[
        str | None, typer.Option(metavar="CHAR", help="Delimiter of the cells (csv, tsv); by default detected.")
    ] = None
    header: Annotated[bool | None, typer.Option(help="Whether the first line is a header (csv, tsv).")] = None
    root: Annotated[str | None, typer.Option(metavar="NAME", help="Name of the root (csv, tsv, txt).")] = None
    encoding: Annotated[
        str | None, typer.Option(metavar="NAME", help="Encoding of the file, such as latin-1; by default detected.")
    ] = None
    sheet: Annotated[str | None, typer.Option(metavar="TITLE", help="Sheet of an Excel workbook.")] = None
    node_texts: NodeTexts = None

    def read(self, source: str) -> Taxonomy:
        """Read the taxonomy of a dataset, a model or a file."""
        from arbormax.data.datasets import DATASETS, load_taxonomy
        from arbormax.taxonomy import load_taxonomy as tax_from_file

        given = {name: getattr(self, name) for name in ("layout", "delimiter", "header", "root", "encoding", "sheet")}
        options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if options.get("delimiter") == r"\t":
            options["delimiter"] = "\t"
        if self.separator is not None:
            options["sep"] = self.separator
        path = Path(source)
        if source in DATASETS:
            self.refuse_for(source, "a dataset")
            return load_taxonomy(source)
        if path.is_dir() and (path / "taxonomy.json").is_file():
            path /= "taxonomy.json"  # the taxonomy of a model
        if not path.exists() and not path.suffix:
            hint = did_you_mean(source, DATASETS)
            raise InputError(f"{source!r} is neither a dataset ({', '.join(DATASETS)}) nor a file{hint}")
        options |= {"format": self.input_format, "inner_classes": self.inner_classes, "texts": self.node_texts}
        return tax_from_file(path, **options)

    def refuse_for(self, source: str, kind: str) -> None:
        """Raise an error if an option is given for a source that is not a file."""
        if self != TreeOptions():
            raise OptionError(f"options such as --layout are for files, and {source} is {kind}")


@taxonomy.command("show")
@expand_options
def show_tree(
    source: Annotated[str, typer.Argument(metavar="FILE|DATASET", help="A file, a dataset or the folder of a model.")],
    options: TreeOptions,
    depth: Annotated[int | None, typer.Option(min=1, help="Maximum number of levels.")] = None,
    max_children: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of children per node; in the terminal 20 by default.")
    ] = None,
    max_lines: Annotated[int, typer.Option(min=1, help="Approximate maximum number of lines.")] = 200,
    counts: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Count the examples of a dataset or a file of labelled texts at each node."),
    ] = None,
    text: Annotated[str, typer.Option(metavar="COLUMN", help="Column of the texts in the file of --counts.")] = "text",
    label: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column of the labels in the file of --counts.")
    ] = "label",
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write an SVG drawing.")] = None,
    dot: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write a Graphviz file.")] = None,
    max_leaves: Annotated[int, typer.Option(min=1, help="Maximum number of lines in --svg and --dot.")] = 200,
    json: Json = False,
) -> None:
    """Draw a taxonomy, with a bar for the classes or examples below each node; large trees are folded.

    Example: `arbormax taxonomy show icd10cm --depth 2 --max-children 5 --svg icd10.svg`
    """
    tax = options.read(source)
    examples = None if counts is None else _count_examples(tax, counts, text, label)
    from arbormax.cli.trees import tree_text, write_drawing
    from arbormax.report import tree_dot, tree_svg
    from arbormax.taxonomy.render import outline

    for file, draw in ((svg, tree_svg), (dot, tree_dot)):
        if file is not None:
            write_drawing(file, draw(tax, max_leaves=max_leaves, depth=depth, max_children=max_children))
    if json:
        rows = [] if examples is None else enumerate(examples.tolist())
        counted = [{"path": tax.path(node), "examples": count} for node, count in rows]
        extra = {} if examples is None else {"examples": counted}
        output.print_json({**output.taxonomy_size(tax), "tree": tax.to_nested(), **extra})
        return
    root = outline(
        tax, totals=examples, unit="example", depth=depth, max_lines=max_lines, max_children=max_children or 20
    )
    output.print_result(tree_text(root))


@taxonomy.command()
@expand_options
def check(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A taxonomy file.")],
    options: TreeOptions,
    json: Json = False,
) -> None:
    """Report every defect of a file, with exit code 2, or its size.

    Example: `arbormax taxonomy check classes.csv`
    """
    try:
        tax = options.read(file)
    except TaxonomyError as error:
        spelling = Spelling(ctx.command)
        fixes = " or ".join(spelling.assign(name, value) for name, value in error.fix.items())
        if json:
            output.print_json({"file": file, "ok": False, "problems": list(error.problems), "fix": error.fix})
        else:
            count = len(error.problems)
            output.print_status(f"arbormax: {file}: {count} defect{'s' * (count != 1)}", style="red")
            for problem in error.problems:
                output.print_status(f"  - {problem}")
            if fixes:
                output.print_status(f"try {fixes}")
        raise typer.Exit(BAD_INPUT) from None
    repeated = sum(count > 1 for count in Counter(tax.names[1:]).values())
    properties = {
        "file": file,
        "ok": True,
        **output.taxonomy_size(tax),
        "parents": tax.num_parents,
        "only_children": int((tax.num_children == 1).sum()),
        "repeated_names": repeated,
    }
    if json:
        output.print_json(properties)
        return
    rows = [(name.replace("_", " "), output.format_number(v)) for name, v in properties.items() if name != "ok"]
    output.print_result(output.table(("property", "value"), rows))
    output.print_result("No defects.")


@taxonomy.command()
@expand_options
def convert(
    source: Annotated[str, typer.Argument(metavar="IN", help="A file, a dataset or the folder of a model.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write.")],
    options: TreeOptions,
    output_format: Annotated[
        str | None, NameOption(FORMATS, "Format of OUT, by default that of its suffix", metavar="FORMAT")
    ] = None,
    lossy: Lossy = False,
) -> None:
    """Write a taxonomy in another format.

    Example: `arbormax taxonomy convert classes.csv classes.json`
    """
    from arbormax.taxonomy.formats import FORMATS

    if output_format is not None:
        FORMATS.check(output_format, argument="output_format")
    tax = options.read(source)
    tax.save(target, format=output_format, lossy=lossy)
    output.print_status(f"written: {target}, {tax.num_leaves:,} classes, {tax.num_nodes:,} nodes, depth {tax.depth}")


@taxonomy.command("edit")
@expand_options
def edit_tree(
    source: Annotated[str, typer.Argument(metavar="MODEL|FILE", help="The folder of a model, a file or a dataset.")],
    edits: EditOptions,
    options: TreeOptions,
    out: Annotated[Path, typer.Option(metavar="PATH", help="The folder of the new model, or the new file.")],
    unlabelled: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Texts for a model, such as those of its training; labels are not read. With them, moved and merged "
            "classes keep more of their predictions, and the share is measured.",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file or model.")] = False,
    lossy: Lossy = False,
    imports: Imports = None,
    json: Json = False,
) -> None:
    """Edit a taxonomy, or a model together with its weights.

    Example: `arbormax taxonomy edit model --add news/culture --split sport=golf,chess --remove hats --out model2`

    `arbormax taxonomy edit model --merge hats=caps --move shoes=sport --unlabelled train.csv --out model2`
    """
    is_model = (Path(source) / "config.json").is_file()
    if is_model:
        options.refuse_for(source, "a model")
    import_modules(imports)
    tax = options.read(source)
    if is_model:
        edited = edit_model(Path(source), edits, out, overwrite, unlabelled)
    else:
        if unlabelled is not None:
            raise OptionError(f"{source} is no model, and only a model classifies texts", argument="unlabelled")
        edited = edit_file(tax, edits, out, overwrite, lossy)
    print_edited(edited, tax, out, json)


def _count_examples(tax: Taxonomy, data: str, text: str, label: str) -> np.ndarray:
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
                f"the dataset {data} has another taxonomy, of {own.num_leaves:,} classes instead of {tax.num_leaves:,}"
            )
        nodes = np.concatenate([part.nodes for part in (dataset.train, dataset.test) if part is not None])
    else:
        examples, _ = read_file(Path(data), LabelOptions(text=[text], label=label), tax)
        nodes = examples.nodes
    return tax.sum_up(np.bincount(nodes, minlength=tax.num_nodes))
