"""Encoders by name."""

import pytest
import torch
import toy_encoder  # noqa: F401 - registers itself

from arbormax import Taxonomy
from arbormax.data.examples import Examples
from arbormax.encoders import encoder_kind
from arbormax.errors import OptionError
from arbormax.model import TrainConfig, load_model, save_model
from arbormax.training import fit


def test_an_unknown_encoder_is_told_with_the_nearest():
    with pytest.raises(OptionError, match="found 'bilstn'; did you mean 'bilstm'"):
        encoder_kind("bilstn")


@pytest.mark.parametrize("name", ["bag", "lstm", "bilstm"])
def test_the_encoders_are_known_by_their_names(name):
    assert encoder_kind(name).name == name


def test_a_registered_encoder_trains_and_is_loaded_like_our_own(tmp_path):
    tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    nodes = tax.leaves[[0, 1, 2] * 6]
    data = Examples(["q" * (1 + 3 * i) for i in [0, 1, 2] * 6], nodes)
    config = TrainConfig.make(encoder="length", validation=0, epochs=30, learning_rate=0.1, batch_size=6)
    model = fit(config, tax, data).model
    logp = torch.cat(list(model.node_log_probs(data.texts)))
    assert (tax.leaves[logp.numpy()[:, tax.leaves].argmax(1)] == nodes).all()
    loaded = load_model(save_model(model, tmp_path / "model"))
    assert torch.equal(torch.cat(list(loaded.node_log_probs(data.texts))), logp)
