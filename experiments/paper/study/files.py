"""The texts, trees and pretrained files of a study, found by name where the data lie."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arbormax.data.datasets import MissingDataError, data_root, load_split
from arbormax.data.datasets.trees import tree
from arbormax.data.examples import Examples
from arbormax.data.folds import hold_out
from arbormax.errors import OptionError
from arbormax.model.settings import TrainConfig
from arbormax.taxonomy import Taxonomy
from study.deep_tree import deep_r52

if TYPE_CHECKING:
    from study.choice import Choice
    from study.plan import Arm, Study

GLOVE = "glove.6B"  # in a study's file: the best of the files below that is there
_GLOVE_FILES = ("glove.6B.300d.txt", "glove.6B.zip", "glove.6B.100d.txt", "glove.6B.100d.subset.npz")


def training_texts(study: Study, arm: Arm) -> tuple[Taxonomy, Examples]:
    """What cross-validation sees, and training: nothing of the test split is read."""
    taxonomy, train = _part(study.dataset, "train", arm.tree, data_root())
    if study.rows is not None and study.rows < len(train):
        train = hold_out(train, 1 - study.rows / len(train))[0]  # with every label
    return taxonomy, train


def texts_to_measure(study: Study, arm: Arm, choice: Choice) -> Examples:
    """What is measured on, once a choice is made."""
    if choice is None:
        raise OptionError("the test texts are for settings that were chosen without them: give the choice")
    return _part(study.dataset, "test", arm.tree, data_root())[1]


@lru_cache(maxsize=4)
def _part(dataset: str, split: Any, kind: str, root: Path) -> tuple[Taxonomy, Examples]:
    examples, taxonomy = load_split(dataset, split, root), tree_named(dataset, kind)
    return taxonomy, Examples(examples.inputs, taxonomy.leaves[tree(dataset).class_of[examples.nodes]])


def tree_named(dataset: str, kind: str) -> Taxonomy:
    """The tree of an arm: `paper`, or for Reuters-52 `deep`, which has the same classes."""
    if kind == "paper":
        return tree(dataset)
    if (dataset, kind) == ("r52", "deep"):
        return deep_r52()
    raise OptionError(f"no tree of {dataset} is named {kind!r}: paper is, and deep of r52")


def located(config: TrainConfig) -> TrainConfig:
    """The settings with word vectors and pretrained models as paths; a model that is not there keeps its hub's name."""
    options = dict(config.encoder_options)
    if options.get("vectors") == GLOVE:
        options["vectors"] = str(glove())
        if options["vectors"].endswith(".zip"):
            options["dim"] = 300
    if (name := options.get("model")) and (folder := data_root() / "models" / name.rpartition("/")[2]).is_dir():
        options["model"] = str(folder)
    return config.model_copy(update={"encoder_options": options})


def glove() -> Path:
    """The word vectors: the paper's 300-dimensional ones where they are, else those of 100 dimensions."""
    folder = data_root() / "glove"
    for name in _GLOVE_FILES:
        if (folder / name).is_file():
            return folder / name
    listed = "".join(f"\n  - {folder / name}" for name in _GLOVE_FILES)
    raise MissingDataError(f"the study starts from GloVe vectors, and none of these is there:{listed}")


def write_file(path: Path, content: bytes) -> None:
    """Replace the content of a file in one step, so that a stopped study leaves no half-written record."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(content)
    os.replace(temporary, path)
