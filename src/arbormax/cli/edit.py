"""The options of `arbormax taxonomy edit`, and the editing of files and of models."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arbormax.cli import output
from arbormax.cli.groups import OptionGroup
from arbormax.errors import OptionError, check_choice

if TYPE_CHECKING:
    from arbormax.taxonomy import Taxonomy
    from arbormax.taxonomy.edits import Edited, TaxonomyEdits


@dataclass(frozen=True)
class EditOptions(OptionGroup):
    """The edits; edits of the same kind are applied in the order given."""

    panel = "Edits, applied in this order"

    add: Annotated[
        list[str] | None, typer.Option(metavar="PARENT/NAME", help="Add a class; NAME alone adds it below the root.")
    ] = None
    text: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=TEXT", help="Text of an added class; its row in a model starts from it."),
    ] = None
    split: Annotated[list[str] | None, typer.Option(metavar="CLASS=A,B", help="Split a class into children.")] = None
    move: Annotated[list[str] | None, typer.Option(metavar="NODE=PARENT", help="Move a node and its descendants.")] = (
        None
    )
    merge: Annotated[
        list[str] | None, typer.Option(metavar="CLASS=CLASS", help="Merge the first class into the second one.")
    ] = None
    remove: Annotated[list[str] | None, typer.Option(metavar="NODE", help="Remove a node and its descendants.")] = None
    rename: Annotated[list[str] | None, typer.Option(metavar="NODE=NAME", help="Rename a node.")] = None
    emptied: Annotated[str, typer.Option(help="For a parent that loses its last child: error, class or remove.")] = (
        "error"
    )
    keep_rows: Annotated[bool, typer.Option("--keep-rows", help="Keep the rows of moved nodes in the head.")] = False
    patch: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Edits that `arbormax taxonomy refine` proposed; applied first.")
    ] = None

    def append_to(self, edits: TaxonomyEdits) -> None:
        """Append the edits to a list; one error reports every option that cannot be read."""
        from arbormax.taxonomy.labels import join_path, split_path

        if not any((self.add, self.split, self.move, self.merge, self.remove, self.rename, self.patch)):
            raise OptionError("no edits: give --add, --split, --move, --merge, --remove, --rename or --patch")
        check_choice("emptied", self.emptied, ("error", "class", "remove"))
        problems: list[str] = []
        emptied: Any = self.emptied

        def pair(option: str, text: str, expected: str) -> tuple[str, str]:
            parts = split_path(text, "=")
            if len(parts) != 2:
                problems.append(rf"--{option} {text}: expected {expected}, with '\=' for a '=' inside a name")
                return "", ""
            return parts[0], parts[1]

        if self.patch is not None:
            edits.apply(self.patch)
        described: dict[str, str] = {}
        for given in self.text or ():
            name, sign, text = given.partition("=")
            if not sign or not name or not text.strip() or name in described:
                problems.append(f"--text {given}: expected NAME=TEXT, once for each added class")
            described[name] = text
        for text in self.add or ():
            *above, name = split_path(text)
            about = described.pop(name, None)
            edits.add(name, under=join_path(above) if any(above) else (), text=about).described(f"--add {text}")
        problems += [f"--text {name}=…: no class of this name is added" for name in described]
        for text in self.split or ():
            node, names = pair("split", text, "CLASS=A,B")
            edits.split(node, split_path(names, ",")).described(f"--split {text}")
        for text in self.move or ():
            node, parent = pair("move", text, "NODE=PARENT")
            edits.move(node, under=parent or (), keep_row=self.keep_rows, emptied=emptied).described(f"--move {text}")
        for text in self.merge or ():
            node, into = pair("merge", text, "CLASS=CLASS")
            edits.merge(node, into=into, emptied=emptied).described(f"--merge {text}")
        for text in self.remove or ():
            edits.remove(text, emptied=emptied).described(f"--remove {text}")
        for text in self.rename or ():
            edits.rename(*pair("rename", text, "NODE=NAME")).described(f"--rename {text}")
        if problems:
            raise OptionError("; ".join(problems))


def edit_file(tax: Taxonomy, options: EditOptions, out: Path, overwrite: bool, lossy: bool) -> Edited:
    """Edit a taxonomy and write it to a file."""
    from arbormax.taxonomy.edits import TaxonomyEdits

    if out.exists() and not overwrite:
        raise OptionError(f"{out} exists already", argument="out", fix={"overwrite": True})
    edits = TaxonomyEdits(tax)
    options.append_to(edits)
    edited = edits.done()
    edited.taxonomy.save(out, lossy=lossy)
    return edited


def edit_model(folder: Path, options: EditOptions, out: Path, overwrite: bool, unlabelled: Path | None) -> Edited:
    """Edit the head of a model and write the model to a folder; texts show what the old head predicts."""
    from arbormax.model.folder import has_model, read_metrics, read_record

    if has_model(out, "out") and not overwrite:
        raise OptionError(f"{out} contains a model already", argument="out", fix={"overwrite": True})
    if read_record(folder)["config"].get("encoder") == "features":
        raise OptionError(f"{folder} is a classifier of feature matrices; edit its head in Python with am.edit")
    from arbormax.heads.edit import edit
    from arbormax.sklearn.text import TextClassifier

    clf = TextClassifier.load(folder)
    before = clf.taxonomy_.fingerprint
    edits = edit(clf)
    options.append_to(edits)
    texts = None
    if unlabelled is not None:
        from arbormax.data.tables import read_table

        texts = read_table(unlabelled, clf.model_.config.columns, None).texts
    edited = edits.done(features=texts)
    metrics = {name: value for name, value in read_metrics(folder).items() if name == "training"}
    metrics["edited"] = {"from": str(folder), "taxonomy": before, "changed": edited.changed.splitlines()}
    clf.save(out, metrics)
    return edited


def print_edited(edited: Edited, old: Taxonomy, out: Path, json: bool) -> None:
    """Print what changed."""
    from arbormax.taxonomy.labels import join_path

    tax = edited.taxonomy
    if json:
        remaining = set(edited.class_map.tolist())
        places = zip(old.classes, old.leaves.tolist(), edited.class_map.tolist(), strict=True)
        gone = [label for label, leaf, new in places if new < 0 or leaf in edited.merged]
        new = [label for number, label in enumerate(tax.classes) if number not in remaining]
        kept = {join_path(tax.path(node)): share for node, share in edited.kept.items()}
        changes = {"classes_gone": gone, "classes_new": new, "kept": kept, "changed": edited.changed.splitlines()}
        output.print_json({"out": str(out), **output.taxonomy_size(tax), **changes})
        return
    output.print_result(edited.changed)
    if "is not known" in edited.changed:
        output.print_status(
            "To keep more of the predictions, repeat this with --unlabelled FILE, such as the training texts."
        )
    if "continue the training" in edited.changed:
        output.print_status(f"To repair moved classes: arbormax train --from {shlex.quote(str(out))} FILE --out DIR")
    output.print_status(f"written: {out}")
