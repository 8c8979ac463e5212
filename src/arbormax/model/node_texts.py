"""The texts of nodes as features, and rows of a head that start from them or are tied to them.

N nodes, D features, R rows of the head.
"""

from __future__ import annotations

import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

from arbormax.data.examples import Examples
from arbormax.errors import OptionError
from arbormax.model.network import Model
from arbormax.model.run import Run
from arbormax.model.settings import TrainConfig
from arbormax.taxonomy import Taxonomy

_SCALE = 20.0  # the length of a row times the mean length of the features, if no examples can choose it
_SCALES = (0.0, *(2.0**power for power in range(7)))  # what examples choose from
_EXAMPLES = 2048  # the number of examples that choose
_EXCLUDED = -1e4  # logit of a class without examples in training; finite, so that a group of such classes has no NaN


def node_features(model: Model, batch_size: int = 256) -> Tensor:
    """(N, D) the features of the text of each node, on the model's device; sparse if the encoder's features are.

    The text of a node is that of `taxonomy.texts`: its name if it was given none.
    """
    if not model.encoder.takes_texts:
        raise OptionError(f"encoder {model.config.encoder!r} takes feature matrices, not texts", argument="names")
    return torch.cat(list(model.features(list(model.taxonomy.texts), batch_size)))


def node_vectors(model: Model) -> Tensor:
    """(N, D) a vector of length one for each node, sparse if the features are; zero if its text has no features.

    A class has the direction of the features of its text, an inner node that of the mean of the classes below it.
    """
    features_ND = node_features(model)
    return _normalize(torch.sparse.mm(_classes_below(model.taxonomy, features_ND), _normalize(features_ND)))


def start_rows(model: Model, train: Examples | None = None) -> None:
    """Start the rows of the head from the texts of the nodes; the bias is zero.

    The training examples choose the length of the rows: zero if the texts say nothing about them.
    """
    rows_RD = _head_rows(model)
    scale = _scale(model, rows_RD, train)
    with torch.no_grad():
        model.head.weight.copy_(scale * rows_RD.to_dense())
        if model.head.bias is not None:
            model.head.bias.zero_()


def add_class_texts(train: Examples, tax: Taxonomy) -> Examples:
    """The examples and, for each class, its text as one more example."""
    texts = [tax.texts[leaf] for leaf in tax.leaves.tolist()]
    return Examples([*train.inputs, *texts], np.concatenate([train.nodes, tax.leaves]))


def tie_rows(model: Model, train: Examples) -> None:
    """Make each row a projection of the vector of its text plus a free row, until `untie_rows`.

    A class without examples has no free row and does not compete in training. So nothing teaches the model to avoid
    it, and the projection gives it a row like those of classes with similar texts.
    """
    tax, rows_RD = model.taxonomy, _head_rows(model)
    scale = _scale(model, rows_RD, train)
    seen_R = torch.from_numpy(_has_examples(train.nodes, tax)[model.head.row_nodes()]).to(rows_RD)
    with torch.no_grad():
        model.head.weight.zero_()
        if model.head.bias is not None:
            model.head.bias.zero_()
    parametrize.register_parametrization(model.head, "weight", TiedRows(rows_RD, scale, seen_R))
    if model.head.bias is not None:
        parametrize.register_parametrization(model.head, "bias", SeenBias(seen_R))


def untie_rows(model: Model) -> None:
    """Make the rows of the head ordinary parameters again, with the values that they have in prediction."""
    head = model.head.eval()
    for name in ("weight", "bias"):
        if parametrize.is_parametrized(head, name):
            parametrize.remove_parametrizations(head, name, leave_parametrized=True)


def is_tied(model: Model) -> bool:
    """Whether the rows of the head are tied to texts."""
    return parametrize.is_parametrized(model.head, "weight")


def refresh_ties(model: Model) -> None:
    """Compute the vectors of the texts again, with the encoder as it is now."""
    if any(parameter.requires_grad for parameter in model.encoder.parameters()):
        tied: TiedRows = model.head.parametrizations.weight[0]  # type: ignore[union-attr, index, assignment]
        tied.rows.copy_(_head_rows(model))


def build_from_texts(config: TrainConfig, taxonomy: Taxonomy) -> Run:
    """A model from the texts of the nodes alone, as a run without epochs: no training, no data."""
    if config.uncertainty is not None:
        raise OptionError("needs training data, and the texts of nodes are none", argument="uncertainty")
    started = time.perf_counter()
    model = Model.new([], taxonomy, config.model_copy(update={"names": "only"}).resolved())
    start_rows(model)
    return Run(model.eval(), 0, 0, valid_macro_f1=None, seconds=time.perf_counter() - started)


