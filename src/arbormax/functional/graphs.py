"""Log-probabilities on a graph, where a node may have several parents.

The logits have one column per edge, in the order of `graph.edges`. P(child | parent) is a softmax over the edges of the
parent, and P(node) is the sum over all paths of the products of these. It is computed level by level, with one
logsumexp over the edges into each node: linear in edges, however many paths there are.

B batch, N nodes, E edges, C classes, A entries of the array of all ancestors. Nodes come first and the batch last.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from arbormax.errors import OptionError, TaxonomyError
from arbormax.functional.index import (
    Buckets,
    NodeIndex,
    bucket_order,
    cached_per_device,
    mark_static,
    path_nodes,
    tree_index,
)
from arbormax.taxonomy import Graph, Taxonomy


@dataclass(frozen=True, eq=False)
class Step:
    """How one level follows from the levels above: the state is the nodes that later levels still need."""

    parents: Tensor  # (e,) the position in the state of the parent of each edge into the level
    edges: Tensor  # (e,) these edges
    nodes: Tensor  # (e,) the position in the level of the child of each edge
    size: int  # the number of nodes of the level
    has_one_parent: bool  # whether every node of the level has one
    keep: Tensor | None  # which of the state, followed by the level, is the next state; None for the level itself


@dataclass(frozen=True, eq=False)
class GraphIndex(NodeIndex):
    """The index tensors of one graph on one device."""

    graph: Graph
    steps: tuple[Step, ...]  # for level 1, 2, …
    path_length: Tensor  # (N,) edges on the path of the first parents
    longest_path: int
    edge_start: Tensor  # (N + 1,)
    edge_child: Tensor  # (E,)


def graph_leaf_means(index: GraphIndex, values_C: Tensor) -> Tensor:
    """Return the (N,) mean of the values of the classes at or below each node of a graph."""
    nodes, classes = leaf_pairs(index.graph, values_C.device)
    totals_N = values_C.new_zeros(index.num_nodes).index_add(0, nodes, values_C[classes])
    totals_N[0] = values_C.sum()
    return totals_N / torch.from_numpy(index.graph.leaf_counts.copy()).to(totals_N)


@cached_per_device
def graph_index(tax: Taxonomy, device: torch.device) -> GraphIndex:
    """Return the index of a graph on a device, which is built at the first call and stored on the graph."""
    assert isinstance(tax, Graph)

    def tensor(array: np.ndarray) -> Tensor:
        return mark_static(torch.from_numpy(np.array(array)).to(device))

    order, shapes = bucket_order(tax.num_children[np.flatnonzero(tax.num_children)])
    length = np.zeros(tax.num_nodes, np.int64)
    starts = tax.level_start.tolist()
    for first, stop in pairwise(starts[1:]):
        length[first:stop] = length[tax.first_parent[first:stop]] + 1
    return GraphIndex(
        num_nodes=tax.num_nodes,
        num_leaves=tax.num_leaves,
        depth=tax.depth,
        leaves=tensor(tax.leaves),
        class_of=tensor(tax.class_of),
        node_depth=tensor(tax.node_depth),
        levels=tuple(np.diff(tax.level_start)[1:].tolist()),
        graph=tax,
        siblings=Buckets(tensor(order), shapes),
        siblings_back=tensor(np.argsort(order)),
        steps=tuple(_steps(tax, device)),
        parent=tensor(np.maximum(tax.first_parent, 0)),
        path_length=tensor(length),
        longest_path=int(length.max()),
        edge_start=tensor(tax.edge_start),
        edge_child=tensor(tax.edges[:, 1]),
        max_children=int(tax.num_children.max()),
    )


def node_index(tax: Taxonomy, device: torch.device) -> NodeIndex:
    """Return the index of a tree or a graph on a device."""
    return graph_index(tax, device) if tax.is_graph else tree_index(tax, device)


@cached_per_device
def past_only_children(tax: Taxonomy, device: torch.device) -> Tensor:
    """(N,) each node, or the deepest one below it that only children lead to: it has the same classes."""
    parents, children = tax.edges.T
    is_only = tax.num_children[parents] == 1
    below = np.arange(tax.num_nodes)
    below[parents[is_only]] = children[is_only]
    while not np.array_equal(below, further := below[below]):
        below = further
    return mark_static(torch.from_numpy(below).to(device))


def _steps(graph: Graph, device: torch.device) -> list[Step]:
    def tensor(array: np.ndarray) -> Tensor:
        return mark_static(torch.from_numpy(np.array(array)).to(device))

    edge_order = np.lexsort((graph.edges[:, 0], graph.edges[:, 1]))  # the edges by child
    parents, children = graph.edges[edge_order].T
    last_child = np.zeros(graph.num_nodes, np.int64)  # the last child of each node needs it in the state
    np.maximum.at(last_child, parents, children)
    state = np.array([0])
    position = np.zeros(graph.num_nodes, np.int64)
    steps = []
    starts = graph.level_start.tolist()
    for first, stop in pairwise(starts[1:]):
        edges = slice(*np.searchsorted(children, (first, stop)))
        together = np.concatenate((state, np.arange(first, stop)))
        keep = np.flatnonzero(last_child[together] >= stop)
        is_level = np.array_equal(together[keep], np.arange(first, stop))
        steps.append(
            Step(
                parents=tensor(position[parents[edges]]),
                edges=tensor(edge_order[edges]),
                nodes=tensor(children[edges] - first),
                size=stop - first,
                has_one_parent=edges.stop - edges.start == stop - first,
                keep=None if is_level else tensor(keep),
            )
        )
        state = together[keep]
        position[state] = np.arange(len(state))
    return steps


def walk_sums(values_EB: Tensor, index: GraphIndex) -> Tensor:
    """Return the (N - 1, B) logsumexp over all paths to each node of the sums of the values on their edges."""
    state, levels = torch.zeros_like(values_EB[:1]), []
    for step in index.steps:
        edges = values_EB.index_select(0, step.edges) + state.index_select(0, step.parents)
        level = edges if step.has_one_parent else segment_logsumexp(edges, step.nodes, step.size)
        levels.append(level)
        state = level if step.keep is None else torch.cat([state, level]).index_select(0, step.keep)
    return torch.cat(levels)


def segment_logsumexp(values_XB: Tensor, segment_X: Tensor, count: int) -> Tensor:
    """Return the (count, B) logsumexp of the rows of each segment; -inf for a segment without finite values.

    >>> segment_logsumexp(torch.tensor([[0.5], [0.25], [0.25]]).log(), torch.tensor([0, 1, 1]), 2).exp()
    tensor([[0.5000],
            [0.5000]])
    """
    index_XB = segment_X[:, None].expand_as(values_XB)
    largest = values_XB.detach().new_full((count, values_XB.shape[1]), -torch.inf)
    largest = largest.scatter_reduce(0, index_XB, values_XB.detach(), "amax")
    is_empty = largest == -torch.inf
    shift = largest.masked_fill(is_empty, 0.0)
    total = torch.zeros_like(shift).index_add(0, segment_X, (values_XB - shift.index_select(0, segment_X)).exp())
    return total.masked_fill(is_empty, 1.0).log().masked_fill(is_empty, -torch.inf) + shift


@cached_per_device
def leaf_pairs(tax: Taxonomy, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return (P,) nodes below the root and (P,) classes: each node with each class at or below it."""
    assert isinstance(tax, Graph)
    classes = tax.class_of[tax.ancestry.nodes]
    among = classes >= 0
    arrays = tax.ancestry.above[among], classes[among]
    nodes, classes = (mark_static(torch.from_numpy(array).to(device)) for array in arrays)
    return nodes, classes


