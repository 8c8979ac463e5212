"""From texts to log-probabilities."""

from itertools import islice, repeat

import pytest
import torch

from arbormax.errors import OptionError
from arbormax.model import Model
from toy import TREE, examples, settings

ODD = ["", "?!", "😀", "owl\x00ish", "\ud800", "owlish " * 3000, "<padding> <unknown>", "owlish", "\n"]


def untrained(encoder="bilstm", **given):
    return Model.new(examples(30).inputs, TREE, settings(encoder, **given).resolved())


@pytest.mark.parametrize("encoder", ["bag", "lstm", "bilstm"])
@pytest.mark.parametrize("head", ["hierarchical", "flat", "shared"])
def test_every_text_gets_a_distribution(encoder, head):
    model = untrained(encoder, head=head)
    logp = torch.cat(list(model.node_log_probs(ODD)))
    assert logp.shape == (len(ODD), TREE.num_nodes)
    torch.testing.assert_close(logp[:, torch.tensor(TREE.leaves)].exp().sum(1), torch.ones(len(ODD)))


@pytest.mark.parametrize("encoder", ["bag", "bilstm"])
@pytest.mark.parametrize("batch_size", [1, 2, 7, 100])
def test_features_have_the_order_of_the_texts_for_any_batch_size(encoder, batch_size):
    model = untrained(encoder)
    texts = [*ODD, *examples(20).inputs]
    alone = torch.cat([torch.cat(list(model.features([text]))) for text in texts])
    parts = list(model.features(texts, batch_size))
    assert all(len(part) == batch_size for part in parts[:-1])
    torch.testing.assert_close(torch.cat(parts), alone)


@pytest.mark.parametrize("encoder", ["bag", "bilstm"])
def test_an_infinite_stream_is_processed_lazily(encoder):
    parts = list(islice(untrained(encoder).node_log_probs(repeat("owlish")), 3))
    assert [len(part) for part in parts] == [256] * 3


def test_an_empty_list_gives_no_batches():
    assert list(untrained().features([])) == []


def test_a_batch_size_of_zero_is_an_error():
    for encoder in ("bag", "bilstm"):
        with pytest.raises(OptionError, match="at least 1, found 0"):
            next(untrained(encoder).features(["a"], batch_size=0))


def test_prediction_uses_no_dropout_and_restores_the_mode():
    model = untrained(encoder="bag", encoder_options={"dropout": 0.9}).train()
    one, other = (torch.cat(list(model.features(ODD))) for _ in range(2))
    assert torch.equal(one, other)
    assert model.training
    assert not model.eval().features(ODD).__next__().requires_grad


def test_a_seed_determines_the_weights_and_keeps_the_global_random_state():
    torch.manual_seed(5)
    wanted = torch.rand(1)
    torch.manual_seed(5)
    one, other, third = untrained(seed=1), untrained(seed=1), untrained(seed=2)
    assert torch.equal(torch.rand(1), wanted)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert not torch.equal(one.head.weight, third.head.weight)


def test_the_network_itself_gives_leaf_log_probabilities():
    model = untrained().eval()
    texts = examples(5).inputs
    leaves = model(*model.encoder.collate(model.encoder.encode(texts)))
    nodes = torch.cat(list(model.node_log_probs(texts)))
    torch.testing.assert_close(leaves.detach(), nodes[:, torch.tensor(TREE.leaves)])
