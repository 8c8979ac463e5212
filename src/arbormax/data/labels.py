"""Labels as written in a file: the nodes they name, or the taxonomy they define."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Unpack

import numpy as np

from arbormax.data.columns import InputColumns
from arbormax.data.examples import Examples, Unseen
from arbormax.data.tables import Column, OnBadRows, Source, Table, TableOptions, read_table
from arbormax.errors import InputError, LabelError, OptionError, check_choice
from arbormax.taxonomy import InnerClasses, Taxonomy, load_taxonomy
from arbormax.taxonomy.labels import DistinctLabels, split_path

__all__ = ["find_nodes", "guess_separator", "infer_taxonomy", "label_nodes", "read_examples", "unknown_classes"]

_SEPARATORS = (" > ", "/", ";", "|")
_SEVERAL = (
    "{} are several labels, and a text has one; a list is the path of one label: its names from the top down. Choose "
    "one label for each text, or repeat the text"
)
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

    A label is a tuple or list of names from the root down, or a string that `Taxonomy.find` accepts. With
    `separator`, a string is first split there, and is then tried as it is. The path of a class that has a stop leaf
    means that leaf. Unknown labels are reported in one error, each once, with line numbers; with `missing`, for example
    -1, they get that value instead of a node.

    >>> tax = Taxonomy.from_nested({"news": ["sport", "weather"], "shop": ["shoes"]})
    >>> label_nodes(["sport", "news > weather", ["shop"], "shop/shoes"], tax).tolist()
    [3, 4, 2, 5]
    >>> label_nodes(["sport", "politics"], tax, missing=-1).tolist()
    [3, -1]
    """
    _check_separator(separator)
    distinct = DistinctLabels(labels, lines, source, unit)
    stop_leaf = dict(zip(tax.first_parent[tax.stops].tolist(), tax.stops.tolist(), strict=True))
    nodes: list[int] = []
    wrong: dict[Any, str] = {}
    for label in distinct.items:
        readings = _readings(label, separator)
        found = (tax.find(reading, missing=-1) for reading in readings)
        node = next((node for node in found if node >= 0), -1)
        if node == 0:
            wrong[label] = f"{label!r} is the root, which is not a label"
        elif node < 0 and (missing is not None or len(wrong) >= _HINTED):
            wrong[label] = f"{label!r} names no single node of the taxonomy"
        elif node < 0:
            try:  # the error for the path names the first unknown part
                tax.find(readings[0 if separator and len(readings[0]) > 1 else -1])
            except LabelError as error:
                wrong[label] = _SEVERAL.format(list(label)) if _is_several(label, tax) else str(error)
        nodes.append(stop_leaf.get(node, node) if missing is None or label not in wrong else missing)
    if missing is None:
        distinct.raise_problems(wrong)
    return distinct.spread(nodes)


def _is_several(label: Any, tax: Taxonomy) -> bool:
    """Whether a list has several labels of the taxonomy, and is not a path with a wrong name."""
    if not isinstance(label, tuple) or len(label) < 2:
        return False
    nodes = [tax.find(name, missing=0) for name in label if isinstance(name, str)]
    return len(nodes) == len(label) and bool(tax.is_leaf[nodes].all())


def infer_taxonomy(
    labels: Iterable[Any],
    separator: str | None = None,
    *,
    sort: bool = False,
    inner_classes: InnerClasses = "error",
) -> Taxonomy:
    """The taxonomy of labels that are paths, with classes in order of first appearance or, with `sort`, of their paths.

    A string is split at `separator`, by default the result of `guess_separator`; a tuple or list is a path. A label
    that is the start of other labels is an inner node, not a class; with `inner_classes="stop"` it is a class, too.

    >>> infer_taxonomy(["news > sport", "shop", "news", "news > weather"]).classes
    ('sport', 'shop', 'weather')
    """
    paths = _paths(DistinctLabels(labels), separator)
    return _build_tree(sorted(paths) if sort else paths, inner_classes)


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
    text: Column | InputColumns = "text",
    label: Column = "label",
    *,
    separator: str | None = None,
    on_bad_rows: OnBadRows = "error",
    inner_classes: InnerClasses = "error",
    **options: Unpack[TableOptions],
) -> tuple[Examples, Taxonomy]:
    """The labelled texts of a file and the taxonomy of their labels.

    `taxonomy` is a `Taxonomy` or the path of its file; if None, it is inferred from the labels, with its classes sorted
    by their paths. With `inner_classes="stop"`, inner nodes that are labels of rows become classes. The options are
    those of `iter_rows`. Rows that `on_bad_rows="skip"` leaves out are reported in a warning; to handle them yourself,
    pass a `Table` from `read_table` instead of a path.
    """
    tax = taxonomy if taxonomy is None or isinstance(taxonomy, Taxonomy) else load_taxonomy(taxonomy)
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
    check_choice("inner_classes", inner_classes, ("error", "stop"))
    if tax is not None:
        nodes = find_nodes(table, tax, separator)
        if inner_classes == "stop" and (grown := tax.with_classes(nodes)) is not tax:
            tax, nodes = grown, find_nodes(table, grown, separator)
        return Examples(table.texts, nodes), tax
    distinct = DistinctLabels(table.labels, table.lines, table.path, table.unit)
    paths = _paths(distinct, separator)
    tax = _build_tree(sorted(paths), inner_classes)
    return Examples(table.texts, distinct.spread(label_nodes(paths, tax).tolist())), tax


