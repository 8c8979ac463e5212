"""The texts, trees and pretrained files of a study in the folder ARBORMAX_DATA."""

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
from study.texts import add_texts

if TYPE_CHECKING:
    from study.choice import Choice
    from study.plan import Arm, Study

GLOVE = "glove.6B"  # in a plan: the first of the files below that exists
_GLOVE_FILES = ("glove.6B.300d.txt", "glove.6B.zip", "glove.6B.100d.txt", "glove.6B.100d.subset.npz")


def load_training_texts(study: Study, arm: Arm) -> tuple[Taxonomy, Examples]:
    """The taxonomy and the training texts; the test split is not read."""
    taxonomy, train = _part(study.dataset, "train", arm.tree, arm.texts, data_root())
    if study.rows is not None and study.rows < len(train):
        train = hold_out(train, 1 - study.rows / len(train))[0]  # keeps every label
    return taxonomy, train


def load_test_texts(study: Study, arm: Arm, choice: Choice) -> Examples:
    """The test texts; requires the settings that cross-validation has selected."""
    if choice is None:
        raise OptionError("the test texts are only for selected settings; pass the choice")
    return _part(study.dataset, "test", arm.tree, arm.texts, data_root())[1]


@lru_cache(maxsize=4)
def _part(dataset: str, split: Any, kind: str, texts: bool, root: Path) -> tuple[Taxonomy, Examples]:
    examples, taxonomy = load_split(dataset, split, root), find_tree(dataset, kind)
    taxonomy = add_texts(dataset, taxonomy) if texts else taxonomy
    return taxonomy, Examples(examples.inputs, taxonomy.leaves[tree(dataset).class_of[examples.nodes]])


def find_tree(dataset: str, kind: str) -> Taxonomy:
    """The tree of an arm: `paper`, or `deep` for Reuters-52, which has the same classes."""
    if kind == "paper":
        return tree(dataset)
    if (dataset, kind) == ("r52", "deep"):
        return deep_r52()
    raise OptionError(f"{dataset} has no tree {kind!r}; expected paper, or deep for r52")


def resolve_paths(config: TrainConfig) -> TrainConfig:
    """The settings with word vectors and pretrained models as paths; a missing model keeps its name on the hub."""
    options = dict(config.encoder_options)
    if options.get("vectors") == GLOVE:
        options["vectors"] = str(find_glove())
        if options["vectors"].endswith(".zip"):
            options["dim"] = 300
    if (name := options.get("vectors")) and (folder := data_root() / "vectors" / name).is_dir():
        options["vectors"] = str(folder)
    if (name := options.get("model")) and (folder := data_root() / "models" / name.rpartition("/")[2]).is_dir():
        options["model"] = str(folder)
    return config.model_copy(update={"encoder_options": options})


def find_glove() -> Path:
    """The word vectors: those of the paper with 300 dimensions if they exist, otherwise 100 dimensions."""
    folder = data_root() / "glove"
    for name in _GLOVE_FILES:
        if (folder / name).is_file():
            return folder / name
    listed = "".join(f"\n  - {folder / name}" for name in _GLOVE_FILES)
    raise MissingDataError(f"the study needs GloVe vectors; none of these files exists:{listed}")


def write_file(path: Path, content: bytes) -> None:
    """Replace the content of a file in one step, so that a stopped study leaves no half-written record."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(content)
    os.replace(temporary, path)
