"""The softmaxes of a head and the training items of each: what Laplace's method is fitted on.

n items, L levels, G softmaxes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from arbormax.heads import TreeHead


class Group(NamedTuple):
    """One softmax over several rows, and the items that take part in it."""

    rows: np.ndarray  # (m,)
    items: np.ndarray  # (k,)
    targets: np.ndarray  # (k,) the position of the right row of each item


def find_groups(head: TreeHead, nodes: np.ndarray) -> list[Group]:
    """The softmaxes of several rows. An item takes part if its label is at or below one of the nodes that compete."""
    tax = head.taxonomy
    found = [group for group in head.softmax_groups(tax) if len(group.rows) > 1]
    group_of = np.full(tax.num_nodes, -1)
    place_of = np.zeros(tax.num_nodes, np.int64)
    for place, group in enumerate(found):
        group_of[group.nodes] = place
        place_of[group.nodes] = np.arange(len(group.nodes))
    path_nL = tax.ancestor_at(nodes[:, None], np.arange(1, tax.depth + 1))  # -1 past the end
    number_nL = np.where(path_nL >= 0, group_of[path_nL], -1)
    item, level = np.nonzero(number_nL >= 0)
    number = number_nL[item, level]
    order = np.argsort(number, kind="stable")
    parts = np.split(order, np.searchsorted(number[order], np.arange(1, len(found))))
    return [
        Group(group.rows, item[part], place_of[path_nL[item[part], level[part]]])
        for group, part in zip(found, parts, strict=True)
    ]