class TiedRows(nn.Module):
    """The rows of a head: free rows plus a projection of the vectors of texts.

    For dense vectors the projection is a matrix, for sparse ones a factor for each feature.
    """

    rows: Tensor  # (R, D), or the values of sparse rows
    places: Tensor | None  # (2, values) the rows and columns of the values
    seen: Tensor  # (R, 1)

    def __init__(self, rows_RD: Tensor, scale: float, seen_R: Tensor) -> None:
        super().__init__()
        is_sparse = rows_RD.layout != torch.strided
        width = rows_RD.shape[1]
        start = torch.ones(width) if is_sparse else torch.eye(width)
        self.projection = nn.Parameter(scale * start.to(rows_RD.device))
        self.register_buffer("rows", rows_RD.coalesce().values() if is_sparse else rows_RD)
        self.register_buffer("places", rows_RD.coalesce().indices() if is_sparse else None)
        self.register_buffer("seen", seen_R[:, None])

    def forward(self, free_RD: Tensor) -> Tensor:
        free_RD = free_RD * self.seen
        if self.places is None:
            return free_RD + F.linear(self.rows, self.projection)
        rows, columns = self.places.unbind()
        return free_RD.index_put((rows, columns), self.rows * self.projection[columns], accumulate=True)


class SeenBias(nn.Module):
    """The bias of a head: free for classes with examples; others have none, and do not compete in training."""

    seen: Tensor

    def __init__(self, seen_R: Tensor) -> None:
        super().__init__()
        self.register_buffer("seen", seen_R)

    def forward(self, free_R: Tensor) -> Tensor:
        seen_R = free_R * self.seen
        return seen_R + _EXCLUDED * (1 - self.seen) if self.training else seen_R


def _head_rows(model: Model) -> Tensor:
    """(R, D) the rows for which the score of each node is the product with its vector."""
    rows_RD = model.head.rows_from(node_vectors(model))
    if rows_RD.shape != model.head.weight.shape:
        raise OptionError(f"not possible with head {model.config.head!r}", argument="names")
    return rows_RD


def _scale(model: Model, rows_RD: Tensor, train: Examples | None) -> float:
    """The length of the rows: the one with the lowest loss on some of the training examples."""
    if train is None:
        return _SCALE / _mean_length(node_features(model))
    if model.encoder.starts_random:  # its features are as short as they happen to be
        return 1.0
    chosen = np.random.default_rng(model.config.seed).permutation(len(train))[:_EXAMPLES]
    some = train.take(np.sort(chosen))
    features = torch.cat(list(model.features(some.inputs)))
    target = torch.from_numpy(some.nodes).to(model.device)
    length, dense_RD = _mean_length(features), rows_RD.to_dense()
    head, losses = model.head, {}
    with torch.no_grad():
        if head.bias is not None:
            head.bias.zero_()
        for scale in _SCALES:
            head.weight.copy_(scale / length * dense_RD)
            losses[scale] = float(head.loss(features, target, target_kind="node"))
    return min(losses, key=lambda scale: losses[scale]) / length


def _has_examples(nodes: np.ndarray, tax: Taxonomy) -> np.ndarray:
    """(N,) whether a node has an example at, below or above it; labels at the root do not count."""
    at = np.bincount(nodes, minlength=tax.num_nodes) > 0
    at[0] = False
    found = tax.sum_up(at.astype(np.int64)) > 0
    for first, stop in zip(tax.level_start[1:-1].tolist(), tax.level_start[2:].tolist(), strict=True):
        at[first:stop] |= at[tax.parent[first:stop]]
    return found | at


def _classes_below(tax: Taxonomy, like: Tensor) -> Tensor:
    """(N, N) sparse: the share of each class in the mean of the classes at or below each node."""
    above = [tax.ancestor_at(tax.leaves, depth) for depth in range(tax.depth + 1)]
    nodes = np.concatenate(above)
    leaves = np.tile(tax.leaves, len(above))[nodes >= 0]
    nodes = nodes[nodes >= 0]
    indices = torch.from_numpy(np.stack([nodes, leaves])).to(like.device)
    shares = torch.from_numpy(1.0 / tax.leaf_counts[nodes]).to(like.device, like.dtype)
    return torch.sparse_coo_tensor(indices, shares, (tax.num_nodes, tax.num_nodes)).coalesce()


def _normalize(vectors: Tensor) -> Tensor:
    """Rows of length one, dense or sparse; rows of zeros stay zero."""
    if vectors.layout == torch.strided:
        return F.normalize(vectors, dim=1)
    vectors = vectors.coalesce()
    values = vectors.values() / _lengths(vectors).clamp(min=1e-12)[vectors.indices()[0]]
    return torch.sparse_coo_tensor(vectors.indices(), values, vectors.shape, is_coalesced=True)


def _lengths(vectors: Tensor) -> Tensor:
    """The length of each row, dense or sparse."""
    if vectors.layout == torch.strided:
        lengths: Tensor = torch.linalg.vector_norm(vectors, dim=1)
        return lengths
    vectors = vectors.coalesce()
    squares = vectors.values().square()
    return squares.new_zeros(vectors.shape[0]).index_add(0, vectors.indices()[0], squares).sqrt()


def _mean_length(features: Tensor) -> float:
    return max(float(_lengths(features).mean()), 1e-6)
