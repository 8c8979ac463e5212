"""A small task that every encoder learns in a moment, shared by the tests of training."""

from __future__ import annotations

import numpy as np
import torch

from arbormax import Taxonomy
from arbormax.data.examples import Examples
from arbormax.model import TrainConfig

TREE = Taxonomy.from_nested({"animal": {"bird": ["owl", "hen"], "fish": ["cod", "eel"]}, "plant": ["oak", "rye"]})
_FILL = ["the", "a", "of", "some", "very", "old", "in", "on", "near", "with"]
# a few settings that keep each encoder small and quick
SMALL = {
    "bag": {"dim": 8, "dropout": 0.1},
    "lstm": {"dim": 6, "hidden": 8, "dropout": 0.1},
    "bilstm": {"dim": 6, "hidden": 8, "dropout": 0.1},
}


def examples(count: int = 60, seed: int = 0, inner: float = 0.0) -> Examples:
    """Texts in which one word tells the class; the share `inner` of them is labelled one level higher."""
    draw = np.random.default_rng(seed)
    classes = np.arange(count) % TREE.num_leaves
    texts = []
    for label in classes:
        words = list(draw.choice(_FILL, size=draw.integers(0, 5)))
        words.insert(int(draw.integers(0, len(words) + 1)), f"{TREE.classes[label]}ish")
        texts.append(" ".join(words))
    nodes = TREE.leaves[classes].copy()
    higher = draw.random(count) < inner
    nodes[higher] = TREE.parent[nodes[higher]]
    return Examples(texts, nodes)


def settings(encoder: str = "bag", **given: object) -> TrainConfig:
    """Settings with which the toy task is learnt in about a second."""
    options = {**SMALL[encoder], **given.pop("encoder_options", {})}  # type: ignore[dict-item]
    usual = {"epochs": 12, "batch_size": 8, "learning_rate": 0.05, "schedule": "constant"}
    usual |= {"patience": None, "refit": False, "calibration": "none"}
    return TrainConfig.make(encoder=encoder, encoder_options=options, **{**usual, **given})


def same_weights(one, other) -> bool:
    """Whether two models have bit-identical weights."""
    mine, theirs = one.state_dict(), other.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)
