"""Whether a text holds a taxonomy: it is read back before it is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np

from arbormax.errors import TaxonomyError
from arbormax.taxonomy._draft import Draft, assemble, listing
from arbormax.taxonomy.tree import Taxonomy

Reader = Callable[..., None]


def choose_text(
    tax: Taxonomy, name: str, texts: Iterable[str], read: Reader, *, names_repeat: bool, lossy: bool
) -> str:
    """The first text that keeps everything, or with `lossy` the one that loses least."""
    best: tuple[list[str], str] | None = None
    for text in texts:
        back = _read_back(text, read)
        nodes = None if back is None else match_nodes(tax, back)
        if back is None or nodes is None:
            continue
        lost = _losses(tax, back, nodes)
        if best is None or len(lost) < len(best[0]):
            best = lost, text
        if not lost:
            break
    if best is None:
        raise TaxonomyError(f"{name} cannot hold this taxonomy: {_obstacle(tax, names_repeat)}; save it as .json")
    if best[0] and not lossy:
        raise TaxonomyError(
            f"{name} cannot keep {' and '.join(best[0])} of this taxonomy; save it as .json, or pass lossy=True to "
            f"lose {'it' if len(best[0]) == 1 else 'them'}"
        )
    return best[1]


def _read_back(text: str, read: Reader) -> Taxonomy | None:
    draft = Draft()
    try:
        # through bytes, as the file will be: a first name may begin with what looks like a byte order mark
        read(text.encode().decode("utf-8-sig"), draft)
        return assemble(draft, None, "error")
    except (TaxonomyError, UnicodeEncodeError):
        return None


def match_nodes(tax: Taxonomy, other: Taxonomy) -> np.ndarray | None:
    """(N,) the node of `tax` that each node of the other is, or None when they are not the same up to their order."""
    if tax.num_nodes != other.num_nodes:
        return None
    known = {edge: node for node, edge in enumerate(zip(tax.parent.tolist(), tax.names, strict=True))}
    nodes = [0]
    for parent, name in zip(other.parent[1:].tolist(), other.names[1:], strict=True):
        node = known.get((nodes[parent], name))
        if node is None:
            return None
        nodes.append(node)
    return np.array(nodes)


def _losses(tax: Taxonomy, back: Taxonomy, nodes: np.ndarray) -> list[str]:
    lost = []
    if not np.array_equal(nodes[back.leaves], tax.leaves):
        lost.append("the class order")
    if not np.array_equal(nodes, np.arange(tax.num_nodes)):
        lost.append("the order of siblings")
    if len(tax.stops):
        lost.append("which leaves stand for an inner class")
    return lost


def _obstacle(tax: Taxonomy, names_repeat: bool) -> str:
    repeated = [name for name, count in Counter(tax.names).items() if count > 1]
    if repeated and not names_repeat:
        return f"a name is one node there, and more than one node is called {listing(repeated, 3)}"
    odd = [name for name in tax.names if not name.replace(" ", "a").isalnum() or name != name.strip()]
    return f"it cannot write names such as {listing(odd or tax.names[1:], 3)}"


def preorder(tax: Taxonomy) -> list[int]:
    """The nodes with every node before what is below it, siblings in order."""
    order, stack = [], [0]
    starts = tax.child_start.tolist()
    while stack:
        node = stack.pop()
        order.append(node)
        stack.extend(range(starts[node + 1] - 1, starts[node] - 1, -1))
    return order
