"""Labels as written in a file: the nodes they name, or the taxonomy they define."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, Unpack

import numpy as np

from arbormax.data.examples import Examples
from arbormax.data.tables import Column, OnBadRows, Source, Table, TableOptions, read_table
from arbormax.errors import InputError, LabelError, OptionError
from arbormax.taxonomy import Taxonomy
from arbormax.taxonomy.labels import split_path

__all__ = ["guess_separator", "infer_taxonomy", "label_nodes", "read_examples"]

_SEPARATORS = (" > ", "/", ";", "|")
_HINTED = LabelError.shown  # a suggestion compares with all names, so only labels that are shown get one


def label_nodes(
    labels: Iterable[Any],
    tax: Taxonomy,
    lines: Sequence[int] | None = None,
    source: str = "",
    *,
    separator: str | None = None,
    unit: str = "line",
    missing: int | None = None,
) -> np.ndarray:
    """(len(labels),) the node of each label, which may be any node except the root.

    A label is a tuple or list of names from the root down, or a string that `Taxonomy.find` accepts, or a path with
    " > ". With `separator`, a string is first split there, and is then tried as it is. The path of a class that has a
    stop leaf means that leaf. Unknown labels are reported in one error, each once, with line numbers; with `missing`,
    for example -1, they get that value instead of a node.

    >>> tax = Taxonomy.from_nested({"news": ["sport", "weather"], "shop": ["shoes"]})
    >>> label_nodes(["sport", "news > weather", ["shop"], "shop/shoes"], tax).tolist()
    [3, 4, 2, 5]
    >>> label_nodes(["sport", "politics"], tax, missing=-1).tolist()
    [3, -1]
    """
    _check_separator(separator)
    distinct, codes = _distinct(labels, lines)
    nodes = np.zeros(len(distinct), np.int64)
    wrong: dict[int, str] = {}
    for code, label in enumerate(distinct):
        readings = _readings(label, separator)
        found_here = (tax.find(reading, missing=-1) for reading in readings)
        node = next((node for node in found_here if node >= 0), -1)
        if node > 0:
            nodes[code] = node
        elif node == 0:
            wrong[code] = f"{label!r} is the root, which is not a label"
        elif missing is not None or len(wrong) >= _HINTED:
            wrong[code] = f"{label!r} names no single node of the taxonomy"
        else:
            try:  # the error for the path names the first unknown part
                tax.find(readings[0 if separator and len(readings[0]) > 1 else -1])
            except LabelError as error:
                wrong[code] = str(error)
    nodes = _stop_leaves(tax)[nodes]
    if missing is None:
        _raise_problems(wrong, codes, lines, source, unit)
    else:
        nodes[list(wrong)] = missing
    found: np.ndarray = nodes[codes]
    return found


def infer_taxonomy(
    labels: Iterable[Any],
    separator: str | None = None,
    *,
    lines: Sequence[int] | None = None,
    source: str = "",
    unit: str = "line",
) -> Taxonomy:
    """The taxonomy of labels that are paths, with classes in order of first appearance.

    A string is split at `separator`, by default the result of `guess_separator`; a tuple or list is a path. A label
    that is the start of other labels is an inner node, not a class.

    >>> infer_taxonomy(["news > sport", "shop", "news", "news > weather"]).classes
    ('sport', 'shop', 'weather')
    """
    distinct, codes = _distinct(labels, lines)
    return _build_tree(_paths(distinct, codes, separator, lines, source, unit))


def guess_separator(labels: Iterable[Any]) -> str | None:
    """The first of " > ", "/", ";" and "|" that occurs in any label, or None.

    >>> guess_separator(["a/b > c", "d"])
    ' > '
    """
    texts = {label for label in labels if isinstance(label, str)}
    return next((mark for mark in _SEPARATORS if any(mark in text for text in texts)), None)


def read_examples(
    path: Source | Table,
    taxonomy: Taxonomy | str | os.PathLike[str] | None = None,
    text: Column = "text",
    label: Column = "label",
    *,
    separator: str | None = None,
    on_bad_rows: OnBadRows = "error",
    **options: Unpack[TableOptions],
) -> tuple[Examples, Taxonomy]:
    """The labelled texts of a file and the taxonomy of their labels.

    `taxonomy` is a `Taxonomy` or the path of its file; if None, it is inferred from the labels. The options are those
    of `iter_rows`. Rows that `on_bad_rows="skip"` leaves out are reported in a warning; to handle them yourself, pass a
    `Table` from `read_table` instead of a path.
    """
    tax = taxonomy if taxonomy is None or isinstance(taxonomy, Taxonomy) else Taxonomy.load(taxonomy)
    if isinstance(path, Table):
        if options or on_bad_rows != "error" or (text, label) != ("text", "label"):
            raise OptionError("the options of a Table belong to read_table, which has already read it")
        table = path
    else:
        table = read_table(path, text, label, on_bad_rows=on_bad_rows, **options)
        if table.skipped:
            more = f", … and {len(table.skipped) - 3} more" if len(table.skipped) > 3 else ""
            rows = f"{len(table.skipped)} row{'' if len(table.skipped) == 1 else 's'} skipped"
            warnings.warn(f"{table.path}: {rows}: {', '.join(table.skipped[:3])}{more}", stacklevel=2)
    if table.labels is None:
        raise InputError(f"{table.path}: the table was read without labels")
    if tax is not None:
        return Examples(table.texts, _find_nodes(table, table.labels, tax, separator)), tax
    distinct, codes = _distinct(table.labels, table.lines)
    paths = _paths(distinct, codes, separator, table.lines, table.path, table.unit)
    tax = _build_tree(paths)
    return Examples(table.texts, tax.find_many(paths)[codes]), tax


def _find_nodes(table: Table, labels: Sequence[Any], tax: Taxonomy, separator: str | None) -> np.ndarray:
    """The nodes of the labels of a table; if some are unknown, also with the separator that `guess_separator` finds."""
    try:
        return label_nodes(labels, tax, table.lines, table.path, separator=separator, unit=table.unit)
    except LabelError:
        if separator is None:
            mark = guess_separator(labels)
            names = labels if mark else [label.strip() if isinstance(label, str) else label for label in labels]
            found = label_nodes(names, tax, separator=mark, missing=-1)
            if (found >= 0).all():
                return found
        raise


def _distinct(labels: Iterable[Any], lines: Sequence[int] | None) -> tuple[list[Any], np.ndarray]:
    """The distinct labels in order of appearance, and the index of each item's label among them."""
    if isinstance(labels, str):
        raise LabelError(f"expected a list of labels, found the string {labels!r}")
    if isinstance(labels, np.ndarray):
        labels = labels.tolist()
    keys = [tuple(label) if type(label) is list else label for label in labels]
    if lines is not None and len(lines) != len(keys):
        raise InputError(f"expected one line number per label, found {len(lines)} and {len(keys)}")
    numbers: dict[Any, int] = {}
    try:
        codes = [numbers.setdefault(key, len(numbers)) for key in keys]
    except TypeError:
        odd = next(key for key in keys if not isinstance(key, (str, tuple)) or not _is_path(key))
        raise LabelError(f"expected a string or a list of names, found {odd!r} ({type(odd).__name__})") from None
    return list(numbers), np.array(codes, np.int64)


