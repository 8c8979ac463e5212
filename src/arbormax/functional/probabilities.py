"""From logits to log-probabilities of nodes and leaves.

B batch, N nodes, M = N - 1 columns, C classes. Internally nodes come first and the batch last, as in `_MB`, because
gathering whole rows is fast. In arguments and results the nodes are the last dimension.
"""

from __future__ import annotations

import torch
from torch import Tensor

from arbormax.functional.checks import check_width
from arbormax.functional.graphs import graph_index, leaf_sums, node_index, walk_sums
from arbormax.functional.index import Buckets, NodeIndex, TreeIndex, tree_index
from arbormax.taxonomy import Taxonomy


def sibling_log_softmax(logits: Tensor, tax: Taxonomy) -> Tensor:
    """Return the (..., M) log-probabilities of all non-root nodes given their parents: one softmax per sibling group.

    `logits` is (..., M), one column per non-root node in node order; with a graph one column per edge, (..., E), in
    the order of `graph.edges`.

    >>> from arbormax import Taxonomy
    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    >>> sibling_log_softmax(torch.zeros(5), tax).exp()
    tensor([0.5000, 0.5000, 0.5000, 0.5000, 1.0000])
    """
    check_logits(logits, tax)
    index = node_index(tax, logits.device)
    return _batch_first(_conditionals(_nodes_first(logits), index), logits)


def node_log_probs(logits: Tensor, tax: Taxonomy) -> Tensor:
    """Return the (..., N) log-probabilities of all nodes, 0 for the root, from (..., M) logits.

    The probability of a node is the product of the conditional probabilities on its path. With a graph the logits are
    (..., E), one column per edge, and the probability is the sum of these products over all paths to the node.
    """
    check_logits(logits, tax)
    logp_MB = _walk(logits, tax)
    return _batch_first(torch.cat([torch.zeros_like(logp_MB[:1]), logp_MB]), logits)


def leaf_log_probs(logits: Tensor, tax: Taxonomy) -> Tensor:
    """Return the (..., C) log-probabilities of all classes, in class order, from (..., M) logits.

    >>> from arbormax import Taxonomy
    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    >>> leaf_log_probs(torch.zeros(5), tax).exp()
    tensor([0.2500, 0.2500, 0.5000])
    """
    check_logits(logits, tax)
    leaves_C = node_index(tax, logits.device).leaves
    return _batch_first(_walk(logits, tax).index_select(0, leaves_C - 1), logits)


def flat_node_log_probs(leaf_logits: Tensor, tax: Taxonomy) -> Tensor:
    """Return the (..., N) log-probabilities of all nodes from (..., C) logits or log-probabilities of all classes.

    The probability of an inner node is the sum over its leaves; in a graph, over the different leaves at or below it.
    """
    check_width(leaf_logits, tax.num_leaves, "one column per class")
    logp_CB = _nodes_first(leaf_logits).log_softmax(0)
    logp_MB = leaf_sums(logp_CB, tax) if tax.is_graph else _fold_leaves(logp_CB, tree_index(tax, leaf_logits.device))
    return _batch_first(torch.cat([torch.zeros_like(logp_MB[:1]), logp_MB]), leaf_logits)


def _fold_leaves(logp_CB: Tensor, index: TreeIndex) -> Tensor:
    """Return the (M, B) sums over the leaves of each non-root node of a tree, in log space."""
    levels: list[Tensor] = []  # deepest first
    for fold in index.folds:
        # torch.export cannot save an empty index
        rows = [logp_CB.index_select(0, fold.classes)] if len(fold.classes) else []
        rows += [group.logsumexp(1) for below in levels[-1:] for group in _grouped(below, fold.buckets)]
        levels.append(torch.cat(rows).index_select(0, fold.back))
    return torch.cat(levels[::-1])


def shared_leaf_logits(logits: Tensor, tax: Taxonomy) -> Tensor:
    """Return the (..., C) logits of one softmax over all classes: sums of the (..., M) logits on the paths.

    >>> from arbormax import Taxonomy
    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    >>> shared_leaf_logits(torch.tensor([10.0, 20.0, 1.0, 2.0, 3.0]), tax)
    tensor([11., 12., 23.])

    With a graph, a class has the logsumexp over its paths, so that it is one softmax over all paths.
    """
    check_logits(logits, tax)
    leaves_C = node_index(tax, logits.device).leaves
    return _batch_first(_path_sums(_nodes_first(logits), tax).index_select(0, leaves_C - 1), logits)


def check_logits(logits: Tensor, tax: Taxonomy) -> None:
    """Raise unless the logits have one column per non-root node or, with a graph, one per edge."""
    check_width(logits, tax.num_edges, "one column per edge" if tax.is_graph else "one column per non-root node")


def _walk(logits: Tensor, tax: Taxonomy) -> Tensor:
    """Return the (N - 1, B) log-probabilities of the non-root nodes."""
    return _path_sums(_conditionals(_nodes_first(logits), node_index(tax, logits.device)), tax)


def _path_sums(values_MB: Tensor, tax: Taxonomy) -> Tensor:
    if tax.is_graph:
        return walk_sums(values_MB, graph_index(tax, values_MB.device))
    return path_sums(values_MB, tree_index(tax, values_MB.device))


def path_sums(values_MX: Tensor, index: TreeIndex) -> Tensor:
    """Return the (M, X) sums of the row of each node and the rows of its ancestors below the root."""
    levels = list(torch.split(values_MX, list(index.levels)))
    for depth, lift in enumerate(index.lifts, start=1):
        levels[depth] = levels[depth] + levels[depth - 1].index_select(0, lift)
    return torch.cat(levels)


def _conditionals(logits_MB: Tensor, index: NodeIndex) -> Tensor:
    shapes = index.siblings.shapes
    if len(shapes) == 1:  # groups of one size are in bucket order
        return logits_MB.view(*shapes[0], logits_MB.shape[1]).log_softmax(1).view_as(logits_MB)
    parts = [group.log_softmax(1).flatten(0, 1) for group in _grouped(logits_MB, index.siblings)]
    return torch.cat(parts).index_select(0, index.siblings_back)


def _grouped(rows: Tensor, buckets: Buckets) -> list[Tensor]:
    """Return the rows as one (groups, size, B) tensor per bucket."""
    rows = rows.index_select(0, buckets.order)
    sizes = [groups * size for groups, size in buckets.shapes]
    return [
        part.view(*shape, rows.shape[1]) for part, shape in zip(torch.split(rows, sizes), buckets.shapes, strict=True)
    ]


def _nodes_first(values: Tensor) -> Tensor:
    """Return (X, B) from (..., X), in float32 or wider; a view if the batch is contiguous in memory."""
    if values.dtype in (torch.float16, torch.bfloat16):
        values = values.float()
    return values.reshape(-1, values.shape[-1]).t().contiguous()


def _batch_first(values_XB: Tensor, like: Tensor) -> Tensor:
    """Return (..., X) from (X, B), with the leading dimensions of `like`."""
    return values_XB.t().reshape(*like.shape[:-1], values_XB.shape[0]).contiguous()