@cached_per_device
def ancestor_pairs(tax: Taxonomy, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return (A,) nodes and (A,) nodes at or above them, without the root."""
    assert isinstance(tax, Graph)
    nodes, above = (
        mark_static(torch.from_numpy(array.copy()).to(device)) for array in (tax.ancestry.nodes, tax.ancestry.above)
    )
    return nodes, above


def leaf_sums(logp_CB: Tensor, graph: Taxonomy) -> Tensor:
    """Return the (N - 1, B) log-probabilities that the class is at or below each node."""
    nodes, classes = leaf_pairs(graph, logp_CB.device)
    return segment_logsumexp(logp_CB.index_select(0, classes), nodes - 1, graph.num_nodes - 1)


def steps_to(tax: Taxonomy, nodes_B: Tensor) -> list[Tensor]:
    """Return the (B,) nodes at step 1, 2, … of the paths to these nodes, the root past the end of a path.

    In a graph it is the path of the first parents.
    """
    if not tax.is_graph:
        return path_nodes(tree_index(tax, nodes_B.device), nodes_B)
    index, path = graph_index(tax, nodes_B.device), []
    for length in range(index.longest_path, 0, -1):
        here = index.path_length.index_select(0, nodes_B) == length
        path.append(torch.where(here, nodes_B, 0))
        nodes_B = torch.where(here, index.parent[nodes_B], nodes_B)
    return path[::-1]


def nodes_above(tax: Taxonomy, nodes_B: Tensor) -> Tensor:
    """Return the (B, K) nodes at or above these nodes on any path, filled up with the root."""
    if not tax.is_graph:
        return torch.stack(path_nodes(tree_index(tax, nodes_B.device), nodes_B), dim=-1)
    start_N, above_A = _ancestor_rows(tax, nodes_B.device)
    sizes_B = start_N[nodes_B + 1] - start_N[nodes_B]
    offset_K = torch.arange(max(int(sizes_B.max()), 1) if len(nodes_B) else 1, device=nodes_B.device)
    places_BK = (start_N[nodes_B, None] + offset_K).clamp(max=len(above_A) - 1)
    return torch.where(offset_K < sizes_B[:, None], above_A[places_BK], 0)


@cached_per_device
def _ancestor_rows(tax: Taxonomy, device: torch.device) -> tuple[Tensor, Tensor]:
    assert isinstance(tax, Graph)
    start, above = (torch.from_numpy(array.copy()).to(device) for array in (tax.ancestry.start, tax.ancestry.above))
    return start, above


def refuse_step_options(**options: object) -> None:
    """Raise for options of the loss that act on the steps of a path, of which a graph has several."""
    if used := [name for name, value in options.items() if isinstance(value, Tensor) or value]:
        raise OptionError(
            f"{', '.join(sorted(used))}: acts on the steps of a path, and a node of a graph may have several paths; "
            "use a tree, graph.to_tree()"
        )


def refuse_graph(tax: Taxonomy, what: str) -> None:
    """Raise if the taxonomy is a graph; `what` names the feature that needs a tree."""
    if tax.is_graph:
        raise TaxonomyError(
            f"{what} needs a tree, and this taxonomy is a graph, whose nodes may have several parents; "
            "graph.to_tree() keeps the first parent of each node"
        )
