"""Feature matrices: dense or sparse rows instead of texts.

B batch, D features, T stored values of the whole batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from arbormax.data.batching import Inputs
from arbormax.data.examples import Matrix
from arbormax.data.ragged import Ragged
from arbormax.encoders.base import Encoder, EncoderOptions
from arbormax.errors import InputError
from arbormax.functional.linear import linear, sparse_rows


@dataclass(frozen=True, eq=False)
class DenseRows:
    """The rows of an array, with the interface of `Ragged` that batches use."""

    values: np.ndarray  # (n, D) float32

    def __len__(self) -> int:
        return len(self.values)

    def take(self, items: np.ndarray) -> DenseRows:
        return DenseRows(self.values[items])


class FeaturesOptions(EncoderOptions):
    inputs: int = Field(ge=1, description="number of columns of the matrix")
    hidden: tuple[int, ...] = Field((), description="sizes of the hidden layers; none gives a linear classifier")
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout rate of the hidden layers")
    sparse: bool = Field(False, description="whether the matrix is sparse")
    scale: bool = Field(True, description="whether to scale the features first")


class FeaturesEncoder(Encoder):
    """The rows of a feature matrix, optionally followed by hidden layers.

    With `scale`, the columns of a dense matrix are standardised to mean 0 and variance 1; a sparse matrix, which must
    keep its zeros, is divided by the mean length of its rows. Sparse rows are never made dense: without hidden layers
    they are the features, otherwise the first layer is a sparse product.
    """

    name: ClassVar[str] = "features"
    default_head: ClassVar[str] = "blended"
    Options: ClassVar[type[EncoderOptions]] = FeaturesOptions
    sorts_by_length: ClassVar[bool] = False
    takes_texts: ClassVar[bool] = False
    bayesian_parts: ClassVar[tuple[str, ...] | None] = ("layers",)

    mean: Tensor  # (D,) of the columns; zeros after fitting a sparse matrix
    factor: Tensor  # (D,) the scale of the columns

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
    def has_fixed_features(cls, options: EncoderOptions) -> bool:
        assert isinstance(options, FeaturesOptions)
        return not options.hidden

    @classmethod
    def has_sparse_features(cls, options: EncoderOptions) -> bool:
        assert isinstance(options, FeaturesOptions)
        return options.sparse and not options.hidden

    @classmethod
    def fit(cls, inputs: Matrix, options: EncoderOptions) -> Self:
        assert isinstance(options, FeaturesOptions)
        encoder = cls(options)
        if not options.scale:
            return encoder
        if isinstance(inputs, np.ndarray):
            wide = inputs.astype(np.float64)
            spread = wide.std(0)
            # rounding gives a constant column a spread that is not exactly zero
            flat = spread <= 1e-7 * np.maximum(np.abs(wide).max(0), 1e-30)
            encoder.mean.copy_(torch.from_numpy(wide.mean(0)))
            encoder.factor.copy_(torch.from_numpy(1.0 / np.where(flat, 1.0, spread)))
        else:
            length = float(np.sqrt(np.asarray(inputs.multiply(inputs).sum(1), np.float64)).mean())
            encoder.factor.fill_(1.0 / length if length else 1.0)
        return encoder

    def encode(self, inputs: Matrix) -> Any:
        if isinstance(inputs, np.ndarray) and inputs.ndim == 2:
            return DenseRows(inputs)
        if not hasattr(inputs, "indptr"):
            raise InputError("this model takes feature matrices, not texts; load it with HierarchicalClassifier.load")
        return Ragged(inputs.indices.astype(np.int64), inputs.indptr.astype(np.int64), inputs.data)

    def collate(self, rows: Any) -> Inputs:
        if isinstance(rows, DenseRows):
            return (torch.from_numpy(rows.values),)
        return tuple(torch.from_numpy(array) for array in (rows.lengths, rows.values, rows.weights))

    def forward(self, *inputs: Tensor) -> Tensor:
        h_BD = (inputs[0] - self.mean) * self.factor if len(inputs) == 1 else self._sparse(*inputs)
        for layer in self.layers:
            h_BD = self.dropout(linear(h_BD, layer.weight, layer.bias).relu())  # type: ignore[arg-type]
        return h_BD

    def _sparse(self, lengths_B: Tensor, columns_T: Tensor, values_T: Tensor) -> Tensor:
        sparse_BD = sparse_rows(lengths_B, columns_T, values_T * self.factor[columns_T], len(self.factor))
        # a model of dense rows needs the means of all columns, including those that a sparse row omits
        return sparse_BD.to_dense() - self.mean * self.factor if self.mean.any() else sparse_BD

    @classmethod
    def load(cls, folder: Path, options: EncoderOptions) -> Self:  # noqa: ARG003 - everything is in the weights
        assert isinstance(options, FeaturesOptions)
        return cls(options)
