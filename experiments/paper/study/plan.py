"""The plan of a study, read from a JSON file: arms, their settings, folds and seeds."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from arbormax.data.datasets.paper import SOURCES
from arbormax.errors import InputError, OptionError, did_you_mean
from arbormax.model.settings import TrainConfig, validate
from study.files import find_tree

# How every training of the study selects its epoch, whatever the defaults of the library.
PROTOCOL: Mapping[str, Any] = {"monitor": "macro_f1", "refit": False, "calibration": "none"}

Point = Mapping[str, Any]  # the varied settings of one training: dotted name → value
SVC, BLEND = "svc", "blend"


class Arm(BaseModel):
    """One kind of model; cross-validation selects a point of its grid for each head.

    With `early`, cross-validation also selects the number of epochs from the learning curves. This needs a constant
    learning rate: with a schedule that ends at zero, fewer epochs give another curve.

    The encoder `blend` is not trained: its probabilities are a weighted mean of those of the arms `of`, with `weights`
    in its grid. These arms set `keep`, which saves their probabilities.

    With `best_on_test` there is no cross-validation: the test texts select the epoch, as in the script of the paper's
    authors. This is an upper bound of what the epoch can gain, and never a result.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[\w.]+(-[a-z]+)*$")
    encoder: str  # of arbormax, or "svc": TF-IDF with scikit-learn's LinearSVC, or "blend"
    heads: tuple[Literal["flat", "hierarchical", "shared", "svc"], ...] = ("flat", "hierarchical", "shared")
    preset: str | None = None
    settings: dict[str, Any] = {}  # training settings; a dotted name is an option of the encoder
    grid: dict[str, list[Any]] = {}
    of: tuple[str, ...] = ()
    keep: bool = False
    early: bool = True
    seeds: int = Field(10, ge=0)  # 0: only cross-validation
    tree: Literal["paper", "deep"] = "paper"
    texts: bool = False  # whether the nodes of the tree have texts
    best_on_test: bool = False
    device: Literal["any", "cpu"] = "any"  # cpu: too small for a GPU

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, values in self.grid.items():
            if not values:
                raise ValueError(f"the grid of {self.name} has no value for {name}")
        if len({slug(point) for point in self.points}) < len(self.points):
            raise ValueError(f"the grid of {self.name} has the same point twice")
        if (self.encoder == SVC) != (self.heads == (SVC,)):
            raise ValueError(f"the head svc belongs to the encoder svc and to no other; found {', '.join(self.heads)}")
        if self.encoder in (SVC, BLEND) and self.early:
            raise ValueError(f"{self.name} has no epochs to select from: set early to false")
        if self.best_on_test and (len(self.points) > 1 or self.encoder in (SVC, BLEND)):
            raise ValueError(f"{self.name}: best_on_test selects an epoch and nothing else; expected one point")
        if (self.encoder == BLEND) != bool(self.of):
            raise ValueError("the encoder blend needs the arms to combine (of), and no other encoder has them")
        if self.encoder == BLEND:
            self._check_blend()
        for head in self.heads if self.encoder not in (SVC, BLEND) else ():
            for point in self.points:
                self.config(head, point, 0)
        return self

    def _check_blend(self) -> None:
        if self.settings or self.preset or set(self.grid) != {"weights"}:
            raise ValueError(f"{self.name} is a blend, whose grid contains only weights")
        for weights in self.grid["weights"]:
            numbers = isinstance(weights, list) and all(isinstance(w, (int, float)) and w >= 0 for w in weights)
            if not numbers or len(weights) != len(self.of) or abs(sum(weights) - 1) > 1e-6:
                raise ValueError(
                    f"weights of {self.name}: expected {len(self.of)} numbers that sum to 1, found {weights}"
                )

    @property
    def points(self) -> list[dict[str, Any]]:
        """All points of the grid."""
        return [dict(zip(self.grid, values, strict=True)) for values in itertools.product(*self.grid.values())]

    def config(self, head: str, point: Point, seed: int, **more: Any) -> TrainConfig:
        """The settings of one training."""
        flat = {**self.settings, **point}
        options = {name.partition(".")[2]: value for name, value in flat.items() if name.startswith("encoder_options.")}
        given = {name: value for name, value in flat.items() if not name.startswith("encoder_options.")}
        if "tau" in given:  # as the studies and their records spell it
            given["logit_adjustment"] = given.pop("tau")
        config = TrainConfig.make(
            self.preset,
            encoder=self.encoder,
            encoder_options=options,
            head=head,
            seed=seed,
            **{**PROTOCOL, **given, **more},
        )
        return config.resolved()


