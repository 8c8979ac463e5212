"""What a study is to run, read from a file: arms, the settings they try, folds and seeds."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from arbormax.data.datasets.paper import SOURCES
from arbormax.errors import InputError, OptionError, did_you_mean
from arbormax.model.settings import TrainConfig, validate
from study.files import tree_named

Point = Mapping[str, Any]  # the tried settings of one training: a dotted name and its value
SVC, BLEND = "svc", "blend"


class Arm(BaseModel):
    """One kind of model: cross-validation chooses among the points of its grid, for each head by itself.

    `early`: the number of epochs is chosen too, from the course of the measures over the epochs. Where a schedule falls
    to zero at the last epoch, that would be another course, so `epochs` stands in the grid or is fixed.

    The arm `blend` trains nothing: its probabilities are a weighted mean of those of the arms `of`, with `weights` in
    its grid. The arms that it is made of `keep` their probabilities in a file of their own.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[\w.]+(-[a-z]+)*$")
    encoder: str  # of arbormax, or "svc": TF-IDF with scikit-learn's LinearSVC, or "blend"
    heads: tuple[Literal["flat", "hierarchical", "shared", "svc"], ...] = ("flat", "hierarchical", "shared")
    preset: str | None = None
    settings: dict[str, Any] = {}  # of training; a dotted name is one of the encoder's own
    grid: dict[str, list[Any]] = {}
    of: tuple[str, ...] = ()
    keep: bool = False
    early: bool = True
    seeds: int = Field(10, ge=0)  # 0: cross-validation alone
    tree: Literal["paper", "deep"] = "paper"
    device: Literal["any", "cpu"] = "any"  # cpu: not worth a GPU

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, values in self.grid.items():
            if not values:
                raise ValueError(f"the grid of {self.name} has no value for {name}")
        if len({slug(point) for point in self.points}) < len(self.points):
            raise ValueError(f"the grid of {self.name} has the same point twice")
        if (self.encoder == SVC) != (self.heads == (SVC,)):
            raise ValueError(f"the encoder svc has the head svc, and no other has; found {', '.join(self.heads)}")
        if self.encoder in (SVC, BLEND) and self.early:
            raise ValueError(f"{self.name} has no epochs to choose from: it needs early false")
        if (self.encoder == BLEND) != bool(self.of):
            raise ValueError("the encoder blend is made of other arms (of), and no other encoder is")
        if self.encoder == BLEND:
            self._check_blend()
        for head in self.heads if self.encoder not in (SVC, BLEND) else ():
            for point in self.points:
                self.config(head, point, 0)
        return self

    def _check_blend(self) -> None:
        if self.settings or self.preset or set(self.grid) != {"weights"}:
            raise ValueError(f"{self.name} is a blend, of which weights alone are tried, in its grid")
        for weights in self.grid["weights"]:
            numbers = isinstance(weights, list) and all(isinstance(w, (int, float)) and w >= 0 for w in weights)
            if not numbers or len(weights) != len(self.of) or abs(sum(weights) - 1) > 1e-6:
                raise ValueError(f"weights of {self.name} are {len(self.of)} numbers that sum to 1, found {weights}")

    @property
    def points(self) -> list[dict[str, Any]]:
        """All settings to try."""
        return [dict(zip(self.grid, values, strict=True)) for values in itertools.product(*self.grid.values())]

    def config(self, head: str, point: Point, seed: int, **more: Any) -> TrainConfig:
        """The settings of one training."""
        flat = {**self.settings, **point}
        options = {name.partition(".")[2]: value for name, value in flat.items() if name.startswith("encoder_options.")}
        given = {name: value for name, value in flat.items() if not name.startswith("encoder_options.")}
        config = TrainConfig.make(
            self.preset, encoder=self.encoder, encoder_options=options, head=head, seed=seed, **{**given, **more}
        )
        return config.resolved()


