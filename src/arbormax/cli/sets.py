"""Options of the sets of nodes that contain the truth with a guaranteed probability."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arbormax.cli.options import DecoderOptions
from arbormax.errors import OptionError

if TYPE_CHECKING:
    from arbormax.model.network import Model
    from arbormax.model.predict import Decoding


@dataclass(frozen=True)
class SetOptions(DecoderOptions):
    """The decoder, and the sets of nodes beside it."""

    max_nodes: Annotated[
        int | None,
        typer.Option(metavar="N", help="With --coverage: also a set of at most N nodes that contains the truth."),
    ] = None
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="branch|FILE",
            help="With --coverage: the set has it in each branch below the root, or in each group of classes of a JSON "
            "file, which maps labels to groups.",
        ),
    ] = None

    def decoding(self, top_k: int = 0) -> Decoding:
        for name in ("max_nodes", "groups"):
            if getattr(self, name) is not None and self.coverage is None:
                raise OptionError("requires --coverage", argument=name)
        return super().decoding(top_k)

    def _covered(self, model: Model, coverage: float, top_k: int, **sets: Any) -> Decoding:
        return super()._covered(model, coverage, top_k, max_nodes=self.max_nodes, groups=self._read_groups(), **sets)

    def _read_groups(self) -> Any:
        from arbormax._files import read_json
        from arbormax.uncertainty.conformal import BRANCH

        if self.groups is None or self.groups == BRANCH:
            return self.groups
        if not Path(self.groups).is_file():
            raise OptionError(f"expected {BRANCH!r} or a JSON file, found {self.groups!r}", argument="groups")
        return read_json(Path(self.groups))
