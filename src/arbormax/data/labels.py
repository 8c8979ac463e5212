"""From labels as a file writes them to nodes of a taxonomy, or to the taxonomy itself."""

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
_HINTED = LabelError.shown  # a hint compares with the whole vocabulary, so only the labels that are shown get one


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
    """(len(labels),) the node of each label, a class or any other node but the root.

    A label is a tuple or list of names from the root down, or a string: what `Taxonomy.find` takes, or a path with
    " > ". With `separator=` a string is a path split there, and only then what `find` takes. The path of a class that
    has a stop leaf means that leaf. Labels that cannot be found are told in one error, each once, with the lines; given
    `missing`, such as -1, they get that in place of a node.

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
            wrong[code] = f"{label!r} is the root, which says nothing about an item"
        elif missing is not None or len(wrong) >= _HINTED:
            wrong[code] = f"{label!r} names no single node of the taxonomy"
        else:
            try:  # where a path leaves the tree says more than that its text is no name
                tax.find(readings[0 if separator and len(readings[0]) > 1 else -1])
            except LabelError as error:
                wrong[code] = str(error)
    nodes = _stop_of(tax)[nodes]
    if missing is None:
        _fail_on(wrong, codes, lines, source, unit)
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
    """The taxonomy that path labels spell out, its classes in the order in which they first appear.

    A string is split at `separator`, by default the one that `guess_separator` finds; a tuple or list is a path as it
    is. A label that other labels go on from is an inner node, not a class.

    >>> infer_taxonomy(["news > sport", "shop", "news", "news > weather"]).classes
    ('sport', 'shop', 'weather')
    """
    distinct, codes = _distinct(labels, lines)
    return _inferred(_paths(distinct, codes, separator, lines, source, unit))


def guess_separator(labels: Iterable[Any]) -> str | None:
    """The first of " > ", "/", ";" and "|" that stands in any label, or None.

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

    `taxonomy` is one, or the path of its file; without it the tree is inferred from the labels. The options are those
    of `iter_rows`. Rows that `on_bad_rows="skip"` leaves out are told in a warning; to handle them yourself, give a
    `Table` from `read_table` in place of the path.
    """
    tax = taxonomy if taxonomy is None or isinstance(taxonomy, Taxonomy) else Taxonomy.load(taxonomy)
    if isinstance(path, Table):
        if options or on_bad_rows != "error" or (text, label) != ("text", "label"):
            raise OptionError("a Table has been read already: give its options to read_table")
        table = path
    else:
        table = read_table(path, text, label, on_bad_rows=on_bad_rows, **options)
        if table.skipped:
            more = f", … and {len(table.skipped) - 3} more" if len(table.skipped) > 3 else ""
            rows = f"{len(table.skipped)} row{' is' if len(table.skipped) == 1 else 's are'} left out"
            told = f"{table.path}: {rows}: {', '.join(table.skipped[:3])}{more}"
            warnings.warn(told, stacklevel=2)
    if table.labels is None:
        raise InputError(f"{table.path}: examples need labels, and the table was read without them")
    if tax is not None:
        return Examples(table.texts, _nodes_of(table, table.labels, tax, separator)), tax
    distinct, codes = _distinct(table.labels, table.lines)
    paths = _paths(distinct, codes, separator, table.lines, table.path, table.unit)
    tax = _inferred(paths)
    return Examples(table.texts, tax.find_many(paths)[codes]), tax


def _nodes_of(table: Table, labels: Sequence[Any], tax: Taxonomy, separator: str | None) -> np.ndarray:
    """The nodes of a table's labels, where need be with the separator that would be guessed in inferring a tree."""
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
    """Every distinct label in order of appearance, and the number of each item's label among them."""
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
        odd = next(key for key in keys if not isinstance(key, (str, tuple)) or not _is_path_of_names(key))
        raise LabelError(f"a label is a string or a list of names, not {odd!r} ({type(odd).__name__})") from None
    return list(numbers), np.array(codes, np.int64)


def _check_separator(separator: str | None) -> None:
    if separator is not None and (not isinstance(separator, str) or not separator):
        raise OptionError(f"separator is a string such as ' > ', found {separator!r}")


def _is_path_of_names(label: Any) -> bool:
    return isinstance(label, str) or (isinstance(label, tuple) and all(isinstance(name, str) for name in label))


def _split(label: str, separator: str) -> tuple[str, ...]:
    return tuple(split_path(label) if separator == "/" else label.split(separator))


def _stripped(path: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.strip() for name in path)


def _readings(label: Any, separator: str | None) -> list[Any]:
    """What a label may mean, the likeliest first."""
    if not isinstance(label, str):
        return [label]
    if separator:
        path = _split(label, separator)
        return list(dict.fromkeys((path, _stripped(path), label)))
    return [label, _stripped(_split(label, " > "))] if " > " in label else [label]


def _stop_of(tax: Taxonomy) -> np.ndarray:
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
    """The path of every distinct label, or one error with all that are none."""
    _check_separator(separator)
    if not distinct:
        raise LabelError(f"{source + ': ' if source else ''}there are no labels to make a taxonomy of")
    mark = separator or guess_separator(distinct)
    paths: list[tuple[str, ...]] = []
    wrong: dict[int, str] = {}
    for code, label in enumerate(distinct):
        path = label
        if isinstance(label, str):
            path = _stripped(_split(label, mark) if mark else (label,))
        if not _is_path_of_names(path):
            wrong[code] = f"a label is a string or a list of names, not {label!r}"
        elif not path or not all(name.strip() for name in path):
            split = f" when split at {mark!r}" if isinstance(label, str) and mark else ""
            wrong[code] = f"the label {label!r} has an empty name{split}"
        paths.append(path)
    _fail_on(wrong, codes, lines, source, unit)
    return paths


def _inferred(paths: Sequence[tuple[str, ...]]) -> Taxonomy:
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


def _fail_on(wrong: dict[int, str], codes: np.ndarray, lines: Sequence[int] | None, source: str, unit: str) -> None:
    """Raise one error for all wrong labels: each with how often it stands and where first."""
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
        if len(message) > 600:  # a whole text, where the wrong column was named
            message = f"{message[:300]} … {message[-200:]}"
        problems.append(f"{message} ({often}{where})")
    prefix = f"{source}: " if source else ""
    if len(problems) == 1:
        raise LabelError(prefix + problems[0], problems)
    raise LabelError(f"{prefix}{len(problems)} different labels, of {total:,} items, cannot be used:", problems)