class Study(BaseModel):
    """All arms on one dataset."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dataset: str
    folds: int = Field(4, ge=2)
    arms: tuple[Arm, ...]
    rows: int | None = Field(None, ge=1)  # train on so many texts only
    about: str = ""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.dataset not in SOURCES:
            near = did_you_mean(self.dataset, SOURCES)
            raise ValueError(f"studies are of {', '.join(SOURCES)}; found {self.dataset!r}{near}")
        if not self.arms:
            raise ValueError("a study has one arm or more, found none")
        names = [arm.name for arm in self.arms]
        if len(set(names)) < len(names):
            raise ValueError(f"each arm has a name of its own, found {', '.join(names)}")
        for arm in self.arms:
            tree_named(self.dataset, arm.tree)  # raises
            for name in arm.of:
                member = self.arm(name)
                if member.early or not member.keep or member.tree != arm.tree or member.seeds < arm.seeds:
                    raise ValueError(
                        f"{arm.name} can be made of arms that keep their probabilities, have early false, the same "
                        f"tree and no fewer seeds; {name} does not"
                    )
                if missing := set(arm.heads) - set(member.heads):
                    raise ValueError(f"{arm.name} needs the heads {', '.join(sorted(missing))} of {name}")
        return self

    @classmethod
    def load(cls, path: Path) -> Self:
        """The study in a JSON file."""
        try:
            values = json.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            raise InputError(
                f"there is no study in {path}: run this in a clone of arbormax, or name the studies' folder (study=)"
            ) from None
        except ValueError as error:
            raise InputError(f"{path} is not JSON: {error}") from error
        if not isinstance(values, dict):
            raise InputError(f"{path} holds no JSON object")
        try:
            return validate(cls, values, "a study")
        except OptionError as error:
            raise OptionError(f"{path}: {error}") from None

    def arm(self, name: str) -> Arm:
        for arm in self.arms:
            if arm.name == name:
                return arm
        known = [arm.name for arm in self.arms]
        raise OptionError(f"arms of {self.dataset} are {', '.join(known)}; found {name!r}{did_you_mean(name, known)}")

    def only(self, names: list[str]) -> Self:
        """The study with these arms alone."""
        if not names:
            raise OptionError(f"name one arm or more of {', '.join(arm.name for arm in self.arms)}")
        wanted = [part for name in names for part in (*self.arm(name).of, name)]
        return self.model_copy(update={"arms": tuple(self.arm(name) for name in dict.fromkeys(wanted))})

    def quick(self) -> Self:
        """A small study that takes minutes on two cores: how it goes, not what comes out."""
        small = {
            "batch_size": 32,
            "learning_rate": 3e-3,
            "head_learning_rate": 3e-3,
            "epochs": 8,
            "patience": 3,
            "encoder_options.hidden": 100,
            "encoder_options.max_length": 60,
        }
        bilstm = self.arm("bilstm")
        arm = bilstm.model_copy(
            update={
                "heads": ("flat", "hierarchical"),
                "settings": {**bilstm.settings, **small},
                "grid": {},
                "seeds": 1,
            }
        )
        return self.model_copy(update={"arms": (arm,), "folds": 2, "rows": 2000})

    def groups(self) -> Iterator[tuple[Arm, str]]:
        """Every arm with every head."""
        for arm in self.arms:
            for head in arm.heads:
                yield arm, head


def titles(study: Study, arm: Arm, head: str) -> dict[str, str]:
    """What every record and choice begins with."""
    return {
        "dataset": study.dataset,
        "arm": arm.name,
        "encoder": arm.encoder,
        "head": head,
        "tree": arm.tree,
    }


def slug(point: Point) -> str:
    """A point as a part of a file's name.

    >>> slug({"encoder_options.hidden": 150, "learning_rate": 1e-4})
    '-hidden150-learning_rate0.0001'
    """
    values = {name: "_".join(map(str, value)) if isinstance(value, list) else value for name, value in point.items()}
    told = "".join(f"-{name.rpartition('.')[2]}{value}" for name, value in values.items())
    return re.sub(r"[^\w.-]", "_", told)
