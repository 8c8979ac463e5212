"""What `arbormax taxonomy edit` does: edits from the command line, and where the result is written."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arbormax.cli import output
from arbormax.cli.groups import OptionGroup
from arbormax.errors import OptionError, TaxonomyError

if TYPE_CHECKING:
    from arbormax.taxonomy import Taxonomy
    from arbormax.taxonomy.edits import Edited, TaxonomyEdits

EDITS = "Edits, made in this order"


@dataclass(frozen=True)
class EditOptions(OptionGroup):
    """The edits; those of one kind are made in the order given."""

    add: Annotated[
        list[str] | None,
        typer.Option(metavar="PARENT/NAME", help="Add a class; NAME alone below the root.", rich_help_panel=EDITS),
    ] = None
    split: Annotated[
        list[str] | None,
        typer.Option(metavar="CLASS=A,B", help="Split a class into children.", rich_help_panel=EDITS),
    ] = None
    move: Annotated[
        list[str] | None,
        typer.Option(metavar="NODE=PARENT", help="Move a node and all below it.", rich_help_panel=EDITS),
    ] = None
    remove: Annotated[
        list[str] | None, typer.Option(metavar="NODE", help="Remove a node and all below it.", rich_help_panel=EDITS)
    ] = None
    rename: Annotated[
        list[str] | None, typer.Option(metavar="NODE=NAME", help="Give a node another name.", rich_help_panel=EDITS)
    ] = None
    emptied: Annotated[
        str,
        typer.Option(help="A parent that loses its last child: error, class or remove.", rich_help_panel=EDITS),
    ] = "error"
    keep_rows: Annotated[
        bool, typer.Option("--keep-rows", help="What is moved keeps its own row.", rich_help_panel=EDITS)
    ] = False

    def ask(self, edits: TaxonomyEdits) -> None:
        """Put the edits into the list; one error tells all that cannot be read."""
        from arbormax.taxonomy.labels import join_path, split_path

        problems: list[str] = []
        emptied: Any = self.emptied

        def pair(option: str, text: str, wanted: str) -> tuple[str, str]:
            parts = split_path(text, "=")
            if len(parts) != 2:
                problems.append(rf"--{option} {text}: expected {wanted}, with '\=' for a '=' inside a name")
                return "", ""
            return parts[0], parts[1]

        asked = 0
        for text in self.add or ():
            *above, name = split_path(text)
            edits.add(name, under=join_path(above) if above and any(above) else ())
            asked += 1
        for text in self.split or ():
            node, names = pair("split", text, "CLASS=A,B")
            edits.split(node, split_path(names, ","))
            asked += 1
        for text in self.move or ():
            node, home = pair("move", text, "NODE=PARENT")
            edits.move(node, under=home or (), keep_row=self.keep_rows, emptied=emptied)
            asked += 1
        for text in self.remove or ():
            edits.remove(text, emptied=emptied)
            asked += 1
        for text in self.rename or ():
            edits.rename(*pair("rename", text, "NODE=NAME"))
            asked += 1
        if not asked:
            raise OptionError("nothing to edit: give --add, --split, --move, --remove or --rename")
        if problems:
            raise OptionError("; ".join(problems))


def edit_file(tax: Taxonomy, edits: EditOptions, out: Path, overwrite: bool, lossy: bool) -> Edited:
    """The edited taxonomy, written to a file."""
    from arbormax.taxonomy.edits import TaxonomyEdits

    if out.exists() and not overwrite:
        raise OptionError(f"{out} is there already: replace it with --overwrite, or choose another --out")
    if not out.parent.is_dir():
        raise OptionError(f"{out}: there is no folder {out.parent} to write it in")
    asked = TaxonomyEdits(tax)
    edits.ask(asked)
    edited = _made(asked.done)
    edited.taxonomy.save(out, lossy=lossy)
    return edited


def edit_model(folder: Path, edits: EditOptions, out: Path, overwrite: bool) -> Edited:
    """The edited model, written to a folder: every file aside first, then each in its place."""
    from arbormax.model.folder import read_metrics, read_record

    if out.exists() and not out.is_dir():
        raise OptionError(f"{out} is a file, and a model is a folder: choose another --out")
    if out.exists() and any(out.iterdir()):
        if not (out / "config.json").is_file():
            raise OptionError(f"{out} is not empty and holds no model: choose another --out")
        if not overwrite:
            raise OptionError(f"{out} holds a model already: replace it with --overwrite, or choose another --out")
    if read_record(folder)["config"].get("encoder") == "features":
        raise OptionError(f"{folder} is a classifier of feature matrices; edit its head in Python, with am.edit")
    from arbormax.heads.edit import edit
    from arbormax.sklearn.text import TextClassifier

    clf = TextClassifier.load(folder)
    before = clf.taxonomy_.fingerprint
    asked = edit(clf)
    edits.ask(asked)
    edited = _made(asked.done)
    metrics = {name: value for name, value in read_metrics(folder).items() if name == "training"}
    metrics["edited"] = {"from": str(folder), "taxonomy": before, "changed": edited.changed.splitlines()}
    clf.save(out, metrics)
    return edited


def _made(done: Callable[[], Edited]) -> Edited:
    """The edits, with their defects in the words of the command line."""
    try:
        return done()
    except TaxonomyError as error:
        problems = [re.sub(r"\bemptied='(\w+)'", r"--emptied \1", problem) for problem in error.problems]
        told = str(error).splitlines()[0] if len(problems) > 1 else problems[0]
        raise TaxonomyError(told, problems) from None


def tell(edited: Edited, old: Taxonomy, out: Path, json: bool) -> None:
    """What was done, for people or for scripts."""
    tax = edited.taxonomy
    if json:
        kept = set(edited.class_map.tolist())
        gone = [label for label, new in zip(old.classes, edited.class_map.tolist(), strict=True) if new < 0]
        new = [label for number, label in enumerate(tax.classes) if number not in kept]
        told = {"classes_gone": gone, "classes_new": new, "changed": edited.changed.splitlines()}
        output.print_json({"out": str(out), **output.taxonomy_size(tax), **told})
        return
    output.print_result(edited.changed)
    output.print_status(f"written: {out}")
