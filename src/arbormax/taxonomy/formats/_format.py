"""What all formats share: their description, the decoding of files, and the check of a text before it is written."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from arbormax._dialect import detect_encoding
from arbormax.errors import OptionError, TaxonomyError
from arbormax.taxonomy._draft import Draft
from arbormax.taxonomy.labels import listing

if TYPE_CHECKING:
    from arbormax.taxonomy.tree import Taxonomy


@dataclass(frozen=True)
class Format:
    """How files of one format are read and written.

    `read(text, draft, **options)` fills a draft. `write(taxonomy)` yields texts; the first one that reads back as the
    same taxonomy is written. `write_graph` does the same for graphs; without it, the format cannot store several
    parents. `matches(text)` distinguishes the format from others with the same suffix; the format without it is the
    default of that suffix. `to_text(path, **options)` reads a file that is not text.
    """

    title: str  # its name in messages
    suffixes: tuple[str, ...]
    read: Callable[..., None]
    write: Callable[[Taxonomy], Iterator[str]]
    options: tuple[str, ...] = ()
    keeps_all: bool = False  # whether it stores every taxonomy completely
    names_repeat: bool = True  # whether several nodes may have the same name
    matches: Callable[[str], bool] | None = None
    write_graph: Callable[[Taxonomy], Iterator[str]] | None = None
    to_text: Callable[..., str] | None = None


def choose_text(tax: Taxonomy, format: Format, lossy: bool) -> str:
    """Return the first text that stores everything, or with `lossy` the one that loses least."""
    best: tuple[list[str], str] | None = None
    for text in texts_of(tax, format):
        lost = _losses(tax, text, format)
        if lost is not None and (best is None or len(lost) < len(best[0])):
            best = lost, text
        if lost == []:
            break
    if best is None:
        raise TaxonomyError(
            f"{format.title} cannot store this taxonomy: {_obstacle(tax, format.names_repeat)}; save it as .json"
        )
    if best[0] and not lossy:
        missing = " and ".join(best[0])
        raise TaxonomyError(
            f"{format.title} cannot store {missing} of this taxonomy; save it as .json",
            fix={"lossy": True},
        )
    return best[1]


def texts_of(tax: Taxonomy, format: Format) -> Iterator[str]:
    """The texts that a format offers for a taxonomy or a graph."""
    if not tax.is_graph:
        return format.write(tax)
    if format.write_graph is None:
        raise TaxonomyError(f"{format.title} cannot store nodes with several parents; save the graph as .json or .csv")
    return format.write_graph(tax)


def _losses(tax: Taxonomy, text: str, format: Format) -> list[str] | None:
    """Return what a text does not store of a taxonomy, or None if it does not read back as the same tree."""
    draft = Draft()
    try:
        # through bytes, as in a file: a first name may begin with a byte order mark, and NULs look like UTF-16
        format.read(decode(text.encode(), None, draft), draft)
        back = tax.from_draft(draft)
    except (TaxonomyError, UnicodeEncodeError):
        return None
    nodes = _match_nodes(tax, back)
    if nodes is None:
        return None
    lost = []
    if not np.array_equal(nodes[back.leaves], tax.leaves):
        lost.append("the class order")
    if not np.array_equal(nodes, np.arange(tax.num_nodes)):
        lost.append("the order of siblings")
    if len(tax.stops):
        lost.append("the leaves of inner classes")
    found = back.given_texts or (None,) * back.num_nodes
    if tax.given_texts and any(tax.given_texts[old] != found[new] for new, old in enumerate(nodes.tolist())):
        lost.append("the texts of nodes")
    return lost


def _match_nodes(tax: Taxonomy, other: Taxonomy) -> np.ndarray | None:
    """Return (N,) the node of `tax` for each node of `other`, or None if the trees differ by more than their order."""
    if tax.num_nodes != other.num_nodes:
        return None
    if tax.is_graph:
        return _match_names(tax, other)
    known = {edge: node for node, edge in enumerate(zip(tax.parent.tolist(), tax.names, strict=True))}
    nodes = [0]
    for parent, name in zip(other.parent[1:].tolist(), other.names[1:], strict=True):
        node = known.get((nodes[parent], name))
        if node is None:
            return None
        nodes.append(node)
    return np.array(nodes)


def _match_names(graph: Taxonomy, other: Taxonomy) -> np.ndarray | None:
    """Return (N,) the node of `graph` for each node of `other`, or None if their edges differ."""
    known = {name: node for node, name in enumerate(graph.names) if node}
    nodes = np.array([0, *(known.get(name, -1) for name in other.names[1:])])
    if len(known) < graph.num_nodes - 1 or (nodes < 0).any():
        return None
    found = nodes[other.edges]
    return nodes if np.array_equal(found[np.lexsort(found.T[::-1])], graph.edges) else None


def _obstacle(tax: Taxonomy, names_repeat: bool) -> str:
    repeated = [name for name, count in Counter(tax.names).items() if count > 1]
    if repeated and not names_repeat:
        return f"its names must be unique, and several nodes have the name {listing(repeated, 3)}"
    odd = [name for name in tax.names if not name.replace(" ", "a").isalnum() or name != name.strip()]
    return f"it cannot represent names such as {listing(odd or tax.names[1:], 3)}"


def preorder(tax: Taxonomy) -> list[int]:
    """Return the nodes so that every node precedes its descendants, siblings in order."""
    order, stack = [], [0]
    starts = tax.child_start.tolist()
    while stack:
        node = stack.pop()
        order.append(node)
        stack.extend(range(starts[node + 1] - 1, starts[node] - 1, -1))
    return order


def decode(data: bytes, encoding: str | None, draft: Draft) -> str:
    """Return the text of a file, or raise one error with every line that cannot be decoded; None detects."""
    if encoding is None:
        encoding = detect_encoding(io.BytesIO(data))
    try:
        return data.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        is_wide = encoding.lower().startswith(("utf-16", "utf-32", "utf_16", "utf_32"))
        # a newline has several bytes in a wide encoding, so that lines cannot be decoded one by one
        bad = [] if is_wide else _bad_lines(data, encoding)
        bad = bad or [(data.count(b"\n", 0, error.start) + 1, data[min(error.start, len(data) - 1)])]
        name = "UTF-8" if encoding.lower().replace("_", "-").startswith("utf-8") else encoding
        draft.problems += [
            f"line {line} contains the byte 0x{byte:02x}, which is not valid {name}; save the file as UTF-8"
            for line, byte in bad
        ]
        draft.fix["encoding"] = "latin-1"
        draft.fail_on_problems()
        raise  # not reached: there is at least one problem
    except LookupError:
        raise OptionError(
            f"Python has no encoding {encoding!r}; use 'utf-8' or 'latin-1'", argument="encoding"
        ) from None
    except (TypeError, ValueError) as error:  # also of encodings that are not for files, such as idna
        raise OptionError(
            f"the file cannot be read with the encoding {encoding!r} ({error}); use 'utf-8' or 'latin-1'",
            argument="encoding",
        ) from None


def _bad_lines(data: bytes, encoding: str) -> list[tuple[int, int]]:
    """Return the number and the first bad byte of every line that cannot be decoded."""
    bad = []
    for number, line in enumerate(data.split(b"\n"), start=1):
        try:
            line.decode(encoding)
        except UnicodeError as error:
            start = getattr(error, "start", 0)
            bad.append((number, line[start] if start < len(line) else 0))
    return bad


def lines(text: str) -> list[str]:
    """Split a text at line ends as editors write them, and not at the rarer ones of `splitlines`."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
