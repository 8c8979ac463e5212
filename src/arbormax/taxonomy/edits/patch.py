"""Edits in a JSON file, which was made for one taxonomy."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arbormax._files import read_json, write_file
from arbormax.errors import TaxonomyError, did_you_mean

if TYPE_CHECKING:
    from arbormax.taxonomy.tree import Taxonomy

FORMAT = "arbormax taxonomy patch 1"
_NEEDED = {
    "add": ("name", "under"),
    "remove": ("node",),
    "move": ("node", "under"),
    "merge": ("node", "into"),
    "split": ("leaf", "names"),
    "rename": ("node", "name"),
}
_FURTHER = {
    "add": ("share", "text"),
    "remove": ("emptied",),
    "move": ("keep_row", "share", "emptied"),
    "merge": ("emptied",),
    "split": ("shares",),
    "rename": (),
}


def make_patch(taxonomy: Taxonomy, edits: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The content of a patch: `edits` have a `kind` and the arguments of the method of `TaxonomyEdits` of that name."""
    return {"format": FORMAT, "taxonomy": taxonomy.fingerprint, "edits": [dict(edit) for edit in edits]}


def write_patch(path: str | os.PathLike[str], patch: Mapping[str, Any]) -> None:
    """Write a patch to a JSON file."""
    write_file(path, json.dumps(patch, ensure_ascii=False, indent=2) + "\n")


def read_patch(patch: Mapping[str, Any] | str | os.PathLike[str], taxonomy: Taxonomy) -> list[dict[str, Any]]:
    """The edits of a patch for this taxonomy, checked: a file or its content."""
    source = "the patch"
    if not isinstance(patch, Mapping):
        source = os.fspath(patch)
        patch = read_json(Path(patch), TaxonomyError)
    if patch.get("format") != FORMAT or not isinstance(patch.get("edits"), list):
        raise TaxonomyError(f"{source} is not a patch: expected an object with format {FORMAT!r} and a list of edits")
    if patch.get("taxonomy", taxonomy.fingerprint) != taxonomy.fingerprint:
        raise TaxonomyError(
            f"{source} was made for another taxonomy than this one, of {taxonomy.num_leaves:,} classes; "
            "remove its field 'taxonomy' to apply it anyway"
        )
    problems = [problem for at, edit in enumerate(patch["edits"]) for problem in _problems(edit, at)]
    if problems:
        raise TaxonomyError(f"{source}: {problems[0]}" if len(problems) == 1 else f"{source} has defects:", problems)
    return [dict(edit) for edit in patch["edits"]]


def _problems(edit: Any, at: int) -> list[str]:
    """What is wrong with the form of an edit; whether it is possible is found when it is applied."""
    kind = edit.get("kind") if isinstance(edit, Mapping) else None
    if kind not in _NEEDED:
        return [f"edit {at}: expected an object with a kind ({', '.join(_NEEDED)}), found {edit!r}"]
    known = (*_NEEDED[kind], *_FURTHER[kind], "kind")
    problems = [f"edit {at}: {kind} needs {name!r}" for name in _NEEDED[kind] if name not in edit]
    return problems + [
        f"edit {at}: {kind} has no {name!r}{did_you_mean(name, known)}" for name in edit if name not in known
    ]
