"""Taxonomy files. A new format is one file that defines a `Format`, and one line here."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arbormax import _files
from arbormax._registry import Registry
from arbormax.errors import OptionError, TaxonomyError, did_you_mean
from arbormax.taxonomy._draft import Draft
from arbormax.taxonomy.formats._format import Format, choose_text, decode, texts_of
from arbormax.taxonomy.formats._json import read_flat, to_dict
from arbormax.taxonomy.formats._texts import join_texts, read_texts

if TYPE_CHECKING:
    from arbormax.taxonomy.tree import Taxonomy

__all__ = ["FORMATS", "Format", "check_target", "join_texts", "read_flat", "read_texts", "to_dict"]

FORMATS: Registry[Format] = Registry("format")
FORMATS.add(
    "json",
    "arbormax.taxonomy.formats._json:JSON",
    "nested mappings and lists; `save` writes a layout that stores everything",
)
FORMATS.add("yaml", "arbormax.taxonomy.formats._yaml:YAML", "nested mappings and lists")
FORMATS.add("csv", "arbormax.taxonomy.formats._table:CSV", "one edge or one path per row, separated by commas")
FORMATS.add("tsv", "arbormax.taxonomy.formats._table:TSV", "one edge or one path per row, separated by tabs")
FORMATS.add("xlsx", "arbormax.taxonomy.formats._table:XLSX", "one edge or one path per row of an Excel sheet")
FORMATS.add("txt", "arbormax.taxonomy.formats._lines:TXT", "one path per line")
FORMATS.add("children", "arbormax.taxonomy.formats._lines:CHILDREN", "a parent and its children per line")
FORMATS.add("darknet", "arbormax.taxonomy.formats._lines:DARKNET", "a name and the line of its parent per line")
FORMATS.add("obo", "arbormax.taxonomy.formats._obo:OBO", "the terms of an ontology and their is_a relations")
FORMATS.add("newick", "arbormax.taxonomy.formats._newick:NEWICK", "nested brackets, as in biology")


def read_file(path: str | os.PathLike[str], format: str | None, options: Mapping[str, Any]) -> Draft:
    """Read a file; `format=None` chooses the format by the suffix."""
    file = Path(path)
    if format is None and not file.is_dir():
        file.stat()  # raises FileNotFoundError, whatever the suffix is
    for option in ("encoding", "root"):
        if not isinstance(options.get(option, ""), str):
            raise OptionError(f"expected a string, found {options[option]!r}", argument=option)
    chosen = _choose(file, format, fix={"format": "csv"})
    own = {"sheet"} if chosen.to_text else {"encoding"}  # options of the file; the others are those of the content
    known = tuple(dict.fromkeys((*own, *chosen.options)))
    if unknown := [option for option in options if option not in known]:
        raise OptionError(
            f"unknown option of {chosen.title}{did_you_mean(unknown[0], known)} (available: {', '.join(known)})",
            argument=unknown[0],
        )
    draft = Draft(source=file.name)
    of_file = {option: options[option] for option in own if option in options}
    text = (
        chosen.to_text(file, **of_file) if chosen.to_text else decode(file.read_bytes(), options.get("encoding"), draft)
    )
    chosen.read(text, draft, **{option: value for option, value in options.items() if option not in own})
    return draft


def write_file(tax: Taxonomy, path: str | os.PathLike[str], format: str | None, lossy: bool) -> None:
    """Write a file; `format=None` chooses the format by the suffix."""
    chosen = check_target(path, format)
    text = next(texts_of(tax, chosen)) if chosen.keeps_all else choose_text(tax, chosen, lossy)
    _files.write_file(path, text)


def check_target(path: str | os.PathLike[str], format: str | None = None) -> Format:
    """Return the format of a file that is to be written; raise an error if it has none, or its folder is missing."""
    chosen = _choose(Path(path), format)
    if not Path(path).absolute().parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "the folder does not exist", str(Path(path).parent))
    return chosen


def _choose(file: Path, name: str | None, fix: dict[str, object] | None = None) -> Format:
    """Return the format with a name or, without one, of the file's suffix."""
    if file.is_dir():
        raise IsADirectoryError(errno.EISDIR, "expected a file, found a folder", str(file))
    if name is not None:
        return FORMATS[FORMATS.check(name, argument="format")]
    by_suffix: dict[str, list[Format]] = {}
    for known in map(FORMATS.__getitem__, FORMATS):
        for suffix in known.suffixes:
            by_suffix.setdefault(suffix, []).append(known)
    formats = by_suffix.get(file.suffix.lower())
    if formats is None:
        found = f"unknown suffix {file.suffix!r}" if file.suffix else "the name has no suffix"
        raise TaxonomyError(
            f"{file.name}: {found}{did_you_mean(file.suffix, by_suffix)} (available: {', '.join(by_suffix)}); rename "
            f"the file, or name its format, one of {', '.join(FORMATS)}",
            fix=fix,
        )
    return formats[0] if len(formats) == 1 else _combine(formats)


def _combine(formats: list[Format]) -> Format:
    """Return the default format of a suffix, with a reader that also recognises the others."""
    default = next(each for each in formats if each.matches is None)

    def read(text: str, draft: Draft, **options: Any) -> None:
        matching = (each for each in formats if each.matches is not None and each.matches(text))
        next(matching, default).read(text, draft, **options)

    return replace(default, read=read)
