"""What a study is to run, read from a file: arms, the settings they try, folds and seeds."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from arbormax.data.datasets import NAMES
from arbormax.errors import InputError, OptionError, did_you_mean
from arbormax.training.config import TrainConfig, checked

Point = Mapping[str, Any]  # the tried settings of one training: a dotted name and its value
SVC = "svc"


class Arm(BaseModel):
    """One kind of model: cross-validation chooses among the points of its grid, for each head by itself.

    `early`: the number of epochs is chosen too, from the course of the measures over the epochs. Where a schedule falls
    to zero at the last epoch, that would be another course, so `epochs` stands in the grid or is fixed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[\w.]+(-[a-z]+)*$")
    encoder: str  # of arbormax, or "svc": TF-IDF with scikit-learn's LinearSVC
    heads: tuple[Literal["flat", "hierarchical", "shared", "svc"], ...] = ("flat", "hierarchical", "shared")
    preset: str | None = None
    settings: dict[str, Any] = {}  # of training; a dotted name is one of the encoder's own
    grid: dict[str, list[Any]] = {}
    early: bool = True
    seeds: int = Field(10, ge=1)
    tree: Literal["paper", "deep"] = "paper"
    device: Literal["any", "cpu"] = "any"  # cpu: not worth a GPU

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, values in self.grid.items():
            if not values:
                raise ValueError(f"the grid of {self.name} has no value for {name}")
        for head in self.heads if self.encoder != SVC else ():
            for point in self.points:
                self.config(head, point, 0)
        return self

    @property
    def points(self) -> list[dict[str, Any]]:
        """All settings to try."""
        return [dict(zip(self.grid, values, strict=True)) for values in itertools.product(*self.grid.values())]

    def config(self, head: str, point: Point, seed: int, **more: Any) -> TrainConfig:
        """The settings of one training."""
        flat = {**self.settings, **point}
        options = {name.partition(".")[2]: value for name, value in flat.items() if name.startswith("encoder_options.")}
        given = {name: value for name, value in flat.items() if "." not in name}
        config = TrainConfig.make(
            self.preset, encoder=self.encoder, encoder_options=options, head=head, seed=seed, **{**given, **more}
        )
        return config.resolved()


class Study(BaseModel):
    """All arms on one dataset."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dataset: str
    folds: int = Field(4, ge=2)
    arms: tuple[Arm, ...] = Field(min_length=1)
    rows: int | None = Field(None, ge=1)  # train on so many texts only
    about: str = ""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.dataset not in NAMES:
            raise ValueError(f"no dataset is named {self.dataset!r}{did_you_mean(self.dataset, NAMES)}")
        names = [arm.name for arm in self.arms]
        if len(set(names)) < len(names):
            raise ValueError(f"each arm has a name of its own, found {', '.join(names)}")
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
        return checked(cls, values, str(path))

    def arm(self, name: str) -> Arm:
        for arm in self.arms:
            if arm.name == name:
                return arm
        known = [arm.name for arm in self.arms]
        raise OptionError(f"arms of {self.dataset} are {', '.join(known)}; found {name!r}{did_you_mean(name, known)}")

    def only(self, names: list[str]) -> Self:
        """The study with these arms alone."""
        return self.model_copy(update={"arms": tuple(self.arm(name) for name in names)})

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


def slug(point: Point) -> str:
    """A point as a part of a file's name.

    >>> slug({"encoder_options.hidden": 150, "learning_rate": 1e-4})
    '-hidden150-learning_rate0.0001'
    """
    return "".join(f"-{name.rpartition('.')[2]}{value}" for name, value in point.items())
