"""`arbormax taxonomy induce`: a tree from labelled texts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arbormax.cli import output
from arbormax.cli.groups import NameOption, OptionGroup, expand_options
from arbormax.cli.inputs import check_new_file, check_no_table_options, is_dataset, warn_skipped
from arbormax.cli.options import Imports, Json, LabelOptions, NodeTexts, Overwrite, import_modules, parse_options
from arbormax.errors import OptionError

if TYPE_CHECKING:
    from arbormax.taxonomy import Taxonomy


@dataclass(frozen=True)
class InduceOptions(OptionGroup):
    """How to build the tree."""

    panel = "Tree"

    method: Annotated[str, NameOption("arbormax.induce:INDUCERS", "How to group the classes")] = "centroids"
    branching: Annotated[
        int | None, typer.Option(help="Maximum number of children of a node; with --depth alone, the smallest one.")
    ] = None
    depth: Annotated[int | None, typer.Option(help="Maximum number of levels.")] = None
    together: Annotated[
        list[str] | None, typer.Option(metavar="A,B", help="Classes that get the same parent; repeatable.")
    ] = None
    top: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A tree over some of the classes, whose inner nodes are kept.")
    ] = None
    encoder: Annotated[str, NameOption("arbormax.encoders:text_encoders", "Encoder of the texts")] = "tfidf"
    option: Annotated[
        list[str] | None, typer.Option("--option", "-o", metavar="KEY=VALUE", help="An option of the encoder.")
    ] = None
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0

    def arguments(self) -> dict[str, Any]:
        """The arguments of the library."""
        from arbormax.taxonomy import Taxonomy
        from arbormax.taxonomy.labels import split_path

        branching = 8 if self.branching is None and self.depth is None else self.branching
        return {
            "method": self.method,
            "branching": branching,
            "depth": self.depth,
            "together": [split_path(names, ",") for names in self.together or ()],
            "top": None if self.top is None else Taxonomy.load(self.top),
            "encoder": self.encoder,
            "encoder_options": parse_options(self.option),
            "seed": self.seed,
        }


@expand_options
def induce(
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="A dataset, of which the training texts are used, or a file.")
    ],
    options: InduceOptions,
    table: LabelOptions,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The taxonomy file to write.")],
    node_texts: NodeTexts = None,
    overwrite: Overwrite = False,
    imports: Imports = None,
    json: Json = False,
) -> None:
    """Build a taxonomy of the labels of texts; train with it by `--taxonomy FILE`.

    Example: `arbormax taxonomy induce notes.csv --branching 4 --out tree.json`
    """
    from arbormax.taxonomy.formats import check_target

    import_modules(imports)
    check_new_file(out, overwrite)
    check_target(out)
    arguments = options.arguments()
    texts, labels, own = _read(data, table)
    if node_texts is not None:
        from arbormax.taxonomy import Taxonomy

        flat = Taxonomy.from_paths([(label,) for label in sorted(set(labels))]).with_texts(node_texts)
        own = _class_texts(flat)
    from arbormax.induce import induce as run

    with output.progress_bar(f"grouping {len(set(labels)):,} classes"):
        tax = run(texts, labels, texts=own, **arguments)
    tax.save(out)
    if json:
        output.print_json({"out": str(out), "method": options.method, **output.taxonomy_size(tax)})
        return
    output.print_result(tax.render(max_lines=40))
    output.print_status(f"written: {out}")


def _read(data: str, table: LabelOptions) -> tuple[list[str], list[str], dict[str, str]]:
    """The texts, their labels as they are written, and the texts of the classes of a dataset."""
    with output.progress_bar(f"reading {data}"):
        if is_dataset(data):
            check_no_table_options(data, table)
            from arbormax.data import load

            dataset = load(data)
            tax, train = dataset.taxonomy, dataset.train
            labels = [tax.classes[number] for number in tax.class_of[train.nodes].tolist()]
            return train.inputs, labels, _class_texts(tax)
        if table.separator is not None:
            raise OptionError("the labels of an induced tree are not paths", argument="separator")
        from arbormax.data.tables import read_table

        rows = read_table(
            Path(data),
            table.columns(),
            table.label,
            on_bad_rows="skip" if table.skip_bad_rows else "error",
            **table.reader(),
        )
        if rows.skipped:
            warn_skipped(rows.path, rows.skipped)
        return rows.texts, [label if isinstance(label, str) else " > ".join(label) for label in rows.labels or ()], {}


def _class_texts(tax: Taxonomy) -> dict[str, str]:
    """The texts of the classes that have one."""
    pairs = zip(tax.leaves.tolist(), tax.classes, strict=True)
    return {label: tax.texts[leaf] for leaf, label in pairs if tax.texts[leaf] != tax.names[leaf]}
