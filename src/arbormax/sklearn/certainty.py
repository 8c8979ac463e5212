"""How sure a fitted classifier is: calibration, sets with a guaranteed coverage, and uncertainty.

N nodes, n items.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from arbormax.data.examples import Examples
from arbormax.errors import InputError
from arbormax.model import Model
from arbormax.model.predict import Decoding
from arbormax.sklearn.inputs import to_python
from arbormax.taxonomy import Taxonomy

if TYPE_CHECKING:
    from arbormax.uncertainty import CalibrationReport


class CertaintyMixin:
    """The methods of `TreeClassifier` that say how sure the classifier is."""

    if TYPE_CHECKING:
        model_: Model
        taxonomy_: Taxonomy
        calibration_: CalibrationReport | None  # of the last call of `calibrate`
        _evaluated: Any  # the last evaluation

    @abstractmethod
    def _check_pairs(self, X: Any, y: Any, reset: bool) -> tuple[Any, Any]:
        """The validated inputs and labels."""

    @abstractmethod
    def _find_known_nodes(self, raw: Any) -> np.ndarray:
        """The nodes of labels, which the fitted classifier has to know."""

    @abstractmethod
    def _ready(self, X: Any) -> Any:
        """The validated inputs of a fitted classifier."""

    @abstractmethod
    def _nodes(self, inputs: Any, decoding: Decoding) -> np.ndarray:
        """(n,) the predicted nodes."""

    def calibrate(
        self,
        X: Any,
        y: Any,
        method: str | None = "parent",
        *,
        coverage: bool | float | None = None,
        seed: int = 0,
    ) -> Self:
        """Calibrate the probabilities on data that the classifier was not trained on; sets `calibration_`.

        `method` is a name from `arbormax.uncertainty.CALIBRATIONS`: `"temperature"` (one for the tree), `"level"`,
        `"parent"` or `"vector"`; `"none"` or None keeps the probabilities. `coverage=True` also stores what
        `predict_sets` needs, from a random half of the data; a number such as 0.9 is the coverage that commands and the
        service use. By default (None), this is done with at least 100 items. An earlier calibration is replaced.
        """
        check_is_fitted(self)
        inputs, raw = self._check_pairs(X, y, reset=False)
        from arbormax.uncertainty.calibration import calibrate

        examples = Examples(inputs, self._find_known_nodes(raw))
        self.calibration_ = calibrate(self.model_, examples, method, coverage=coverage, seed=seed)
        self._evaluated = None
        return self

    def predict_sets(
        self,
        X: Any,
        alpha: float = 0.1,
        max_nodes: int = 1,
        *,
        groups: str | Mapping[Any, Any] | None = None,
        confidence: float | None = None,
        within: None = None,
        without: None = None,
    ) -> list[list[tuple[str, ...]]]:
        """For each item the paths of at most `max_nodes` nodes that contain the truth with probability 1 - alpha.

        The guarantee needs `calibrate(X, y, coverage=True)`, and items like those of the calibration. `groups` makes it
        hold within `"branch"`, the branches below the root, or within groups of classes, a mapping from labels to
        groups. With `confidence`, the coverage holds with this probability over the draw of the calibration data,
        otherwise on average. The path of the root is empty. The guarantee is one for all classes: `within` and
        `without` are errors.
        """
        from arbormax.uncertainty.conformal import predict_sets

        inputs, most = self._ready(X), to_python(max_nodes)
        self._check_covered(within, without)
        found = predict_sets(self.model_, inputs, alpha, most, groups=groups, confidence=confidence)
        return [[self.taxonomy_.path(node) for node in nodes] for nodes in found]

    def evaluate_sets(
        self,
        X: Any,
        y: Any,
        alpha: float = 0.1,
        max_nodes: int = 1,
        *,
        groups: str | Mapping[Any, Any] | None = None,
        confidence: float | None = None,
    ) -> dict[str, Any]:
        """The coverage of `predict_sets` on labelled data, and the mean numbers of classes and nodes of a set.

        With `groups`, also the coverage of each group.
        """
        from arbormax.uncertainty.conformal import SetRule, measure_coverage

        check_is_fitted(self)
        inputs, raw = self._check_pairs(X, y, reset=False)
        self._check_covered(None, None)
        rule = SetRule.of(self.model_, alpha, to_python(max_nodes), groups, confidence)
        return measure_coverage(self.model_, Examples(inputs, self._find_known_nodes(raw)), rule)

    def predict_uncertainty(self, X: Any) -> dict[str, np.ndarray]:
        """(n, N) float32 arrays with the uncertainty of every node of `taxonomy_`, of a classifier with `uncertainty`.

        `probability` and `std` are the mean and the standard deviation of P(node) over the draws of the network.
        `total`, `aleatoric` and `epistemic` are, in nats, the entropy of the question whether the item is at or below
        the node, the part that remains when the network is known, and the rest, which more training data could remove.
        `children_total`, `children_aleatoric` and `children_epistemic` are the same for the choice among the children
        of the node.
        """
        from arbormax.uncertainty import predict_uncertainty

        inputs = self._ready(X)
        return predict_uncertainty(self.model_, inputs)

    def predict_selective(
        self,
        X: Any,
        accuracy: float = 0.95,
        *,
        confidence: float | None = None,
        within: None = None,
        without: None = None,
    ) -> np.ndarray:
        """(n,) int64 node ids: the most probable class, or the lowest node above it that is sure enough.

        The truth is at or below the node for a share `accuracy` of items like those of `calibrate(X, y,
        coverage=True)`: on average over the draw of these, or with the probability `confidence`. `within` and `without`
        are errors, as in `predict_sets`.
        """
        from arbormax.uncertainty.conformal import climbing_threshold

        inputs = self._ready(X)
        self._check_covered(within, without)
        return self._nodes(inputs, Decoding("climb", {"tau": climbing_threshold(self.model_, accuracy, confidence)}))

    def _check_covered(self, within: Any, without: Any) -> None:
        from arbormax.uncertainty.conformal import has_guarantee, refuse_restriction

        refuse_restriction(within, without)
        if not has_guarantee(self.model_):
            raise InputError(
                "the classifier has no held-out scores; calibrate it with coverage on held-out examples: "
                "clf.calibrate(X, y, coverage=True)"
            )
