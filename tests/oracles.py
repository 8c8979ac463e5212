"""Slow and plain answers to check the fast ones against."""

from __future__ import annotations

from arbormax import Taxonomy

# Trees: everything by recursion over the parents alone.


def children_of(tax: Taxonomy, node: int) -> list[int]:
    return [child for child, parent in enumerate(tax.parent.tolist()) if parent == node]


def ancestors_of(tax: Taxonomy, node: int) -> list[int]:
    parent = int(tax.parent[node])
    return [] if parent < 0 else [*ancestors_of(tax, parent), parent]


def leaves_below(tax: Taxonomy, node: int) -> list[int]:
    below = children_of(tax, node)
    return [leaf for child in below for leaf in leaves_below(tax, child)] if below else [node]


def height_of(tax: Taxonomy, node: int) -> int:
    return max((1 + height_of(tax, child) for child in children_of(tax, node)), default=0)


def lca_of(tax: Taxonomy, a: int, b: int) -> int:
    shared = [x for x, y in zip([*ancestors_of(tax, a), a], [*ancestors_of(tax, b), b], strict=False) if x == y]
    return shared[-1]


def path_of(tax: Taxonomy, node: int) -> tuple[str, ...]:
    return tuple(tax.names[step] for step in [*ancestors_of(tax, node), node] if step)
