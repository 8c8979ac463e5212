"""The registry of decoders."""

import inspect

import pytest
import torch

import arbormax as am
from arbormax.decode import DECODERS

TAX = am.Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})


def root(logp, tax):
    """Return the root of every item."""
    return torch.zeros(logp.shape[:-1], dtype=torch.int64)


def test_names_are_those_of_the_registry():
    assert am.decode.NAMES == DECODERS.names == ("leaf", "greedy", "threshold", "climb", "optimal", "beam")


@pytest.mark.parametrize("name", DECODERS.names)
def test_every_decoder_takes_log_probabilities_and_a_taxonomy(name):
    assert getattr(am.decode, name) is DECODERS[name]
    assert list(inspect.signature(DECODERS[name]).parameters)[:2] == ["logp", "tax"]
    logp = am.functional.node_log_probs(torch.zeros(3, 5), TAX)
    assert DECODERS[name](logp, TAX).shape[0] == 3


def test_a_decoder_is_added_in_one_place():
    DECODERS.add("root", root, "always the root")
    try:
        assert am.decode.NAMES[-1] == "root"
        assert am.decode.root is root
        assert "root" in dir(am.decode)
    finally:
        DECODERS.remove("root")
    assert not hasattr(am.decode, "root")
