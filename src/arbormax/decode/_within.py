"""Predictions restricted to a part of the classes.

B items, N nodes, C classes.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from arbormax.errors import ArbormaxError, InputError, LabelError, OptionError
from arbormax.functional.graphs import refuse_graph
from arbormax.functional.index import tree_index
from arbormax.functional.probabilities import flat_node_log_probs
from arbormax.functional.threshold import check_node_log_probs
from arbormax.taxonomy import Taxonomy

Nodes = Any  # nodes or a mask, for all items or for each
_CACHED = 1024  # different restrictions of single items that are kept


def within(logp: Tensor, tax: Taxonomy, nodes: Nodes) -> Tensor:
    """Return the log-probabilities if the class is known to be at or below one of these nodes.

    The result is exact: P(node | the class is allowed), 0 for the root. If all allowed classes have probability zero,
    they become equally probable.

    Args:
        logp: (..., N) node log-probabilities.
        tax: the taxonomy.
        nodes: node ids, labels, '/'-paths or tuples of names, one or several; or a Boolean mask of classes (C,) or
            nodes (N,). For a restriction of each item, a list of such lists (None: all classes), or a mask with one row
            for each item.

    Returns:
        (..., N) node log-probabilities, without gradients.

    >>> from arbormax import Taxonomy
    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})  # nodes: 0 root, 1 a, 2 b, 3 x, 4 y, 5 z
    >>> logp = torch.tensor([[1.0, 0.6, 0.4, 0.3, 0.3, 0.4]]).log()
    >>> within(logp, tax, ["a"]).exp()
    tensor([[1.0000, 1.0000, 0.0000, 0.5000, 0.5000, 0.0000]])
    """
    return _restricted(logp, tax, Restriction(tax, within=nodes))


def without(logp: Tensor, tax: Taxonomy, nodes: Nodes) -> Tensor:
    """Return the log-probabilities if the class is known not to be at or below one of these nodes.

    The arguments and the result are those of `within`.
    """
    return _restricted(logp, tax, Restriction(tax, without=nodes))


class Restriction:
    """The classes that may be predicted: `within` some nodes and `without` others, for all items or for each.

    Items are numbered in the order in which they are predicted, so that a restriction can be applied to one batch
    after the other.
    """

    def __init__(self, tax: Taxonomy, within: Nodes = None, without: Nodes = None) -> None:
        if within is not None or without is not None:
            refuse_graph(tax, "a restriction of the classes")
        self.taxonomy = tax
        self._sides = [
            _Side(tax, nodes, argument, keep)
            for nodes, argument, keep in ((within, "within", True), (without, "without", False))
            if nodes is not None
        ]
        counts = {side.count for side in self._sides if side.count is not None}
        if len(counts) > 1:
            raise OptionError(f"within has {min(counts)} or {max(counts)} items, without the other number")
        self.count = counts.pop() if counts else None  # the number of items, None if it is the same for all
        if self.count is None and self._sides:
            self._check(self.allowed(0, 1))

    def allowed(self, start: int, items: int) -> Tensor:
        """Return the (items, C) or (1, C) mask of the classes that the items from `start` on may have."""
        if self.count is not None and start + items > self.count:
            raise InputError(
                f"expected a restriction for each item, found {self.count} for at least {start + items} items",
                argument=self._sides[0].argument,
            )
        mask = torch.ones(1, self.taxonomy.num_leaves, dtype=torch.bool)
        for side in self._sides:
            mask = mask & side.mask(start, items)
        return mask

    def apply(self, logp: Tensor, start: int = 0) -> Tensor:
        """Return the (B, N) log-probabilities of the items from `start` on, restricted and normalised."""
        if not self._sides:
            return logp
        allowed = self.allowed(start, len(logp))
        if self.count is not None:
            self._check(allowed, start)
        return renormalise(logp, self.taxonomy, allowed.to(logp.device))

    def finish(self, items: int) -> None:
        """Raise if there are more restrictions than items."""
        if self.count is not None and self.count != items:
            raise InputError(
                f"expected a restriction for each of {items} items, found {self.count}",
                argument=self._sides[0].argument,
            )

    def _check(self, allowed: Tensor, start: int = 0) -> None:
        empty = (~allowed.any(-1)).nonzero()[:, 0].tolist()
        if empty:
            names = [side.argument for side in self._sides]
            which = f"of item {start + empty[0]} " if self.count is not None else ""
            raise OptionError(
                f"the restriction {which}leaves no class: allow at least one of the {self.taxonomy.num_leaves:,} "
                f"classes{' that is not excluded' if len(names) > 1 else ''}",
                argument=names[0],
            )


class _Side:
    """One of `within` and `without`."""

    def __init__(self, tax: Taxonomy, nodes: Nodes, argument: str, keep: bool) -> None:
        self.taxonomy, self.argument, self._keep = tax, argument, keep
        self.count: int | None = None
        self._seen: dict[Hashable, Tensor] = {}
        self._rows: Any = None
        if isinstance(nodes, (Tensor, np.ndarray)) and str(nodes.dtype).removeprefix("torch.") == "bool":
            mask = self._from_mask(torch.as_tensor(nodes).cpu())
            self._all = mask.view(1, -1) if mask.ndim == 1 else None
            self._rows, self.count = (None, None) if mask.ndim == 1 else (mask, len(mask))
            return
        if isinstance(nodes, (Tensor, np.ndarray)):
            nodes = nodes.tolist()
        several = self._listed(nodes)
        self._all = None
        if any(item is None or isinstance(item, (list, set, frozenset)) for item in several):
            self._rows, self.count = several, len(several)
        else:
            self._all = self._from_nodes(several).view(1, -1)

    def mask(self, start: int, items: int) -> Tensor:
        """Return the (1, C) or (items, C) mask of the allowed classes."""
        if self._all is not None:
            return self._all
        rows = self._rows[start : start + items]
        if isinstance(rows, Tensor):
            return rows
        if not rows:
            return torch.ones(0, self.taxonomy.num_leaves, dtype=torch.bool)
        return torch.stack([self._row(row, start + place) for place, row in enumerate(rows)])

    def _row(self, nodes: Nodes, item: int) -> Tensor:
        if nodes is None:
            return torch.ones(self.taxonomy.num_leaves, dtype=torch.bool)
        several = self._listed(nodes)
        key = tuple(several)
        if (known := self._seen.get(key)) is not None:
            return known
        try:
            mask = self._from_nodes(several)
        except ArbormaxError as error:
            raise InputError(f"item {item}: {error.message}", argument=self.argument) from error
        if len(self._seen) < _CACHED:
            self._seen[key] = mask
        return mask

    def _from_nodes(self, nodes: list[Any]) -> Tensor:
        if not nodes and self._keep:
            raise OptionError("expected at least one node, found none; leave it out to allow all", argument="within")
        tax = self.taxonomy
        chosen = np.zeros(tax.num_nodes, np.bool_)
        problems: list[str] = []
        for node in nodes:
            if isinstance(node, (bool, np.bool_)) or not isinstance(node, (str, tuple, int, np.integer)):
                raise OptionError(
                    f"expected node ids, labels or tuples of names, found {node!r}; a mask is an array of "
                    f"{tax.num_leaves} or {tax.num_nodes} Booleans",
                    argument=self.argument,
                )
            if isinstance(node, (str, tuple)):
                try:
                    chosen[tax.find(node)] = True
                except LabelError as error:
                    problems += error.problems
            elif 0 <= node < tax.num_nodes:
                chosen[node] = True
            else:
                problems.append(f"expected a node id from 0 to {tax.num_nodes - 1:,}, found {node}")
        if problems:
            raise LabelError("unknown nodes" if len(problems) > 1 else problems[0], problems, argument=self.argument)
        return self._classes(torch.from_numpy(chosen))

    def _from_mask(self, mask: Tensor) -> Tensor:
        c, n = self.taxonomy.num_leaves, self.taxonomy.num_nodes
        if mask.ndim not in (1, 2) or mask.shape[-1] not in (c, n):
            raise InputError(
                f"expected a mask of {c} classes or {n} nodes, or one row of them for each item, found the shape "
                f"{tuple(mask.shape)}",
                argument=self.argument,
            )
        if mask.shape[-1] == c:
            return mask if self._keep else ~mask
        return self._classes(mask)

    def _classes(self, chosen: Tensor) -> Tensor:
        """Return the (..., C) allowed classes from the (..., N) chosen nodes."""
        index = tree_index(self.taxonomy, chosen.device)
        levels = list(torch.split(chosen, [1, *index.levels], dim=-1))
        lifts = (torch.zeros(index.levels[0], dtype=torch.int64), *index.lifts)
        for depth, lift in enumerate(lifts, start=1):
            levels[depth] = levels[depth] | levels[depth - 1][..., lift]
        below = torch.cat(levels, dim=-1)[..., index.leaves]
        return below if self._keep else ~below

    def _listed(self, nodes: Nodes) -> list[Any]:
        """Return several nodes as a list; a string, a number or a tuple of names is one node."""
        is_path = isinstance(nodes, tuple) and nodes and all(isinstance(name, str) for name in nodes)
        if is_path or isinstance(nodes, (str, int, np.integer)):
            return [nodes]
        try:
            return list(nodes)
        except TypeError:
            raise OptionError(
                f"expected nodes or a mask, found {type(nodes).__name__}", argument=self.argument
            ) from None


def renormalise(logp: Tensor, tax: Taxonomy, allowed: Tensor) -> Tensor:
    """Return (..., N) node log-probabilities given that the class is one of the allowed, a mask (..., C)."""
    check_node_log_probs(logp, tax)
    leaves_C = tree_index(tax, logp.device).leaves
    leaf_logp = logp.detach()[..., leaves_C].masked_fill(~allowed, -torch.inf)
    is_impossible = (leaf_logp == -torch.inf).all(-1, keepdim=True)
    return flat_node_log_probs(torch.where(is_impossible & allowed, 0.0, leaf_logp), tax)


def _restricted(logp: Tensor, tax: Taxonomy, restriction: Restriction) -> Tensor:
    check_node_log_probs(logp, tax)
    flat = restriction.apply(logp.reshape(-1, tax.num_nodes))
    restriction.finish(len(flat))
    return flat.view(logp.shape)
