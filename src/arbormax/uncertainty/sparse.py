"""A Gaussian over the stored weights of a sparse head: a variance for each of them, and one for each bias.

Weights that are not stored are zero and have no variance. n items, D features, M rows, E stored weights, S draws.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from arbormax.functional.linear import sparse_rows
from arbormax.heads import TreeHead
from arbormax.heads.sparse import SparseWeight
from arbormax.uncertainty.dense import choose_precisions, summarise
from arbormax.uncertainty.evidence import log_evidence
from arbormax.uncertainty.groups import find_groups

_CELLS = 1 << 23  # numbers of a part of the diagonal that are in memory together


class SparseRows:
    """Independent Gaussians over the stored weights, around the trained ones."""

    def __init__(
        self,
        variance: SparseWeight,
        bias: Tensor | None,
        precisions: Tensor,
        precision_M: Tensor | None = None,
        evidence: float | None = None,
    ) -> None:
        self.variance, self.bias, self.precisions, self.evidence = variance, bias, precisions, evidence
        self.precision_M = precision_M  # of each row; only of one that was fitted, for `with_factor`

    @classmethod
    @torch.no_grad()
    def fit(
        cls,
        head: TreeHead,
        features: Sequence[Tensor],
        nodes: np.ndarray,
        structure: str,
        prior: str,
        precision: float | None,
    ) -> Self:
        """The Gaussians at the weights of a trained head; `features` are those of the items, in batches."""
        del structure  # the only one is diagonal
        weight = head.sparse_weight
        assert weight is not None
        X = sparse.vstack([_to_scipy(h_BD) for h_BD in features], format="csr")
        groups = find_groups(head, nodes)
        M = head.num_rows(head.taxonomy)
        stored_rows, stored_columns, stored = weight.read(np.arange(M))
        by_row = np.argsort(stored_rows, kind="stable")
        starts = np.searchsorted(stored_rows[by_row], np.arange(M + 1))
        hessian, bias_hessian = np.zeros(len(stored)), np.zeros(M)
        eigenvalues, squares, members, likelihood = list[Tensor](), list[float](), list[np.ndarray](), 0.0
        bias = None if head.bias is None else head.bias.detach().cpu().double().numpy()
        matrix = sparse.csc_matrix((stored.astype(np.float64), (stored_columns, stored_rows)), shape=(X.shape[1], M))
        for group in groups:
            own = X[group.items]
            logits = (own @ matrix[:, group.rows]).toarray() + (0.0 if bias is None else bias[group.rows])
            logp = torch.from_numpy(logits).log_softmax(1).numpy()
            likelihood += float(logp[np.arange(len(logp)), group.targets].sum())
            spread = np.exp(logp) * -np.expm1(logp)  # p (1 - p)
            bias_hessian[group.rows] = spread.sum(0)
            squared = own.multiply(own).T.tocsr()
            width = max(1, _CELLS // X.shape[1])
            for start in range(0, len(group.rows), width):
                diagonal = squared @ spread[:, start : start + width]
                for place, row in enumerate(group.rows[start : start + width].tolist()):
                    at = by_row[starts[row] : starts[row + 1]]
                    hessian[at] = diagonal[stored_columns[at], place]
            at = np.concatenate([by_row[starts[row] : starts[row + 1]] for row in group.rows.tolist()])
            values, weights = hessian[at], stored[at]
            if bias is not None:
                values = np.concatenate([values, bias_hessian[group.rows]])
                weights = np.concatenate([weights, bias[group.rows]])
            eigenvalues.append(torch.from_numpy(values))
            squares.append(float((weights.astype(np.float64) ** 2).sum()))
            members.append(group.rows)
        found = choose_precisions(eigenvalues, squares, prior, precision)
        evidence = sum(
            log_evidence(0.0, values, square, delta)
            for values, square, delta in zip(eigenvalues, squares, found, strict=True)
        )
        precision_M = np.full(M, np.inf)  # a row without siblings has no variance
        for rows, delta in zip(members, found, strict=True):
            precision_M[rows] = delta
        variance = SparseWeight(M, head.in_features)
        variance.set_rows(stored_rows, stored_columns, (1 / (hessian + precision_M[stored_rows])).astype(np.float32))
        bias_variance = None if bias is None else torch.from_numpy(1 / (bias_hessian + precision_M)).float()
        precisions = torch.tensor(found, dtype=torch.float64)
        return cls(variance, bias_variance, precisions, torch.from_numpy(precision_M), likelihood + evidence)

    @torch.no_grad()
    def with_factor(self, factor: float) -> Self:
        """The Gaussians for precisions of the prior that are this many times as high."""
        assert self.precision_M is not None
        added_M = self.precision_M.nan_to_num(posinf=0.0) * (factor - 1)  # to the precision of each weight
        variance = copy.deepcopy(self.variance)
        variance.values.copy_(1 / (1 / self.variance.values.double() + added_M[self.variance.rows]))
        bias = None if self.bias is None else (1 / (1 / self.bias.double() + added_M)).float()
        return type(self)(variance, bias, self.precisions * factor, self.precision_M * factor, self.evidence)

    def noise(self, h_BD: Tensor, normal_SM: Tensor) -> Tensor:
        """(S, B, M) draws of the difference of the logits from their mean."""
        h_BD = h_BD.coalesce()
        rows, columns = h_BD.indices()
        lengths = torch.bincount(rows, minlength=len(h_BD))
        squared = sparse_rows(lengths, columns, h_BD.values().square(), h_BD.shape[1])
        std_BM: Tensor = self.variance(squared, self.bias).clamp(min=0).sqrt()
        return normal_SM[:, None] * std_BM

    def to(self, device: torch.device) -> None:
        """Move the tensors to a device, in place."""
        if self.variance.values.device != device:
            self.variance = self.variance.to(device)
            self.bias = None if self.bias is None else self.bias.to(device)

    def state(self) -> dict[str, Tensor]:
        state = {f"variance.{name}": value for name, value in self.variance.state_dict().items()}
        return {**state, "precision": self.precisions, **({} if self.bias is None else {"bias": self.bias})}

    @classmethod
    def restore(cls, head: TreeHead, state: dict[str, Tensor]) -> Self:
        variance = SparseWeight(head.num_rows(head.taxonomy), head.in_features)
        prefix = "variance."
        variance.load_state_dict({n.removeprefix(prefix): v for n, v in state.items() if n.startswith(prefix)})
        return cls(variance, state.get("bias"), state["precision"])

    def describe(self) -> dict[str, Any]:
        return {
            "log_evidence": self.evidence,
            "precision": summarise(self.precisions.tolist()),
            "structures": {"diagonal": len(self.precisions)},
        }


def _to_scipy(h_BD: Tensor) -> Any:
    h_BD = h_BD.cpu().coalesce()
    rows, columns = h_BD.indices().numpy()
    return sparse.csr_matrix((h_BD.values().double().numpy(), (rows, columns)), shape=tuple(h_BD.shape))
