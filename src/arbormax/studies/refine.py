"""Test edits of a tree that its confusions suggest, on examples that did not suggest them.

n examples, C classes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from arbormax._files import to_plain
from arbormax.data.examples import Examples
from arbormax.data.folds import hold_out
from arbormax.errors import OptionError
from arbormax.functional.graphs import refuse_graph
from arbormax.metrics.bootstrap import CLASS_MEASURES, bootstrap, check_options
from arbormax.model.settings import TrainConfig
from arbormax.studies.crossval import Progress, crossval, ignore_progress, train_and_measure
from arbormax.studies.proposals import Proposal, apply_edits, join, propose
from arbormax.taxonomy import Taxonomy
from arbormax.taxonomy.edits.patch import make_patch
from arbormax.training.fit import check_examples
from arbormax.training.hardware import ONE_DEVICE, Hardware

MOST_CLASSES = 10_000


@dataclass(frozen=True, eq=False)
class Refinement:
    """The tested proposals, and those of them that help."""

    taxonomy: Taxonomy
    measure: str
    level: float
    tested: tuple[Proposal, ...]  # the largest gain first
    together: Proposal | None  # all that help, tested together; None if none does
    found_on: int  # examples that suggested the proposals
    tested_on: int  # examples that tested them

    @property
    def helpful(self) -> tuple[Proposal, ...]:
        """The proposals whose interval is above zero."""
        return tuple(proposal for proposal in self.tested if proposal.helps)

    @property
    def patch(self) -> dict[str, Any]:
        """The edits of all proposals that help, for `TaxonomyEdits.apply`."""
        edits = () if self.together is None else self.together.edits
        return make_patch(self.taxonomy, edits)

    def to_dict(self) -> dict[str, Any]:
        """All fields, ready for JSON."""
        fields = {name: value for name, value in vars(self).items() if name not in ("taxonomy", "tested", "together")}
        together = None if self.together is None else asdict(self.together)
        tested = [{**asdict(proposal), "helps": proposal.helps} for proposal in self.tested]
        plain: dict[str, Any] = to_plain({**fields, "tested": tested, "together": together, "patch": self.patch})
        return plain


def refine(
    config: TrainConfig,
    taxonomy: Taxonomy,
    examples: Examples,
    *,
    proposals: int = 10,
    folds: int = 3,
    measure: str = "macro_f1",
    resamples: int = 2000,
    level: float = 0.95,
    hardware: Hardware = ONE_DEVICE,
    progress: Progress | None = None,
) -> Refinement:
    """Propose moves, merges and splits from the confusions of one half of the examples, and test them on the other.

    Cross-validation within the first half gives the confusions. For each of the proposals with the most confusions, a
    model is trained on the first half with the edited tree, and its measure on the second half is compared with that
    of the tree as it is. Examples with labels of inner nodes are left out.
    """
    _check(taxonomy, proposals, measure, resamples, level)
    check_examples(examples, taxonomy, "train")
    report = progress or ignore_progress
    config = config.resolved(len(examples))
    find, test = hold_out(examples.take(np.flatnonzero(taxonomy.class_of[examples.nodes] >= 0)), 0.5, config.seed)
    assert test is not None
    report("confusions", 0, proposals + 2)
    candidates = propose(taxonomy, _confusions(config, taxonomy, find, folds, hardware))[:proposals]
    tester = _Tester(config, taxonomy, find, test, {"resamples": resamples, "level": level}, measure, hardware)
    tested = []
    for number, proposal in enumerate(candidates, start=1):
        report(proposal.title, number, len(candidates) + 2)
        tested.append(tester.test(proposal))
    tested.sort(key=lambda proposal: -proposal.gain)
    helpful = [proposal for proposal in tested if proposal.helps]
    report("all that help", len(candidates) + 1, len(candidates) + 2)
    together = tester.test(join(taxonomy, helpful)) if helpful else None
    return Refinement(taxonomy, measure, level, tuple(tested), together, len(find), len(test))


@dataclass(eq=False)
class _Tester:
    """Trains on the examples that suggested the proposals, and measures on the others."""

    config: TrainConfig
    taxonomy: Taxonomy
    train_examples: Examples
    test_examples: Examples
    interval: dict[str, Any]  # the options of the bootstrap
    measure: str
    hardware: Hardware

    @cached_property
    def before(self) -> np.ndarray:
        """(n,) the predicted leaves with the tree as it is."""
        return self.predict(self.taxonomy, np.arange(self.taxonomy.num_leaves))

    def predict(self, tax: Taxonomy, class_map: np.ndarray) -> np.ndarray:
        """(n,) the predicted leaf of each test example, in the tree before the edits."""
        old = self.taxonomy
        train, test = (
            Examples(part.inputs, tax.leaves[class_map[old.class_of[part.nodes]]])
            for part in (self.train_examples, self.test_examples)
        )
        predicted = train_and_measure(self.config, tax, train, test, hardware=self.hardware).predicted
        nodes: np.ndarray = old.leaves[np.argsort(class_map)[tax.class_of[predicted]]]
        return nodes

    def test(self, proposal: Proposal) -> Proposal:
        """The proposal with its gain."""
        edited = apply_edits(self.taxonomy, proposal.edits)
        sides = {"before": self.before, "after": self.predict(edited.taxonomy, edited.class_map)}
        options = {"measures": (self.measure,), "baseline": "before", **self.interval}
        differences = bootstrap(self.test_examples.nodes, sides, self.taxonomy, **options).differences
        found = differences["after"][self.measure]
        return replace(proposal, gain=found.mean, low=found.low, high=found.high)


def _check(taxonomy: Taxonomy, proposals: int, measure: str, resamples: int, level: float) -> None:
    refuse_graph(taxonomy, "refinement")
    if proposals < 1:
        raise OptionError(f"expected at least 1, found {proposals}", argument="proposals")
    if measure not in CLASS_MEASURES:
        expected = ", ".join(CLASS_MEASURES)
        raise OptionError(f"expected a measure of classes: {expected}; found {measure!r}", argument="measure")
    check_options((measure,), resamples, level)
    if taxonomy.num_leaves > MOST_CLASSES:
        raise OptionError(
            f"the confusions of all pairs are counted, of at most {MOST_CLASSES:,} classes; "
            f"found {taxonomy.num_leaves:,}",
            argument="taxonomy",
        )


def _confusions(
    config: TrainConfig, taxonomy: Taxonomy, examples: Examples, folds: int, hardware: Hardware
) -> np.ndarray:
    """(C, C) how often each class was predicted for each class, by models that were not trained on the example."""
    found = crossval(config, taxonomy, examples, folds, hardware=hardware)
    seen = found.predicted >= 0
    true_n, predicted_n = (taxonomy.class_of[nodes[seen]] for nodes in (examples.nodes, found.predicted))
    counts = np.zeros((taxonomy.num_leaves, taxonomy.num_leaves), np.int64)
    np.add.at(counts, (true_n, predicted_n), 1)
    return counts
