"""Slow and plain answers for graphs: enumeration of all paths, and sets of ancestors."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor

from arbormax import Graph


def paths_to(graph: Graph, node: int) -> list[list[int]]:
    """All paths from the root to a node, as lists of node ids with both ends."""
    if node == 0:
        return [[0]]
    return [[*path, node] for parent in graph.parents(node).tolist() for path in paths_to(graph, parent)]


def above(graph: Graph, node: int) -> set[int]:
    """A(n): the node and all nodes above it, without the root."""
    return {step for path in paths_to(graph, node) for step in path} - {0}


def node_probabilities(graph: Graph, logits_BE: Tensor) -> Tensor:
    """(B, N) the sum over all paths of the products of the softmaxes on the path."""
    edge = {tuple(pair): place for place, pair in enumerate(graph.edges.tolist())}
    p_BE = torch.empty_like(logits_BE)
    for parent in range(graph.num_nodes):
        own = [place for (start, _), place in edge.items() if start == parent]
        p_BE[:, own] = logits_BE[:, own].softmax(-1)
    columns = []
    for node in range(graph.num_nodes):
        each = [
            math.prod((p_BE[:, edge[pair]] for pair in pairwise(path)), start=torch.ones(len(p_BE)))
            for path in paths_to(graph, node)
        ]
        columns.append(sum(each))
    return torch.stack(columns, dim=1).to(logits_BE)


def class_sums(graph: Graph, p_BC: Tensor) -> Tensor:
    """(B, N) the sum of the probabilities of the different classes at or below each node."""
    sets = [above(graph, leaf) | {0} for leaf in graph.leaves.tolist()]
    columns = [[c for c, nodes in enumerate(sets) if node in nodes] for node in range(graph.num_nodes)]
    return torch.stack([p_BC[:, own].sum(1) for own in columns], dim=1)


def distance(graph: Graph, a: int, b: int) -> int:
    """The shortest way up from one node and down to the other."""

    def steps(node: int) -> dict[int, int]:
        found: dict[int, int] = {}
        for path in paths_to(graph, node):
            for place, step in enumerate(reversed(path)):
                found[step] = min(place, found.get(step, place))
        return found

    one, other = steps(a), steps(b)
    return min(one[node] + other[node] for node in one.keys() & other.keys())
