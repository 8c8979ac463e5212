"""Deep ensembles: networks of several seeds, or snapshots of one (Lakshminarayanan et al. 2017; Huang et al. 2017).

S members, B batch, D features, N nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import torch
from pydantic import Field
from torch import Tensor

from arbormax.model.draws import raw_head
from arbormax.model.network import Model, evaluating
from arbormax.model.posterior import Posterior, PosteriorOptions, Trained
from arbormax.uncertainty.copies import copy_model


class EnsembleOptions(PosteriorOptions):
    members: int = Field(5, ge=2, le=1000, description="number of networks, the trained model included")
    snapshots: bool = Field(
        False,
        description="whether the further networks are snapshots: each continues the training of the one before, with a "
        "learning rate that starts high again",
    )
    cycle: float = Field(0.5, gt=0, le=1, description="length of the training of a snapshot, as a share of the epochs")


class Ensemble(Posterior):
    """The model and further ones, which were trained with other seeds or are snapshots of a longer training."""

    Options = EnsembleOptions
    trains = True  # the convex solver finds the same weights with every seed
    options: EnsembleOptions

    def __init__(self, options: EnsembleOptions, others: Sequence[Model]) -> None:
        super().__init__(options)
        self.others = tuple(others)

    @classmethod
    def fit(cls, trained: Trained, options: Any) -> Self:
        config, others = trained.model.config, list[Model]()
        assert config.epochs is not None
        assert trained.again is not None
        last = trained.model
        for number in range(1, options.members):
            seed = (config.seed + number * 1_000_003) % 2**32
            if options.snapshots:
                last = trained.again(seed, start=last, epochs=max(1, round(options.cycle * config.epochs)))
            else:
                last = trained.again(seed)
            others.append(last)
        return cls(options, others)

    @property
    def draws(self) -> int:
        return 1 + len(self.others)

    def draw(self, model: Model, rows: Any, batch_size: int) -> Iterator[Tensor]:
        members = [model, *(member.to(model.device) for member in self.others)]
        passes = [member.row_features(rows, batch_size) for member in members]
        for features in zip(*passes, strict=True):
            parts = []
            for member, h_BD in zip(members, features, strict=True):
                head = raw_head(member)
                with evaluating(head):
                    parts.append(head.node_log_probs(h_BD))
            yield torch.stack(parts)

    def state(self) -> dict[str, Tensor]:
        return {
            f"{number}.{name}": value
            for number, member in enumerate(self.others, 1)
            for name, value in member.state_dict().items()
        }

    @classmethod
    def restore(cls, model: Model, options: Any, state: dict[str, Tensor]) -> Self:
        others = []
        for number in range(1, options.members):
            prefix = f"{number}."
            own = {name.removeprefix(prefix): state[name] for name in state if name.startswith(prefix)}
            member = copy_model(model)
            member.load_state_dict(own)
            others.append(member.eval())
        return cls(options, others)
