"""Encoders by name."""

import subprocess
import sys

import pytest
import torch
import toy_encoder  # noqa: F401 - registers itself

from arbormax import Taxonomy
from arbormax.data.examples import Examples
from arbormax.encoders import ENCODERS
from arbormax.errors import OptionError
from arbormax.model import TrainConfig, load_model, save_model
from arbormax.training import fit


def test_the_error_about_an_unknown_encoder_suggests_the_nearest_name():
    with pytest.raises(OptionError, match="unknown encoder 'bilstn'; did you mean 'bilstm'") as error:
        ENCODERS["bilstn"]
    assert error.value.argument == "encoder"


@pytest.mark.parametrize("name", ["bag", "lstm", "bilstm", "tfidf", "transformer", "features"])
def test_every_encoder_is_registered_under_its_name(name):
    assert ENCODERS[name].name == name
    assert ENCODERS.summary(name)


def test_the_registry_needs_neither_torch_nor_pydantic():
    code = (
        "import sys; sys.modules['torch'] = sys.modules['pydantic'] = None; "
        "from arbormax.encoders import ENCODERS; print('bag' in ENCODERS)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


def test_a_registered_encoder_is_trained_and_loaded_like_a_built_in_one(tmp_path):
    assert "length" in ENCODERS.names
    tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    nodes = tax.leaves[[0, 1, 2] * 6]
    data = Examples(["q" * (1 + 3 * i) for i in [0, 1, 2] * 6], nodes)
    config = TrainConfig.make(encoder="length", validation=0, epochs=30, learning_rate=0.1, batch_size=6)
    model = fit(config, tax, data).model
    logp = torch.cat(list(model.node_log_probs(data.inputs)))
    assert (tax.leaves[logp.numpy()[:, tax.leaves].argmax(1)] == nodes).all()
    loaded = load_model(save_model(model, tmp_path / "model"))
    assert torch.equal(torch.cat(list(loaded.node_log_probs(data.inputs))), logp)
