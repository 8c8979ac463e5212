"""Gaussians over the rows of one softmax: the Hessian of its loss in three forms, and the noise of its logits.

With logits that are linear in the weights, the Hessian of the cross entropy is the sum over the items of
(diag p - p pᵀ) ⊗ φ φᵀ, the Gauss-Newton matrix. The precision of the weights is this plus that of the prior.

n items, D features φ (with a 1 for the bias), m rows, S draws, B batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Self

import torch
from torch import Tensor

_CELLS = 1 << 23  # numbers of the factors of a Hessian that are in memory together


class Block(ABC):
    """The Hessian of one softmax; its tensors are the attributes named in `fields`."""

    fields: ClassVar[tuple[str, ...]]

    def __init__(self, **tensors: Tensor) -> None:
        for name in self.fields:
            setattr(self, name, tensors[name])

    @classmethod
    @abstractmethod
    def fit(cls, phi_nD: Tensor, p_nm: Tensor) -> Self:
        """The Hessian at these features and probabilities, in float64."""

    @abstractmethod
    def eigenvalues(self) -> Tensor:
        """(mD,) the eigenvalues of the Hessian."""

    @abstractmethod
    def noise(self, phi_BD: Tensor, precision: float, normal_Sm: Tensor) -> Tensor:
        """(S, B, m) draws of the difference of the logits from their mean, with this precision of the prior.

        They are linear in the normal values, which are the same for all items.
        """

    def to(self, device: torch.device, dtype: torch.dtype) -> Self:
        """The block with its tensors on a device."""
        return type(self)(**{name: getattr(self, name).to(device, dtype) for name in self.fields})


class FullBlock(Block):
    """The whole Hessian, as its eigenvalues and eigenvectors."""

    fields = ("values", "vectors")
    values: Tensor  # (mD,)
    vectors: Tensor  # (m, D, mD)

    @classmethod
    def fit(cls, phi_nD: Tensor, p_nm: Tensor) -> Self:
        (n, D), m = phi_nD.shape, p_nm.shape[1]
        hessian = phi_nD.new_zeros(m * D, m * D)
        size = max(1, _CELLS // (m * m * D))
        for start in range(0, n, size):
            phi, p = phi_nD[start : start + size], p_nm[start : start + size]
            root = p.sqrt()
            # a square root of diag p - p pᵀ is diag √p - p √pᵀ
            factor = torch.diag_embed(root) - p[:, :, None] * root[:, None, :]
            rows = torch.einsum("nmk,nd->nkmd", factor, phi).reshape(-1, m * D)
            hessian += rows.T @ rows
        values, vectors = torch.linalg.eigh(hessian)
        return cls(values=values.clamp(min=0), vectors=vectors.view(m, D, m * D))

    def eigenvalues(self) -> Tensor:
        return self.values

    def covariance(self, phi_BD: Tensor, precision: float) -> Tensor:
        """(B, m, m) the covariance of the logits."""
        scaled = self.vectors * (self.values + precision).rsqrt()
        root_BmE = torch.einsum("bd,mde->bme", phi_BD, scaled)
        return root_BmE @ root_BmE.mT

    def noise(self, phi_BD: Tensor, precision: float, normal_Sm: Tensor) -> Tensor:
        size = max(1, _CELLS // self.vectors.shape[0] // self.vectors.shape[2])
        found = torch.cat([self.covariance(part, precision) for part in torch.split(phi_BD, size)]).double()
        # eigenvalues of a covariance that rounding makes negative are 0
        values_Bm, vectors_Bmm = torch.linalg.eigh(found)
        root_Bmm = vectors_Bmm * values_Bm.clamp(min=0).sqrt()[:, None, :] @ vectors_Bmm.mT
        return torch.einsum("bij,sj->sbi", root_Bmm.to(phi_BD), normal_Sm)


class KroneckerBlock(Block):
    """n · B ⊗ A with the mean A of φ φᵀ and the mean B of diag p - p pᵀ, as eigenvalues and eigenvectors of both."""

    fields = ("count", "row_values", "row_vectors", "values", "vectors")
    count: Tensor  # () n
    row_values: Tensor  # (m,) of B
    row_vectors: Tensor
    values: Tensor  # (D,) of A
    vectors: Tensor

    @classmethod
    def fit(cls, phi_nD: Tensor, p_nm: Tensor) -> Self:
        n = max(len(phi_nD), 1)
        row_values, row_vectors = torch.linalg.eigh((torch.diag(p_nm.sum(0)) - p_nm.T @ p_nm) / n)
        values, vectors = torch.linalg.eigh(phi_nD.T @ phi_nD / n)
        return cls(
            count=phi_nD.new_tensor(len(phi_nD)),
            row_values=row_values.clamp(min=0),
            row_vectors=row_vectors,
            values=values.clamp(min=0),
            vectors=vectors,
        )

    def eigenvalues(self) -> Tensor:
        return (self.count * torch.outer(self.row_values, self.values)).flatten()

    def noise(self, phi_BD: Tensor, precision: float, normal_Sm: Tensor) -> Tensor:
        turned_BD = (phi_BD @ self.vectors).square()
        inverse_mD = 1 / (self.count * torch.outer(self.row_values, self.values) + precision)
        std_Bm = (turned_BD @ inverse_mD.T).sqrt()
        return (normal_Sm[:, None] * std_Bm) @ self.row_vectors.T


class DiagonalBlock(Block):
    """The diagonal of the Hessian."""

    fields = ("values",)
    values: Tensor  # (m, D)

    @classmethod
    def fit(cls, phi_nD: Tensor, p_nm: Tensor) -> Self:
        return cls(values=(p_nm * (1 - p_nm)).T @ phi_nD.square())

    def eigenvalues(self) -> Tensor:
        return self.values.flatten()

    def noise(self, phi_BD: Tensor, precision: float, normal_Sm: Tensor) -> Tensor:
        std_Bm = (phi_BD.square() @ (1 / (self.values + precision)).T).sqrt()
        return normal_Sm[:, None] * std_Bm


BLOCKS: dict[str, type[Block]] = {"full": FullBlock, "kronecker": KroneckerBlock, "diagonal": DiagonalBlock}
