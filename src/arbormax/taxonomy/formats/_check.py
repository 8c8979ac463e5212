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
        if back is None or not same_tree(tax, back):
            continue
        lost = _losses(tax, back)
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


def same_tree(one: Taxonomy, other: Taxonomy) -> bool:
    """Whether two taxonomies are the same up to the order of siblings and classes and the root's name."""
    if one.num_nodes != other.num_nodes:
        return False
    numbers: dict[tuple[str, tuple[int, ...]], int] = {}  # one number for all subtrees that are alike

    def number(tax: Taxonomy) -> int:
        below: list[list[int]] = [[] for _ in tax.names]
        for node in range(tax.num_nodes - 1, 0, -1):
            key = tax.names[node], tuple(sorted(below[node]))
            below[tax.parent[node]].append(numbers.setdefault(key, len(numbers)))
        return numbers.setdefault(("", tuple(sorted(below[0]))), len(numbers))

    return number(one) == number(other)


def _losses(tax: Taxonomy, back: Taxonomy) -> list[str]:
    lost = []
    if back.classes != tax.classes:
        lost.append("the class order")
    if back.names[1:] != tax.names[1:] or not np.array_equal(back.parent, tax.parent):
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
