"""The posterior at the end of a training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from arbormax.data.examples import Examples
from arbormax.heads import HEADS
from arbormax.model.draws import check_tree
from arbormax.model.posterior import UNCERTAINTIES, Trained
from arbormax.model.settings import TrainConfig
from arbormax.taxonomy import Taxonomy


class PosteriorFit:
    """Chooses the options of the method in the settings with the held-out examples, and fits it to the last model.

    Without a method it does nothing.
    """

    def __init__(self, config: TrainConfig, taxonomy: Taxonomy) -> None:
        self._kind = None if config.uncertainty is None else UNCERTAINTIES[config.uncertainty]
        if self._kind is not None:
            check_tree(HEADS[config.head](1, taxonomy))
            self._options, self._is_chosen = config.posterior_options, False

    def choose(self, trained: Trained, held_out: Examples | None) -> None:
        """Choose options; the model was trained without the held-out examples."""
        if self._kind is not None and not self._is_chosen:
            self._options, self._is_chosen = self._kind.choose(trained, held_out, self._options), True

    @contextmanager
    def attached(self, trained: Trained) -> Iterator[None]:
        """Inside the block, the model has its posterior."""
        self.add(trained)
        try:
            yield
        finally:
            trained.model.posterior = None

    def add(self, trained: Trained) -> None:
        """Give a trained model its posterior."""
        if self._kind is not None:
            self.choose(trained, None)
            trained.model.posterior = self._kind.fit(trained, self._options)
