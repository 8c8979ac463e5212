"""Edits of a tree that its confusions suggest: moves of classes, merges of siblings, and splits of groups.

C classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np

from arbormax.errors import TaxonomyError
from arbormax.taxonomy import Taxonomy
from arbormax.taxonomy.edits import Edited, TaxonomyEdits
from arbormax.taxonomy.edits.patch import make_patch
from arbormax.taxonomy.labels import join_path

Kind = Literal["move", "merge", "split"]


@dataclass(frozen=True)
class Proposal:
    """A change of the tree, why it is proposed, and what it gains on examples that did not suggest it."""

    kind: Kind
    title: str
    edits: tuple[dict[str, Any], ...]  # as in a patch
    evidence: str
    confusions: int  # on the examples that suggested it
    gain: float = float("nan")
    low: float = float("nan")
    high: float = float("nan")

    @property
    def helps(self) -> bool:
        """Whether the whole interval of the gain is above zero."""
        return self.low > 0


def apply_edits(taxonomy: Taxonomy, edits: Iterable[dict[str, Any]]) -> Edited:
    """The tree after the edits of proposals."""
    return TaxonomyEdits(taxonomy).apply(make_patch(taxonomy, edits)).done()


def propose(tax: Taxonomy, confusion_CC: np.ndarray) -> list[Proposal]:
    """All proposals, those that concern the most confusions first."""
    errors_CC = confusion_CC + confusion_CC.T
    np.fill_diagonal(errors_CC, 0)
    found = [*_moves(tax, errors_CC), *_merges(tax, errors_CC), *_splits(tax, errors_CC)]
    return sorted(found, key=lambda proposal: (-proposal.confusions, proposal.title))


def _moves(tax: Taxonomy, errors_CC: np.ndarray) -> Iterator[Proposal]:
    """Classes that are confused more often with the children of another node than with their siblings."""
    group_C = tax.parent[tax.leaves]
    groups, column = np.unique(group_C, return_inverse=True)
    with_group = np.zeros((tax.num_leaves, len(groups)), np.int64)
    np.add.at(with_group.T, column, errors_CC)
    for number, leaf in enumerate(tax.leaves.tolist()):
        best = int(with_group[number].argmax())
        most, own = int(with_group[number, best]), int(with_group[number, column[number]])
        target = tax.path(int(groups[best]))
        if groups[best] == group_C[number] or most <= max(own, 1) or leaf in tax.stops:
            continue
        if _has_child(tax, int(groups[best]), tax.names[leaf]):
            continue
        path = tax.path(leaf)
        evidence = f"confused {most:,} times with classes of {_shown(target)}, {own:,} times with its siblings"
        title = f"move {_shown(path)} to {_shown(target)}"
        yield Proposal("move", title, (_move(path, target),), evidence, most - own)


def _merges(tax: Taxonomy, errors_CC: np.ndarray) -> Iterator[Proposal]:
    """Siblings whose classes are confused with each other more often than among themselves."""
    for parent in np.flatnonzero(tax.num_children > 2).tolist():
        inner = [child for child in tax.children(parent).tolist() if not tax.is_leaf[child]]
        members = [np.flatnonzero(tax.lca(tax.leaves, child) == child) for child in inner]
        for (left, own), (right, other) in combinations(zip(inner, members, strict=True), 2):
            between = int(errors_CC[np.ix_(own, other)].sum())
            within = sum(int(errors_CC[np.ix_(side, side)].sum()) // 2 for side in (own, other))
            small, large = sorted((left, right), key=lambda node: int(tax.num_children[node]))
            children, target = tax.children(small).tolist(), tax.path(large)
            moved = [tax.path(child) for child in children]
            if between <= max(within, 1) or any(_has_child(tax, large, path[-1]) for path in moved):
                continue
            if not set(children).isdisjoint(tax.stops.tolist()):  # the node is a class itself
                continue
            edits = tuple(_move(path, target) for path in moved)
            title = f"merge {_shown(tax.path(small))} into {_shown(target)}"
            evidence = f"confused {between:,} times with each other, {within:,} times within themselves"
            yield Proposal("merge", title, edits, evidence, between - within)


def _splits(tax: Taxonomy, errors_CC: np.ndarray) -> Iterator[Proposal]:
    """Two classes of a larger group that are confused mostly with each other get a node of their own."""
    for parent in np.flatnonzero(tax.num_children > 3).tolist():
        leaves = [child for child in tax.children(parent).tolist() if tax.is_leaf[child] and child not in tax.stops]
        if len(leaves) < 2:
            continue
        classes = tax.class_of[leaves]
        table = np.triu(errors_CC[np.ix_(classes, classes)])
        first, second = (int(place) for place in np.unravel_index(table.argmax(), table.shape))
        both = int(table[first, second])
        siblings = int(errors_CC[classes[[first, second]]][:, classes].sum()) - 2 * both
        if both <= max(siblings, 1):
            continue
        names = [tax.names[leaves[place]] for place in (first, second)]
        name = ", ".join(names)
        above = tax.path(parent)
        if tax.find((*above, name), missing=-1) >= 0:
            continue
        edits: list[dict[str, Any]] = [{"kind": "add", "name": name, "under": list(above)}]
        edits += [{"kind": "move", "node": [*above, own], "under": [*above, name]} for own in names]
        evidence = f"confused {both:,} times with each other, {siblings:,} times with their other siblings"
        yield Proposal("split", f"group {name} below {_shown(above)}", tuple(edits), evidence, both - siblings)


def join(tax: Taxonomy, proposals: Sequence[Proposal]) -> Proposal:
    """All proposals in one, without those that are impossible after the others."""
    edits: tuple[dict[str, Any], ...] = ()
    kept = []
    for proposal in proposals:
        try:
            apply_edits(tax, (*edits, *proposal.edits))
        except TaxonomyError:  # such as two moves of one class
            continue
        edits += proposal.edits
        kept.append(proposal)
    title = f"{len(kept)} proposal{'s' * (len(kept) != 1)} together"
    return Proposal(kept[0].kind, title, edits, "", sum(proposal.confusions for proposal in kept))


def _has_child(tax: Taxonomy, node: int, name: str) -> bool:
    return any(tax.names[child] == name for child in tax.children(node).tolist())


def _move(path: tuple[str, ...], under: tuple[str, ...]) -> dict[str, Any]:
    return {"kind": "move", "node": list(path), "under": list(under), "emptied": "remove"}


def _shown(path: tuple[str, ...]) -> str:
    return join_path(path) if path else "the root"
