"""A Gaussian over the rows of a head with dense features: one block for each softmax.

n items, D features and a 1 for the bias, M rows, m rows of a softmax, S draws, B batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from arbormax.heads import TreeHead
from arbormax.uncertainty.blocks import BLOCKS, Block
from arbormax.uncertainty.evidence import best_precision, log_evidence
from arbormax.uncertainty.groups import find_groups

_MOST_WEIGHTS = 1024  # of a softmax whose whole Hessian is used
_MOST_CELLS = 1 << 26  # numbers of all whole Hessians together


class Part(NamedTuple):
    """The Gaussian over the rows of one softmax."""

    rows: Tensor  # (m,)
    kind: str
    block: Block
    precision: float


class DenseRows:
    """A Gaussian over the rows of a head, around the trained ones."""

    def __init__(self, parts: Sequence[Part], num_rows: int, has_bias: bool, evidence: float | None = None) -> None:
        self.parts, self.num_rows, self.has_bias, self.evidence = list(parts), num_rows, has_bias, evidence

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
        """The Gaussian at the rows of a trained head; `features` are those of the items, in batches."""
        phi_nD = torch.cat([h_BD.double() for h_BD in features])
        weight_MD = head.weight.double()
        if head.bias is not None:
            phi_nD = torch.cat([phi_nD, phi_nD.new_ones(len(phi_nD), 1)], 1)
            weight_MD = torch.cat([weight_MD, head.bias.double()[:, None]], 1)
        groups, left = find_groups(head, nodes), _MOST_CELLS
        kinds, blocks, squares, likelihood = list[str](), list[Block](), list[float](), 0.0
        for group in groups:
            cells = (len(group.rows) * phi_nD.shape[1]) ** 2
            is_small = cells <= _MOST_WEIGHTS**2 and cells <= left
            kind = structure if structure != "auto" else "full" if is_small else "kronecker"
            left -= cells if kind == "full" else 0
            phi, rows_mD = phi_nD[_index(group.items, phi_nD)], weight_MD[_index(group.rows, phi_nD)]
            logp_nm = (phi @ rows_mD.T).log_softmax(1)
            likelihood += float(logp_nm.gather(1, _index(group.targets, phi_nD)[:, None]).sum())
            kinds.append(kind)
            blocks.append(BLOCKS[kind].fit(phi, logp_nm.exp()))
            squares.append(float(rows_mD.square().sum()))
        values = [block.eigenvalues() for block in blocks]
        found = choose_precisions(values, squares, prior, precision)
        evidence = sum(
            log_evidence(0.0, each, square, delta) for each, square, delta in zip(values, squares, found, strict=True)
        )
        parts = [
            Part(torch.from_numpy(group.rows.copy()), kind, block.to(torch.device("cpu"), torch.float32), delta)
            for group, kind, block, delta in zip(groups, kinds, blocks, found, strict=True)
        ]
        return cls(parts, head.num_rows(head.taxonomy), head.bias is not None, likelihood + evidence)

    def with_factor(self, factor: float) -> Self:
        """The Gaussian for precisions of the prior that are this many times as high."""
        parts = [part._replace(precision=part.precision * factor) for part in self.parts]
        return type(self)(parts, self.num_rows, self.has_bias, self.evidence)

    def noise(self, h_BD: Tensor, normal_SM: Tensor) -> Tensor:
        """(S, B, M) draws of the difference of the logits from their mean."""
        h_BD = h_BD.float()
        phi = torch.cat([h_BD, h_BD.new_ones(len(h_BD), 1)], 1) if self.has_bias else h_BD
        noise_SBM = phi.new_zeros(len(normal_SM), len(phi), self.num_rows)
        for part in self.parts:
            noise_SBM[..., part.rows] = part.block.noise(phi, part.precision, normal_SM[:, part.rows])
        return noise_SBM

    def to(self, device: torch.device) -> None:
        """Move the tensors to a device, in place."""
        if self.parts and self.parts[0].rows.device != device:
            self.parts = [
                part._replace(rows=part.rows.to(device), block=part.block.to(device, torch.float32))
                for part in self.parts
            ]

    def state(self) -> dict[str, Tensor]:
        state = {"precision": torch.tensor([part.precision for part in self.parts], dtype=torch.float64)}
        for number, part in enumerate(self.parts):
            state[f"{number}.rows"] = part.rows
            state |= {f"{number}.{part.kind}.{name}": getattr(part.block, name) for name in part.block.fields}
        return state

    @classmethod
    def restore(cls, head: TreeHead, state: dict[str, Tensor]) -> Self:
        found: dict[str, dict[str, Tensor]] = {}
        kinds: dict[str, str] = {}
        for name, value in state.items():
            number, *rest = name.split(".")
            found.setdefault(number, {})[rest[-1] if rest else ""] = value
            if len(rest) == 2:
                kinds[number] = rest[0]
        parts = []
        for place, precision in enumerate(state["precision"].tolist()):
            own, kind = found[str(place)], kinds[str(place)]
            parts.append(Part(own.pop("rows"), kind, BLOCKS[kind](**own), precision))
        return cls(parts, head.num_rows(head.taxonomy), head.bias is not None)

    def describe(self) -> dict[str, Any]:
        return {
            "log_evidence": self.evidence,
            "precision": summarise([part.precision for part in self.parts]),
            "structures": dict(Counter(part.kind for part in self.parts)),
        }


def choose_precisions(
    eigenvalues: Sequence[Tensor], squares: Sequence[float], prior: str, precision: float | None
) -> list[float]:
    """The precision of the prior for each softmax: the given one, or that of the highest marginal likelihood."""
    if precision is not None or not eigenvalues:
        return [precision or 1.0] * len(eigenvalues)
    if prior == "parent":
        return [best_precision(each, square) for each, square in zip(eigenvalues, squares, strict=True)]
    return [best_precision(torch.cat([each.flatten() for each in eigenvalues]), sum(squares))] * len(eigenvalues)


def summarise(precisions: Sequence[float]) -> dict[str, float]:
    """The lowest, the median and the highest precision."""
    if not len(precisions):
        return {}
    low, middle, high = np.quantile(precisions, [0, 0.5, 1]).tolist()
    return {"lowest": low, "median": middle, "highest": high}


def _index(values: np.ndarray, like: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(like.device)