def find_test_nodes(
    labels: Sequence[Any], tax: Taxonomy, separator: str | None = None, table: Table | None = None
) -> tuple[np.ndarray, tuple[Unseen, ...]]:
    """The nodes of test labels; a label that the taxonomy does not have is a class that the model cannot predict.

    Such a class is below the deepest inner node on its path that the taxonomy has. A label that several nodes have is
    an error.
    """
    marks = [separator] if separator is not None else [None, guess_separator(labels)]
    found = [label_nodes(labels, tax, separator=mark, missing=-1) for mark in dict.fromkeys(marks)]
    best = min(range(len(found)), key=lambda place: int((found[place] < 0).sum()))
    nodes, mark = found[best], list(dict.fromkeys(marks))[best]
    return number_unseen(nodes, labels, tax, mark or guess_separator(labels), table)


def number_unseen(
    nodes: np.ndarray, labels: Sequence[Any], tax: Taxonomy, separator: str | None, table: Table | None = None
) -> tuple[np.ndarray, tuple[Unseen, ...]]:
    """The nodes with a number for each label that the taxonomy does not have, whose node is -1, and these labels.

    The numbers are those of `Examples`. A label that several nodes have is an error.
    """
    missing = np.flatnonzero(nodes < 0).tolist()
    if not missing:
        return nodes, ()
    repeated = {name for name, count in Counter(tax.names).items() if count > 1}
    wrong = [place for place in missing if labels[place] in repeated]
    if wrong:  # raises the error that lists the nodes
        lines = None if table is None else [table.lines[place] for place in wrong]
        source, unit = ("", "line") if table is None else (table.path, table.unit)
        label_nodes([labels[place] for place in wrong], tax, lines, source, unit=unit)
    numbers: dict[tuple[str, ...], int] = {}
    unseen: list[Unseen] = []
    for place in missing:
        label = labels[place]
        path = (label,) if isinstance(label, str) else tuple(label)
        if isinstance(label, str) and separator:
            path = _strip(_split(label, separator))
        if path not in numbers:
            numbers[path] = tax.num_nodes + len(unseen)
            unseen.append(Unseen(" > ".join(path), _deepest_inner(path, tax)))
        nodes[place] = numbers[path]
    return nodes, tuple(unseen)


def _deepest_inner(path: tuple[str, ...], tax: Taxonomy) -> int:
    """The deepest inner node of the taxonomy on a path, at least the root."""
    node = 0
    for end in range(1, len(path)):
        below = tax.find(path[:end], missing=-1)
        if below < 0 or tax.is_leaf[below]:
            break
        node = below
    return node


def find_nodes(table: Table, tax: Taxonomy, separator: str | None = None) -> np.ndarray:
    """The nodes of the labels of a table; if some are unknown, also with the separator that `guess_separator` finds."""
    labels = table.labels or ()
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


def unknown_classes(error: LabelError, argument: str | None = None) -> LabelError:
    """The error for labels that a trained model does not have, with the way to add them."""
    problems = error.problems if len(error.problems) > 1 else ()
    first = error.message.partition("\n")[0].rstrip(":")
    advice = "remove these items, or add their classes to the model: am.edit(model).add(name, under=parent).done()"
    return LabelError(f"{first}; {advice}", problems, argument=argument)


def _check_separator(separator: str | None) -> None:
    if separator is not None and (not isinstance(separator, str) or not separator):
        raise OptionError(f"expected a string such as ' > ', found {separator!r}", argument="separator")


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
    return [label]


def _paths(distinct: DistinctLabels, separator: str | None) -> list[tuple[str, ...]]:
    """The path of every distinct label; one error lists all labels that are not paths."""
    _check_separator(separator)
    if not distinct.items:
        raise LabelError(f"{distinct.prefix}cannot infer a taxonomy without labels")
    mark = separator or guess_separator(distinct.items)
    _refuse_several_labels(distinct)
    paths: list[tuple[str, ...]] = []
    wrong: dict[Any, str] = {}
    for label in distinct.items:
        path = label
        if isinstance(label, str):
            path = _strip(_split(label, mark) if mark else (label,))
        if not isinstance(path, tuple) or not all(isinstance(name, str) for name in path):
            wrong[label] = f"expected a string or a list of names, found {label!r}"
        elif not path or not all(name.strip() for name in path):
            split = f" when split at {mark!r}" if isinstance(label, str) and mark else ""
            wrong[label] = f"the label {label!r} has an empty name{split}"
        paths.append(path)
    distinct.raise_problems(wrong)
    return paths


def _refuse_several_labels(distinct: DistinctLabels) -> None:
    """Raise for lists of paths, which begin alike or are labels of other texts: several labels of one text."""
    wrong: dict[Any, str] = {}
    single = [label for label in distinct.items if isinstance(label, tuple) and len(label) == 1]
    whole = {label for label in distinct.items if isinstance(label, str)} | {label[0] for label in single}
    for label in distinct.items:
        if not isinstance(label, tuple) or len(label) < 2 or not all(isinstance(name, str) for name in label):
            continue
        for mark in (" > ", "/"):
            paths = [_strip(_split(name, mark)) for name in label]
            are_paths = all(len(path) > 1 and all(path) for path in paths)
            if are_paths and (len({path[0] for path in paths}) == 1 or not whole.isdisjoint(label)):
                wrong[label] = _SEVERAL.format(list(label))
    distinct.raise_problems(wrong)


def _is_one(label: Any) -> bool:
    return isinstance(label, str) or (isinstance(label, tuple) and len(label) == 1)


def _build_tree(paths: Sequence[tuple[str, ...]], inner_classes: InnerClasses) -> Taxonomy:
    """The taxonomy of these paths, of which those that begin others are inner nodes, and with "stop" also classes."""
    if inner_classes == "stop":
        return Taxonomy.from_paths(list(dict.fromkeys(paths)), inner_classes="stop")
    inner = {path for path, following in pairwise(sorted(set(paths))) if following[: len(path)] == path}
    return Taxonomy.from_paths(path for path in dict.fromkeys(paths) if path not in inner)