class Study(BaseModel):
    """All arms on one dataset."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dataset: str
    folds: int = Field(4, ge=2)
    arms: tuple[Arm, ...]
    rows: int | None = Field(None, ge=1)  # number of training texts to use; None: all
    about: str = ""

    @field_validator("arms", mode="before")
    @classmethod
    def _check_arms(cls, arms: Any) -> Any:
        if not isinstance(arms, list):
            return arms
        return [
            validate(Arm, arm, f"arm {number}", str(number)) if isinstance(arm, dict) else arm
            for number, arm in enumerate(arms)
        ]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.dataset not in SOURCES:
            near = did_you_mean(self.dataset, SOURCES)
            raise ValueError(f"expected one of {', '.join(SOURCES)}, found {self.dataset!r}{near}")
        if not self.arms:
            raise ValueError("a study needs at least one arm")
        names = [arm.name for arm in self.arms]
        if len(set(names)) < len(names):
            raise ValueError(f"the names of the arms must differ, found {', '.join(names)}")
        for arm in self.arms:
            find_tree(self.dataset, arm.tree)  # raises
            for name in arm.of:
                member = self.arm(name)
                if member.early or not member.keep or member.tree != arm.tree or member.seeds < arm.seeds:
                    raise ValueError(
                        f"{arm.name} combines arms with keep, without early, with the same tree and as many "
                        f"seeds; {name} differs"
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
            raise InputError(f"{path} does not exist; the studies are part of the repository of arbormax") from None
        except ValueError as error:
            raise InputError(f"{path} is not JSON: {error}") from error
        if not isinstance(values, dict):
            raise InputError(f"{path} contains no JSON object")
        try:
            return validate(cls, values, "a study")
        except OptionError as error:
            raise OptionError(f"{path}: {error}") from None

    def arm(self, name: str) -> Arm:
        for arm in self.arms:
            if arm.name == name:
                return arm
        known = [arm.name for arm in self.arms]
        raise OptionError(
            f"expected arms of {self.dataset} ({', '.join(known)}), found {name!r}{did_you_mean(name, known)}"
        )

    def only(self, names: list[str]) -> Self:
        """The study with only these arms."""
        if not names:
            raise OptionError(f"expected at least one arm of {', '.join(arm.name for arm in self.arms)}")
        wanted = [part for name in names for part in (*self.arm(name).of, name)]
        return self.model_copy(update={"arms": tuple(self.arm(name) for name in dict.fromkeys(wanted))})

    def quick(self) -> Self:
        """A small study that checks in minutes, on two cores, that everything runs."""
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
        """Each arm with each of its heads."""
        for arm in self.arms:
            for head in arm.heads:
                yield arm, head


def titles(study: Study, arm: Arm, head: str) -> dict[str, str]:
    """The first fields of every record and choice."""
    return {
        "dataset": study.dataset,
        "arm": arm.name,
        "encoder": arm.encoder,
        "head": head,
        "tree": arm.tree,
    }


def slug(point: Point) -> str:
    """A point as part of a file name.

    >>> slug({"encoder_options.hidden": 150, "learning_rate": 1e-4})
    '-hidden150-learning_rate0.0001'
    """
    values = {name: "_".join(map(str, value)) if isinstance(value, list) else value for name, value in point.items()}
    text = "".join(f"-{name.rpartition('.')[2]}{value}" for name, value in values.items())
    return re.sub(r"[^\w.-]", "_", text)
