"""Update the rows of a head by further examples with fixed features, around the values that they have.

The rows are those with the highest posterior probability: the likelihood of the new examples, times a Gaussian prior
around the old rows, whose precision grows with the number of examples that the old rows were trained on.

B examples, D features, U features that occur, R rows of the head, A rows that are updated, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from arbormax.errors import OptionError
from arbormax.functional.linear import linear
from arbormax.heads.base import TreeHead

Loss = Callable[[Tensor, slice], Tensor]  # from (b, C) log-probabilities of the classes of some examples to their sum

_CELLS = 1 << 24  # numbers of a (B, R) matrix in memory at one time
_WEIGHTS = 1 << 25  # weights that are updated together; the solver has about 16 copies of them
_ITERATIONS = 60
_NEW_BIAS = 1.0  # precision of the biases of new rows
_LEAST_PULL = 1e-3  # of the examples on a row, below which it is not updated


@dataclass(frozen=True)
class RowPrior:
    """The precision of the prior of each weight: `base + counts * moments`."""

    base: float
    updates_bias: bool = True
    counts: Tensor | None = None  # (R,) number of old examples that determine each row; without them zero
    moments: Tensor | None = None  # (D,) mean square of each feature; by default that among the new examples


def update_rows(
    head: TreeHead, features_BD: Tensor, loss: Loss, prior: RowPrior, rows: np.ndarray | None = None
) -> None:
    """Update the rows of a head in place so that the loss of these examples plus the cost of the prior is minimal.

    `features_BD` is dense or sparse. Only `rows` are updated, by default all on which the examples pull.
    """
    if getattr(head, "adapter", 0):
        raise OptionError("the rows of a head with adapters cannot be updated alone", argument="adapter")
    state = _State(head, features_BD, loss)
    chosen = state.rows_to_update() if rows is None else torch.from_numpy(rows).to(head.device)
    if not len(chosen):
        return
    size = max(1, _WEIGHTS // max(1, len(state.columns_U)))
    changes = []
    for part in torch.split(chosen, size):
        changes.append((part, *state.solve(part, prior)))
        state.add(*changes[-1])
    _write(head, state.columns_U, changes)


class _State:
    """The examples and the scores that the rows give them."""

    def __init__(self, head: TreeHead, features_BD: Tensor, loss: Loss) -> None:
        self.head, self.loss = head, loss
        size = max(1, _CELLS // (head.num_rows(head.taxonomy) + head.taxonomy.num_leaves))
        self.places = [slice(start, start + size) for start in range(0, len(features_BD), size)]
        if features_BD.layout == torch.strided:
            self.columns_U = torch.arange(head.in_features, device=head.device)
            self.parts = [features_BD[place] for place in self.places]
        else:
            self.columns_U = torch.unique(features_BD.coalesce().indices()[1])
            self.parts = _compact(features_BD, self.columns_U, self.places)
        with torch.no_grad():
            whole = _split_rows(features_BD, self.places)
            self.scores = [head.row_scores(part.to(head.dtype)).float() for part in whole]

    def rows_to_update(self) -> Tensor:
        """The rows on which the examples pull, those with the strongest pull first."""
        pull_R = torch.zeros(self.scores[0].shape[1], device=self.head.device)
        for place, scores in zip(self.places, self.scores, strict=True):
            given = scores.clone().requires_grad_()
            self.loss(self.head.leaf_log_probs_from(given), place).backward()  # type: ignore[no-untyped-call]
            assert given.grad is not None
            pull_R = pull_R + given.grad.abs().sum(0)
        order = pull_R.argsort(descending=True, stable=True)
        return order[pull_R[order] > _LEAST_PULL]

    def solve(self, rows_A: Tensor, prior: RowPrior) -> tuple[Tensor, Tensor]:
        """The change of the weights (A, U) and of the biases (A,) of these rows."""
        precision_AU = self._precision(rows_A, prior)
        scale_AU, scale_A = precision_AU.rsqrt_(), self._bias_precision(rows_A, prior).rsqrt()
        # in these units the prior is the same in all directions, which the solver needs
        weight_AU = torch.zeros_like(scale_AU, requires_grad=True)
        bias_A = torch.zeros(len(rows_A), device=scale_AU.device, requires_grad=True)
        parameters = [weight_AU, bias_A] if self.head.bias is not None and prior.updates_bias else [weight_AU]
        count = sum(part.shape[0] for part in self.parts)
        solver = torch.optim.LBFGS(
            parameters,
            max_iter=_ITERATIONS,
            history_size=5,
            line_search_fn="strong_wolfe",
            tolerance_grad=1e-6,
            tolerance_change=1e-8,
        )

        def cost() -> float:
            solver.zero_grad()
            total = 0.0
            for place, part, scores in zip(self.places, self.parts, self.scores, strict=True):
                added = linear(part, weight_AU * scale_AU, bias_A * scale_A)
                changed = scores.index_add(1, rows_A, added)
                loss = self.loss(self.head.leaf_log_probs_from(changed), place) / count
                loss.backward()  # type: ignore[no-untyped-call]
                total += float(loss.detach())
            penalty = sum(each.square().sum() for each in parameters) / (2 * count)
            penalty.backward()  # type: ignore[union-attr]
            return total + float(penalty.detach())  # type: ignore[union-attr]

        solver.step(cost)  # type: ignore[no-untyped-call]
        with torch.no_grad():
            return weight_AU * scale_AU, bias_A * scale_A

    def _precision(self, rows_A: Tensor, prior: RowPrior) -> Tensor:
        shape = len(rows_A), len(self.columns_U)
        if prior.counts is None:
            return torch.full(shape, prior.base, device=rows_A.device)
        moments_U = self._moments() if prior.moments is None else prior.moments[self.columns_U]
        return prior.base + prior.counts[rows_A].float()[:, None] * moments_U.float()

    def _bias_precision(self, rows_A: Tensor, prior: RowPrior) -> Tensor:
        """(A,) for the biases; the share of a new class is taken to be known up to a factor of about e."""
        if prior.counts is None:
            return torch.full((len(rows_A),), prior.base, device=rows_A.device)
        return prior.base + prior.counts.float().clamp(min=_NEW_BIAS)[rows_A]

    def _moments(self) -> Tensor:
        """(U,) the mean square of each feature that occurs."""
        count = sum(part.shape[0] for part in self.parts)
        sums = [(part * part).sum(0) for part in self.parts]
        dense = [each if each.layout == torch.strided else each.to_dense() for each in sums]
        return torch.stack(dense).sum(0) / max(count, 1)

    @torch.no_grad()
    def add(self, rows_A: Tensor, weight_AU: Tensor, bias_A: Tensor) -> None:
        """Add a change of some rows to the scores."""
        for part, scores in zip(self.parts, self.scores, strict=True):
            scores.index_add_(1, rows_A, linear(part, weight_AU, bias_A))


def _split_rows(features_BD: Tensor, places: Sequence[slice]) -> list[Tensor]:
    if features_BD.layout == torch.strided:
        return [features_BD[place] for place in places]
    return _compact(features_BD, torch.arange(features_BD.shape[1], device=features_BD.device), places)


def _compact(features_BD: Tensor, columns_U: Tensor, places: Sequence[slice]) -> list[Tensor]:
    """The rows of a sparse tensor in parts, with these columns only."""
    stored = features_BD.coalesce()
    rows, columns = stored.indices()
    found = torch.searchsorted(columns_U, columns)
    bounds = [place.start for place in places] + [len(features_BD)]
    cuts = torch.searchsorted(rows, torch.tensor(bounds, device=rows.device)).tolist()
    return [
        torch.sparse_coo_tensor(
            torch.stack([rows[start:stop] - first, found[start:stop]]),
            stored.values()[start:stop],
            (last - first, len(columns_U)),
            is_coalesced=True,
            check_invariants=False,
        )
        for first, last, start, stop in zip(bounds, bounds[1:], cuts, cuts[1:], strict=False)
    ]


@torch.no_grad()
def _write(head: TreeHead, columns_U: Tensor, changes: Sequence[tuple[Tensor, Tensor, Tensor]]) -> None:
    """Add the changes of rows to the parameters of the head."""
    if head.bias is not None:
        for rows_A, _, bias_A in changes:
            head.bias[rows_A] += bias_A.to(head.bias)
    if head.sparse_weight is None:
        for rows_A, weight_AU, _ in changes:
            head.weight[rows_A[:, None], columns_U] += weight_AU.to(head.weight)
        return
    every = np.arange(head.num_rows(head.taxonomy))
    rows, columns, stored = head.sparse_weight.read(every)
    keys, values = [rows * head.in_features + columns], [stored]
    for rows_A, weight_AU, _ in changes:
        least = weight_AU.abs().max() * _LEAST_PULL  # changes that are nearly zero would fill the weight
        at, place = (weight_AU.abs() > least).nonzero().T
        keys.append((rows_A[at] * head.in_features + columns_U[place]).cpu().numpy())
        values.append(weight_AU[at, place].cpu().numpy())
    unique, where = np.unique(np.concatenate(keys), return_inverse=True)
    total = np.bincount(where, weights=np.concatenate(values), minlength=len(unique))
    head.sparse_weight.set_rows(unique // head.in_features, unique % head.in_features, total)
