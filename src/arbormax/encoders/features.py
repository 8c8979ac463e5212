"""Feature matrices in training: dense or sparse rows in the place of texts, and the network that takes them.

B batch, D features, T stored numbers of the whole batch.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from pydantic import Field
from torch import Tensor, nn

from arbormax.data.batching import Inputs
from arbormax.data.examples import Examples
from arbormax.data.ragged import Ragged
from arbormax.encoders import Encoder, EncoderOptions, register
from arbormax.errors import InputError
from arbormax.heads.base import linear

Matrix = Any  # a float32 array, or a scipy matrix or array in CSR form


@dataclass(frozen=True, eq=False)
class Rows(Examples):
    """The rows of a feature matrix and the node that each belongs to, where training looks for texts."""

    texts: Matrix

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", np.asarray(self.nodes, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.nodes)

    def digest(self) -> str:
        digest = hashlib.sha256(self.nodes.tobytes())
        X = self.texts
        for part in (X,) if isinstance(X, np.ndarray) else (X.data, X.indices, X.indptr):
            digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()

    def take(self, items: ArrayLike) -> Rows:
        rows = np.asarray(items, dtype=np.int64)
        return Rows(self.texts[rows], self.nodes[rows])


@dataclass(frozen=True, eq=False)
class Dense:
    """The rows of an array, as batches take them."""

    values: np.ndarray  # (n, D) float32

    def __len__(self) -> int:
        return len(self.values)

    def take(self, items: np.ndarray) -> Dense:
        return Dense(self.values[items])


class FeaturesOptions(EncoderOptions):
    inputs: int = Field(ge=1, description="columns of the matrix")
    hidden: tuple[int, ...] = Field((), description="widths of the layers before the head; none: a linear classifier")
    dropout: float = Field(0.0, ge=0, lt=1, description="share of a hidden layer that is left out in training")
    scale: bool = Field(True, description="bring the features to a usual size first")


@register
class FeaturesEncoder(Encoder):
    """Rows of numbers through hidden layers, or straight into the head.

    With `scale`, a matrix that was dense in `fit` has its columns brought to mean 0 and variance 1; a sparse one, which
    must keep its zeros, is divided by the mean length of its rows. Sparse rows are never made dense: without
    hidden layers they are the features, with them the first layer is a sparse product.
    """

    name: ClassVar[str] = "features"
    Options: ClassVar[type[EncoderOptions]] = FeaturesOptions
    sorts_by_length: ClassVar[bool] = False

    mean: Tensor  # (D,) of the columns; zeros where fit saw a sparse matrix
    factor: Tensor  # (D,) that they are multiplied with

    def __init__(self, options: FeaturesOptions) -> None:
        super().__init__()
        self.options = options
        widths = (options.inputs, *options.hidden)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.dropout = nn.Dropout(options.dropout)
        self.out_features = widths[-1]
        self.register_buffer("mean", torch.zeros(options.inputs))
        self.register_buffer("factor", torch.ones(options.inputs))

    @classmethod
    def fit(cls, texts: Matrix, options: EncoderOptions) -> Self:
        assert isinstance(options, FeaturesOptions)
        encoder = cls(options)
        if not options.scale:
            return encoder
        if isinstance(texts, np.ndarray):
            wide = texts.astype(np.float64)
            spread = wide.std(0)
            # rounding leaves a constant column with a spread that is not quite zero
            flat = spread <= 1e-7 * np.maximum(np.abs(wide).max(0), 1e-30)
            encoder.mean.copy_(torch.from_numpy(wide.mean(0)))
            encoder.factor.copy_(torch.from_numpy(1.0 / np.where(flat, 1.0, spread)))
        else:
            length = float(np.sqrt(np.asarray(texts.multiply(texts).sum(1), np.float64)).mean())
            encoder.factor.fill_(1.0 / length if length else 1.0)
        return encoder

    @property
    def gives_sparse(self) -> bool:
        """Whether a sparse row may come out as it is."""
        return not self.layers

    def encode(self, texts: Matrix) -> Any:
        if isinstance(texts, np.ndarray) and texts.ndim == 2:
            return Dense(texts)
        if not hasattr(texts, "indptr"):
            raise InputError("this model takes rows of numbers, not texts: load it with HierarchicalClassifier.load")
        return Ragged(texts.indices.astype(np.int64), texts.indptr.astype(np.int64), texts.data)

    def collate(self, rows: Any) -> Inputs:
        if isinstance(rows, Dense):
            return (torch.from_numpy(rows.values),)
        return tuple(torch.from_numpy(array) for array in (rows.lengths, rows.values, rows.weights))

    def forward(self, *inputs: Tensor) -> Tensor:
        h_BD = (inputs[0] - self.mean) * self.factor if len(inputs) == 1 else self._sparse(*inputs)
        for layer in self.layers:
            h_BD = self.dropout(linear(h_BD, layer.weight, layer.bias).relu())  # type: ignore[arg-type]
        return h_BD

    def _sparse(self, lengths_B: Tensor, columns_T: Tensor, values_T: Tensor) -> Tensor:
        rows_B = torch.arange(len(lengths_B), device=lengths_B.device)
        rows_T = rows_B.repeat_interleave(lengths_B, output_size=len(columns_T))
        sparse_BD = torch.sparse_coo_tensor(
            torch.stack([rows_T, columns_T]),
            values_T * self.factor[columns_T],
            (len(lengths_B), len(self.factor)),
            is_coalesced=True,  # the columns of a row are sorted, each there once
            check_invariants=False,
        )
        # a model of dense rows that is asked about sparse ones: without their zeros, the means are missing
        return sparse_BD.to_dense() - self.mean * self.factor if self.mean.any() else sparse_BD

    @classmethod
    def load(cls, folder: Path, options: EncoderOptions) -> Self:  # noqa: ARG003 - the weights are all there is
        assert isinstance(options, FeaturesOptions)
        return cls(options)
