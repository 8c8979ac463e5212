"""Batches whose order depends only on seed, epoch and position, so that an interrupted run can be resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from arbormax.data.ragged import Ragged
from arbormax.errors import InputError, OptionError

_POOL = 200  # batches that are sorted by length together: little padding, and a different mix in every epoch

Inputs = tuple[Tensor, ...]


class Batches:
    """Epochs of batches over rows and their targets; each iteration is one epoch of (inputs, target).

    With `sort`, items of similar length share a batch. Device `rank` of `ranks` takes every `ranks`-th batch, with the
    same number of batches for each. `state_dict` returns the position and `load_state_dict` restores it.

    >>> rows = Ragged.from_lists([[1], [2, 3], [4]])
    >>> batches = Batches(rows, np.array([0, 1, 2]), lambda rows: (torch.from_numpy(rows.pad(0)),), size=2)
    >>> [target.tolist() for _, target in batches]
    [[0, 1], [2]]
    """

    def __init__(
        self,
        rows: Ragged,
        targets: np.ndarray,
        collate: Callable[[Ragged], Inputs],
        size: int,
        *,
        shuffle: bool = False,
        sort: bool = False,
        seed: int = 0,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        if size < 1:
            raise OptionError(f"expected at least 1, found {size}", argument="batch_size")
        if len(rows) != len(targets):
            raise InputError(f"expected one target per row, found {len(rows)} rows and {len(targets)} targets")
        self.rows, self.targets, self.collate, self.size = rows, targets, collate, size
        self.shuffle, self.sort, self.seed = shuffle, sort, seed
        self.rank, self.ranks = rank, ranks
        self._epoch = self._position = 0

    def __len__(self) -> int:
        batches = -(-len(self.rows) // self.size)
        return -(-batches // self.ranks) if self.shuffle else len(range(self.rank, batches, self.ranks))

    def __iter__(self) -> Iterator[tuple[Inputs, Tensor]]:
        if self._position >= len(self):
            self.set_epoch(self._epoch + 1)
        plan = self.plan(self._epoch)
        while self._position < len(plan):
            items = plan[self._position]
            self._position += 1
            yield self.batch(items)

    def batch(self, items: np.ndarray) -> tuple[Inputs, Tensor]:
        """The tensors of these items."""
        return self.collate(self.rows.take(items)), torch.from_numpy(self.targets[items])

    def set_epoch(self, epoch: int) -> None:
        """Move to the start of this epoch."""
        self._epoch, self._position = epoch, 0

    def plan(self, epoch: int) -> list[np.ndarray]:
        """The items of each batch of this epoch, for this rank."""
        draw = np.random.default_rng((self.seed, epoch)) if self.shuffle else None
        order = draw.permutation(len(self.rows)) if draw else np.arange(len(self.rows))
        if self.sort:
            pool = _POOL * self.size if self.shuffle else len(order)
            pool_of = np.arange(len(order)) // max(pool, 1)
            order = order[np.lexsort((self.rows.lengths[order], pool_of))]
        batches = [order[start : start + self.size] for start in range(0, len(order), self.size)]
        if draw and self.sort:
            batches = [batches[i] for i in draw.permutation(len(batches))]
        if self.shuffle:  # all ranks of a training take the same number of steps
            batches = (batches * self.ranks)[: len(self) * self.ranks]
        return batches[self.rank :: self.ranks]

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self._epoch, "position": self._position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._epoch, self._position = int(state["epoch"]), int(state["position"])


class Shares(Batches):
    """Part `share` of `shares` of every batch, as (inputs, target, weight).

    The mean over the parts of `weight` times the mean of a part is the mean of the batch. If a batch has fewer items
    than there are parts, an empty part is its first item with weight 0.

    >>> rows = Ragged.from_lists([[1], [2], [3], [4]])
    >>> options = {"collate": lambda rows: (torch.from_numpy(rows.pad(0)),), "size": 3, "shares": 2}
    >>> [[(target.tolist(), weight) for _, target, weight in Shares(rows, np.arange(4), share=share, **options)]
    ...  for share in range(2)]  # doctest: +ELLIPSIS
    [[([0, 2], 1.33...), ([3], 2.0)], [([1], 0.66...), ([3], 0.0)]]
    """

    def __init__(self, *args: Any, share: int, shares: int, **options: Any) -> None:
        super().__init__(*args, **options)
        self.share, self.shares = share, shares

    def batch(self, items: np.ndarray) -> tuple[Inputs, Tensor, float]:  # type: ignore[override]
        # every `shares`-th item, since a batch may be sorted by length
        mine = items[self.share :: self.shares]
        inputs, target = super().batch(mine if len(mine) else items[:1])
        return inputs, target, len(mine) * self.shares / len(items)
