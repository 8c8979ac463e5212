"""Sets of few nodes that contain the truth with a guaranteed probability: split conformal prediction on the tree.

The sets of an item grow from its most probable class up to the root (`grow.GrowingSets`). The score of a labelled item
is the probability of the largest of its sets that does not contain the label, 0 if there is none. The threshold of a
coverage 1 - α is the ⌈(n + 1)(1 - α)⌉-th smallest score of n held-out items, and the predicted set is the first one
that is more probable than the threshold. It contains the label of a new item with a probability of at least 1 - α, over
the draw of the held-out items and the new one, whatever the model is. An inner node as label is covered if the set
contains all of its classes.

B batch, N nodes, n held-out items, W nodes of a set, G groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from arbormax.data.examples import Examples
from arbormax.errors import InputError, LabelError, OptionError
from arbormax.functional.graphs import past_only_children
from arbormax.model.calibration import Coverage, Scaling
from arbormax.model.draws import predicted_log_probs
from arbormax.model.network import Model, ModelInputs
from arbormax.model.predict import Decoding, bounded_batch
from arbormax.taxonomy import Taxonomy
from arbormax.uncertainty.grow import GrowingSets, LeafOrder

MOST_NODES = 5  # scores are stored for sets of 1 to this many nodes
_LISTED = 20  # groups that an error names
BRANCH = "branch"
Groups = str | Mapping[Any, Any] | None


def coverage_scores(
    model: Model, examples: Examples, progress: Any = None, *, sizes: int = MOST_NODES, scaling: Scaling | None = None
) -> np.ndarray:
    """(n, W) the score of each example for sets of at most 1 to W nodes, if the model were scaled in this way."""
    order, parts, start = LeafOrder(model.taxonomy), [], 0
    for p_BN in _probabilities(model, examples.inputs, scaling):
        nodes_B = examples.nodes[start : start + len(p_BN)]
        parts.append(np.stack([set_scores(p_BN, nodes_B, order, size + 1) for size in range(sizes)], 1))
        start += len(p_BN)
        if progress is not None:
            progress(len(p_BN))
    return np.concatenate(parts)


def set_scores(p_BN: np.ndarray, nodes_B: np.ndarray, order: LeafOrder, size: int) -> np.ndarray:
    """(B,) the probability of the largest set of each item that does not contain its true node, or 0."""
    scores = np.zeros(len(p_BN))
    sets, items = GrowingSets(p_BN, order, size), np.arange(len(p_BN))
    while len(items):
        outside = ~sets.contains(nodes_B[items])
        sets.keep(outside)
        items = items[outside]
        scores[items] = sets.mass
        sets.step()
    return scores


def threshold(scores: np.ndarray, alpha: float, confidence: float | None = None) -> float:
    """The threshold of coverage 1 - alpha for held-out scores.

    With `confidence`, the coverage of the threshold is at least 1 - alpha with this probability over the draw of the
    held-out items, not only on average.
    """
    count = len(scores)
    rank = _rank(count, alpha) if confidence is None else _sure_rank(count, alpha, confidence)
    if rank > count:
        needed = items_needed(alpha, confidence)
        raise InputError(
            f"a coverage of {1 - alpha:g} needs the scores of at least {needed:,} items, and {count:,} are held out; "
            "calibrate with more examples, or choose a lower coverage",
            argument="alpha",
        )
    return float(np.sort(scores)[rank - 1])


def _check_sizes(counts: Mapping[str, int], alpha: float, confidence: float | None) -> None:
    """Raise if some of the groups have too few held-out items, with all of these groups."""
    needed = items_needed(alpha, confidence)
    small = [f"{name!r} has {count:,}" for name, count in counts.items() if count < needed]
    if small:
        listed = ", ".join(small[:_LISTED]) + f" and {len(small) - _LISTED:,} more" * (len(small) > _LISTED)
        raise InputError(
            f"a coverage of {1 - alpha:g} needs at least {needed:,} held-out items in each group, but {listed}; give a "
            "mapping from labels to groups in which these groups are merged with others, calibrate with more examples, "
            "or choose a lower coverage",
            argument="groups",
        )


def items_needed(alpha: float, confidence: float | None = None) -> int:
    """The smallest number of held-out items for which a coverage of 1 - alpha can be guaranteed.

    >>> items_needed(0.1), items_needed(0.1, confidence=0.95)
    (9, 29)
    """
    if confidence is None:
        return math.ceil(1 / alpha - 1 - 1e-9)
    return math.ceil(math.log(1 - confidence) / math.log(1 - alpha) - 1e-9)


def predict_sets(
    model: Model,
    inputs: ModelInputs,
    alpha: float = 0.1,
    max_nodes: int = 1,
    *,
    groups: Groups = None,
    confidence: float | None = None,
) -> Iterator[list[int]]:
    """For each input at most `max_nodes` nodes that contain the truth with a probability of at least 1 - alpha.

    `groups` makes the guarantee hold within each group of classes: `"branch"` for the branches below the root, or a
    mapping from labels to groups, in which every class has a group of its own or that of an inner node above it. The
    groups are those of the truth, and a set is as large as the most demanding group needs. With `confidence`, the
    coverage holds with this probability over the draw of the held-out items instead of on average.
    """
    rule = SetRule.of(model, alpha, max_nodes, groups, confidence)
    return (nodes for p_BN in _probabilities(model, inputs) for nodes in rule.sets(p_BN))


@dataclass(frozen=True, eq=False)
class SetRule:
    """How far the sets grow: a threshold for each group of classes."""

    order: LeafOrder
    size: int
    thresholds: np.ndarray  # (G,)
    counts: np.ndarray  # (N, G) the number of classes of each group below each node
    names: Sequence[str] = ()  # of the groups

    @classmethod
    def of(
        cls,
        model: Model,
        alpha: float = 0.1,
        max_nodes: int = 1,
        groups: Groups = None,
        confidence: float | None = None,
    ) -> SetRule:
        """The rule of a calibrated model."""
        found, tax = held_out_scores(model), model.taxonomy
        check_alpha(alpha)
        if confidence is not None and not 0 < confidence < 1:
            raise OptionError(f"expected a number between 0 and 1, found {confidence!r}", argument="confidence")
        most = found.scores.shape[1]
        if isinstance(max_nodes, bool) or not isinstance(max_nodes, int) or not 1 <= max_nodes <= most:
            raise OptionError(f"expected a number from 1 to {most}, found {max_nodes!r}", argument="max_nodes")
        names, group_C = class_groups(tax, groups)
        counts = np.stack([tax.sum_up((group_C == group).astype(np.int64)) for group in range(len(names))], 1)
        group_n = _groups_of(counts[found.nodes])
        scores = found.scores[:, max_nodes - 1]
        parts = [scores[group_n == number] for number in range(len(names))]
        if len(names) > 1:
            _check_sizes({name: len(part) for name, part in zip(names, parts, strict=True)}, alpha, confidence)
        thresholds = [threshold(part, alpha, confidence) for part in parts]
        return cls(LeafOrder(tax), max_nodes, np.array(thresholds), counts, names)

    @classmethod
    def of_coverage(cls, model: Model, coverage: float, max_nodes: int | None = None, groups: Groups = None) -> SetRule:
        """The rule of a calibrated model for a coverage such as 0.9, instead of 1 - alpha."""
        try:
            return cls.of(model, 1 - check_coverage(coverage), 1 if max_nodes is None else max_nodes, groups)
        except InputError as error:
            argument = "coverage" if error.argument == "alpha" else error.argument
            raise InputError(error.message, argument=argument) from None

    def sums(self, p_BN: np.ndarray, true_B: np.ndarray) -> dict[str, np.ndarray]:
        """Counts of covered items and of the nodes and classes of the sets; the true node -1 is in no set."""
        nodes_BW = self.nodes(p_BN)
        is_covered = self.order.covers(nodes_BW, true_B)
        group_B = np.where(true_B >= 0, _groups_of(self.counts[true_B]), -1)
        in_group = group_B[:, None] == np.arange(len(self.thresholds))
        return {
            "items": np.asarray(len(p_BN)),
            "covered": is_covered.sum(),
            "classes": np.where(nodes_BW >= 0, self.order.taxonomy.leaf_counts[nodes_BW], 0).sum(),
            "nodes": (nodes_BW >= 0).sum(),
            "group_items": in_group.sum(0),
            "group_covered": (in_group & is_covered[:, None]).sum(0),
        }

    def measures(self, sums: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """The share of covered items, the mean numbers of classes and nodes of a set, and the coverage of groups."""
        items = int(sums["items"])
        found: dict[str, Any] = {"items": items, "max_nodes": self.size}
        for name, total in (("coverage", "covered"), ("classes", "classes"), ("nodes", "nodes")):
            found[name] = float(sums[total] / max(items, 1))
        if len(self.names) > 1:
            counts = zip(self.names, sums["group_items"].tolist(), sums["group_covered"].tolist(), strict=True)
            found["groups"] = {
                name: {"items": n, "coverage": covered / n if n else None} for name, n, covered in counts
            }
        return found

    def sets(self, p_BN: np.ndarray) -> Iterator[list[int]]:
        """The set of each item, from (B, N) probabilities."""
        nodes_BW = self.nodes(p_BN)
        return (sorted(node for node in row if node >= 0) for row in nodes_BW.tolist())

    def nodes(self, p_BN: np.ndarray) -> np.ndarray:
        """(B, W) the nodes of the sets, -1 for none; an only child stands for its parent."""
        sets, items = GrowingSets(p_BN, self.order, self.size), np.arange(len(p_BN))
        history: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        needed = np.full((len(p_BN), len(self.thresholds)), -1, np.int64)  # classes of each group that must be inside
        while True:
            inside = np.where(sets.nodes[:, :, None] >= 0, self.counts[sets.nodes], 0).sum(1)  # (items, G)
            history.append((items, sets.nodes.copy(), inside))
            is_open = (sets.mass[:, None] <= self.thresholds) & ~sets.is_root[:, None]
            needed[items] = np.where((needed[items] < 0) & ~is_open, inside, needed[items])
            left = is_open.any(1)
            if not left.any():
                break
            sets.keep(left)
            items = items[left]
            sets.step()
        result = np.full((len(p_BN), self.size), -1, np.int64)
        is_found = np.zeros(len(p_BN), bool)
        for rows, nodes, inside in history:
            fits = (inside >= needed[rows]).all(1) & ~is_found[rows]
            result[rows[fits]], is_found[rows[fits]] = nodes[fits], True
        deepest = past_only_children(self.order.taxonomy, torch.device("cpu")).numpy()
        return np.where(result < 0, -1, deepest[result])


def _groups_of(counts_BG: np.ndarray) -> np.ndarray:
    """(B,) the group of nodes with so many classes of each group, or -1 for classes of several groups."""
    return np.where((counts_BG > 0).sum(1) == 1, counts_BG.argmax(1), -1)


def class_groups(tax: Taxonomy, groups: Groups) -> tuple[list[str], np.ndarray]:
    """The names of the groups and the (C,) group of each class."""
    if groups is None:
        return ["all"], np.zeros(tax.num_leaves, np.int64)
    if isinstance(groups, str):
        if groups != BRANCH:
            raise OptionError(
                f"expected {BRANCH!r} or a mapping from labels to groups, found {groups!r}", argument="groups"
            )
        branch_C = tax.ancestor_at(tax.leaves, 1)
        return [tax.names[node] for node in tax.children(0).tolist()], branch_C - 1
    try:
        nodes = tax.find_many(list(groups))
    except LabelError as error:
        raise LabelError(error.message, argument="groups") from None
    names = list(dict.fromkeys(str(group) for group in groups.values()))
    number_N = np.full(tax.num_nodes, -1, np.int64)
    number_N[nodes] = [names.index(str(group)) for group in groups.values()]
    for level in range(1, tax.depth + 1):  # a node without a group has its parent's
        span = np.arange(tax.level_start[level], tax.level_start[level + 1])
        number_N[span] = np.where(number_N[span] < 0, number_N[tax.parent[span]], number_N[span])
    group_C = number_N[tax.leaves]
    if (without := np.flatnonzero(group_C < 0)).size:
        listed = ", ".join(repr(tax.classes[c]) for c in without[:5].tolist())
        more = ", …" * (len(without) > 5)
        raise InputError(f"{len(without):,} classes have no group: {listed}{more}; add them", argument="groups")
    return names, group_C


def held_out_scores(model: Model) -> Coverage:
    """The held-out scores of a model, or an error that says how to get them."""
    if model.coverage is None or model.coverage.is_estimate:
        estimate = "" if model.coverage is None else ": its training has only estimated a coverage, on its own examples"
        raise InputError(f"the model has no held-out scores{estimate}; calibrate it with coverage on held-out examples")
    return model.coverage


def has_guarantee(model: Model) -> bool:
    """Whether a model has scores of items that nothing was fitted on."""
    return model.coverage is not None and not model.coverage.is_estimate


def coverage_decoding(
    model: Model, coverage: float, top_k: int = 0, max_nodes: int | None = None, groups: Groups = None
) -> Decoding:
    """The lowest node that contains the truth with this probability, and a set if `max_nodes` or `groups` is given."""
    tau = climbing_threshold(model, coverage)
    has_sets = max_nodes is not None or groups is not None
    sets = SetRule.of_coverage(model, coverage, max_nodes, groups) if has_sets else None
    return Decoding("climb", {"tau": tau}, top_k, sets=sets, coverage=coverage)


def climbing_threshold(model: Model, coverage: float, confidence: float | None = None) -> float:
    """The `tau` of the decoder `climb` with which the predicted node contains the truth with this probability."""
    alpha, scores = 1 - check_coverage(coverage), held_out_scores(model).scores[:, 0]
    try:
        return min(1.0, threshold(scores, alpha, confidence))
    except InputError as error:
        raise InputError(error.message, argument="coverage") from None


def coverage_table(model: Model) -> dict[str, Any] | None:
    """The coverages, in steps of a hundredth, that the held-out items of a model suffice for; None if it has none.

    `thresholds` has the coverage and the `tau` of the decoder `climb` for each, `target` the default coverage.
    `guaranteed` is false if the coverages are estimates. `most_in_branches` is the highest coverage that can be
    guaranteed within each branch below the root, if there is one.
    """
    if model.coverage is None:
        return None
    scores, tax = model.coverage.scores[:, 0], model.taxonomy
    possible = [step / 100 for step in range(50, 100)]
    enough = [coverage for coverage in possible if items_needed(1 - coverage) <= len(scores)]
    depth_n = tax.node_depth[model.coverage.nodes]
    branch_n = tax.ancestor_at(model.coverage.nodes[depth_n > 0], 1) - 1
    fewest = int(np.bincount(branch_n, minlength=len(tax.children(0))).min())
    in_branches = [coverage for coverage in possible if items_needed(1 - coverage) <= fewest]
    return {
        "items": len(scores),
        "target": model.coverage.target,
        "guaranteed": not model.coverage.is_estimate,
        "thresholds": [(coverage, min(1.0, threshold(scores, 1 - coverage))) for coverage in enough],
        "most_in_branches": max(in_branches, default=None) if has_guarantee(model) else None,
    }


def measure_coverage(model: Model, examples: Examples, rule: SetRule) -> dict[str, Any]:
    """The share of covered examples, and the mean number of classes and nodes of their sets; also for each group."""
    start, totals = 0, {"items": np.zeros(())}
    for p_BN in _probabilities(model, examples.inputs):
        found = rule.sums(p_BN, examples.nodes[start : start + len(p_BN)])
        totals = {name: totals.get(name, 0) + value for name, value in found.items()}
        start += len(p_BN)
    return rule.measures(totals)


def refuse_restriction(within: Any, without: Any) -> None:
    """Raise if the classes are restricted: the held-out scores are those of predictions among all classes."""
    for argument, nodes in (("within", within), ("without", without)):
        if nodes is not None:
            raise OptionError(
                "a guaranteed coverage cannot be combined with a restriction of the classes; predict without it, and "
                "leave out the nodes of a set that are not allowed: the coverage holds if the truth is always allowed",
                argument=argument,
            )


def check_alpha(alpha: Any) -> float:
    """A number between 0 and 1."""
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not 0 < alpha < 1:
        raise OptionError(f"expected a number between 0 and 1, such as 0.1, found {alpha!r}", argument="alpha")
    return float(alpha)


def check_coverage(coverage: Any) -> float:
    """A number between 0 and 1."""
    if isinstance(coverage, bool) or not isinstance(coverage, (int, float)) or not 0 < coverage < 1:
        raise OptionError(f"expected a number between 0 and 1, such as 0.9, found {coverage!r}", argument="coverage")
    return float(coverage)


def _probabilities(model: Model, inputs: ModelInputs, scaling: Scaling | None = None) -> Iterator[np.ndarray]:
    """(B, N) float64 probabilities, a batch at a time."""
    for logp_BN in predicted_log_probs(model, inputs, bounded_batch(model.taxonomy), scaling):
        yield logp_BN.to(torch.float64).exp().numpy()


def _rank(count: int, alpha: float) -> int:
    return max(1, math.ceil((count + 1) * (1 - alpha) - 1e-9))


def _sure_rank(count: int, alpha: float, confidence: float) -> int:
    """The smallest rank whose coverage, a beta variable, is at least 1 - alpha with this probability."""
    ranks = np.arange(count + 1)
    log_terms = _log_choices(count, ranks) + ranks * math.log1p(-alpha) + (count - ranks) * math.log(alpha)
    below = np.cumsum(np.exp(log_terms))  # P(at most r of n items are at or below the true quantile)
    return int(np.searchsorted(below, confidence)) + 1


def _log_choices(count: int, ranks: Sequence[int] | np.ndarray) -> np.ndarray:
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, count + 1)))])
    return np.asarray(logs[count] - logs[ranks] - logs[count - np.asarray(ranks)])
