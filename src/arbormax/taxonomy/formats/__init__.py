"""Taxonomy files: which format a file is in, its options, and reading and writing it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from arbormax._files import write_file
from arbormax.errors import OptionError, TaxonomyError, did_you_mean
from arbormax.taxonomy._draft import Draft, assemble
from arbormax.taxonomy.formats import _json, _lines, _newick, _own, _table, _yaml
from arbormax.taxonomy.formats._check import choose_text
from arbormax.taxonomy.formats._text import decode
from arbormax.taxonomy.tree import InnerClasses, Label, Taxonomy

__all__ = ["load", "save"]


class Format(NamedTuple):
    name: str
    title: str  # as errors call it
    suffixes: tuple[str, ...]
    read: Callable[..., None]  # (text, draft, **options)
    write: Callable[[Taxonomy], Iterator[str]]  # texts to try, the best first
    options: tuple[str, ...] = ()
    keeps_all: bool = False
    names_repeat: bool = True


_TABLE = ("layout", "header", "delimiter", "root")
_FORMATS = (
    Format("json", "JSON", (".json",), _json.read, _own.write, keeps_all=True),
    Format("yaml", "YAML", (".yaml", ".yml"), _yaml.read, _yaml.write),
    Format("csv", "CSV", (".csv",), _table.read_csv, _table.write_csv, _TABLE),
    Format("tsv", "TSV", (".tsv",), _table.read_tsv, _table.write_tsv, _TABLE),
    Format("txt", "TXT", (".txt",), _lines.read_txt, _lines.write_txt, ("sep", "layout", "root")),
    Format(
        "children",
        "a file of children",
        (".taxonomy",),
        _lines.read_children,
        _lines.write_children,
        ("root",),
        names_repeat=False,
    ),
    Format("darknet", "a darknet tree", (), _lines.read_darknet, _lines.write_darknet),
    Format("newick", "Newick", (".nwk", ".newick", ".tre"), _newick.read, _newick.write),
)
_BY_NAME = {known.name: known for known in _FORMATS}
_BY_SUFFIX = {suffix: known for known in _FORMATS for suffix in known.suffixes}
# two communities write this suffix, so the file is looked into; format= says outright which one it is
_BY_SUFFIX[".tree"] = _BY_NAME["darknet"]._replace(read=_lines.read_tree)


def load(
    path: str | os.PathLike[str],
    format: str | None,
    classes: Iterable[Label] | None,
    inner_classes: InnerClasses,
    options: Mapping[str, Any],
) -> Taxonomy:
    file = Path(path)
    if format is None and not file.is_dir():
        file.stat()  # a file that is not there is told as such, whatever its suffix
    chosen = _choose(file, format)
    settings = dict(options)
    unknown = [option for option in settings if option not in ("encoding", *chosen.options)]
    if unknown:
        takes = ", ".join(f"{option}=" for option in ("encoding", *chosen.options))
        raise OptionError(
            f"{chosen.title} has no option {unknown[0]!r}{did_you_mean(unknown[0], ('encoding', *chosen.options))} "
            f"(it takes {takes})"
        )
    for option in ("encoding", "root"):
        if not isinstance(settings.get(option, ""), str):
            raise OptionError(f"{option} is a string, found {settings[option]!r}")
    encoding = settings.pop("encoding", "utf-8-sig")
    draft = Draft(source=file.name)
    chosen.read(decode(file.read_bytes(), encoding, draft), draft, **settings)
    return assemble(draft, classes, inner_classes)


def save(tax: Taxonomy, path: str | os.PathLike[str], format: str | None, lossy: bool) -> None:
    chosen = _choose(Path(path), format)
    if not Path(path).absolute().parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "the folder does not exist", str(Path(path).parent))
    if chosen.keeps_all:
        text = next(chosen.write(tax))
    else:
        text = choose_text(
            tax, chosen.title, chosen.write(tax), chosen.read, names_repeat=chosen.names_repeat, lossy=lossy
        )
    write_file(path, text.encode())


def _choose(file: Path, name: str | None) -> Format:
    if file.is_dir():
        raise IsADirectoryError(errno.EISDIR, "a taxonomy is one file, and this is a folder", str(file))
    if name is not None:
        if name not in _BY_NAME:
            known = ", ".join(_BY_NAME)
            raise OptionError(f"there is no format {name!r}{did_you_mean(str(name), _BY_NAME)} (formats: {known})")
        return _BY_NAME[name]
    chosen = _BY_SUFFIX.get(file.suffix.lower())
    if chosen is None:
        found = f"unknown suffix {file.suffix!r}" if file.suffix else "the name has no suffix"
        raise TaxonomyError(
            f"{file.name}: {found}{did_you_mean(file.suffix, _BY_SUFFIX)} (known are {', '.join(_BY_SUFFIX)}); rename "
            f"the file or give its format, one of {', '.join(_BY_NAME)}, with format="
        )
    return chosen