def _check_separator(separator: str | None) -> None:
    if separator is not None and (not isinstance(separator, str) or not separator):
        raise OptionError(f"expected a string such as ' > ', found {separator!r}", argument="separator")


def _is_path(label: Any) -> bool:
    return isinstance(label, str) or (isinstance(label, tuple) and all(isinstance(name, str) for name in label))


def _split(label: str, separator: str) -> tuple[str, ...]:
    return tuple(split_path(label) if separator == "/" else label.split(separator))


def _strip(path: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.strip() for name in path)


def _readings(label: Any, separator: str | None) -> list[Any]:
    """The ways to read a label, the most likely first."""
    if not isinstance(label, str):
        return [label]
    if separator:
        path = _split(label, separator)
        return list(dict.fromkeys((path, _strip(path), label)))
    return [label, _strip(_split(label, " > "))] if " > " in label else [label]


def _stop_leaves(tax: Taxonomy) -> np.ndarray:
    """(N,) the stop leaf of each node that has one, else the node itself."""
    stops = np.arange(tax.num_nodes)
    stops[tax.parent[tax.stops]] = tax.stops
    return stops


def _paths(
    distinct: Sequence[Any],
    codes: np.ndarray,
    separator: str | None,
    lines: Sequence[int] | None,
    source: str,
    unit: str,
) -> list[tuple[str, ...]]:
    """The path of every distinct label; one error lists all labels that are not paths."""
    _check_separator(separator)
    if not distinct:
        raise LabelError(f"{source + ': ' if source else ''}cannot infer a taxonomy without labels")
    mark = separator or guess_separator(distinct)
    paths: list[tuple[str, ...]] = []
    wrong: dict[int, str] = {}
    for code, label in enumerate(distinct):
        path = label
        if isinstance(label, str):
            path = _strip(_split(label, mark) if mark else (label,))
        if not _is_path(path):
            wrong[code] = f"expected a string or a list of names, found {label!r}"
        elif not path or not all(name.strip() for name in path):
            split = f" when split at {mark!r}" if isinstance(label, str) and mark else ""
            wrong[code] = f"the label {label!r} has an empty name{split}"
        paths.append(path)
    _raise_problems(wrong, codes, lines, source, unit)
    return paths


def _build_tree(paths: Sequence[tuple[str, ...]]) -> Taxonomy:
    nodes: dict[tuple[int, str], int] = {}
    inner: set[int] = set()
    ends: dict[tuple[str, ...], int] = {}
    for path in paths:
        node = -1
        for name in path:
            inner.add(node)
            node = nodes.setdefault((node, name), len(nodes))
        ends[path] = node
    return Taxonomy.from_paths(path for path, end in ends.items() if end not in inner)


def _raise_problems(
    wrong: dict[int, str], codes: np.ndarray, lines: Sequence[int] | None, source: str, unit: str
) -> None:
    """Raise one error for all wrong labels, each with its number of items and the first of them."""
    if not wrong:
        return
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(codes.max() + 2))
    problems = []
    total = 0
    for code, message in wrong.items():
        at = order[bounds[code] : bounds[code + 1]]
        total += len(at)
        first = [str(lines[i] if lines is not None else i) for i in at[:3].tolist()]
        name = unit if lines is not None else "item"
        where = f"{name}{'s' if len(at) > 1 else ''} {', '.join(first)}{', …' if len(at) > 3 else ''}"
        often = f"{len(at):,} times, " if len(at) > 3 else ""
        if len(message) > 600:  # a whole text, if the wrong column was selected
            message = f"{message[:300]} … {message[-200:]}"
        problems.append(f"{message} ({often}{where})")
    prefix = f"{source}: " if source else ""
    if len(problems) == 1:
        raise LabelError(prefix + problems[0], problems)
    raise LabelError(f"{prefix}{len(problems)} different labels, of {total:,} items, are not valid:", problems)
