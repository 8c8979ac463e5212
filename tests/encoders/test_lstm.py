"""The LSTM encoders compared with torch's packed bidirectional LSTM."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from arbormax.encoders import ENCODERS, LSTMEncoder

TEXTS = ["the owl hoots at night", "an eel", "the", "owl the owl the owl eel night", "hen owl"]


def lstm(name="bilstm", texts=TEXTS, **options):
    torch.manual_seed(0)
    kind = ENCODERS[name]
    return kind.fit(texts, kind.Options(**{"dim": 4, "hidden": 3, "dropout": 0.0, **options}))


def features(encoder, texts):
    encoder.eval()
    with torch.no_grad():
        return encoder(*encoder.collate(encoder.encode(texts)))


@pytest.mark.parametrize("name", ["lstm", "bilstm"])
def test_features_are_the_last_hidden_states_of_torchs_packed_lstm(name):
    encoder = lstm(name)
    torchs = nn.LSTM(4, 3, batch_first=True, bidirectional=name == "bilstm")
    weights = dict(encoder.forwards.state_dict())
    if encoder.backwards is not None:
        weights |= {f"{key}_reverse": value for key, value in encoder.backwards.state_dict().items()}
    torchs.load_state_dict(weights)
    rows = encoder.encode(TEXTS)
    ids = torch.from_numpy(rows.pad(0))
    packed = pack_padded_sequence(encoder.words(ids), torch.from_numpy(rows.lengths), True, enforce_sorted=False)
    with torch.no_grad():
        _, (hidden, _) = torchs(packed)
    torch.testing.assert_close(features(encoder, TEXTS), torch.cat(list(hidden), -1))


@pytest.mark.parametrize("name", ["lstm", "bilstm"])
def test_padding_does_not_change_features(name):
    encoder = lstm(name)
    alone = torch.cat([features(encoder, [text]) for text in TEXTS])
    together = features(encoder, [*TEXTS, "owl " * 50])[:-1]
    torch.testing.assert_close(together, alone)


@pytest.mark.parametrize("name", ["lstm", "bilstm"])
def test_few_shapes_of_batches_reach_the_network_when_nothing_is_learnt(name):
    encoder, shapes = lstm(name).eval(), set()
    encoder.forwards.register_forward_pre_hook(lambda _, inputs: shapes.add(tuple(inputs[0].shape[:2])))
    for batch in range(1, 65):
        for words in (1, 19, 61):
            texts = ["owl " * words] * batch
            found = features(encoder, texts)
            assert found.shape == (batch, encoder.out_features)
    assert len(shapes) == 3 * 20
    expected = encoder(*encoder.collate(encoder.encode(texts)))  # with gradients, no more padding than needed
    assert (64, 61) in shapes
    torch.testing.assert_close(found, expected.detach())


def test_padding_has_no_gradient():
    encoder = lstm()
    encoder(*encoder.collate(encoder.encode(TEXTS))).sum().backward()
    assert (encoder.words.weight.grad[0] == 0).all()
    assert (encoder.words.weight.grad[2:] != 0).any()


@pytest.mark.parametrize("texts", [[""], ["", "owl"], ["?!", "😀", "\x00", "\ud800"]])
def test_texts_without_words_have_features(texts):
    assert features(lstm(), texts).isfinite().all()
    assert features(lstm(), texts).shape == (len(texts), 6)


def test_a_long_text_is_truncated():
    encoder = lstm(max_length=3)
    torch.testing.assert_close(features(encoder, ["the owl hoots " + "eel " * 100_000]), features(encoder, [TEXTS[0]]))


@pytest.fixture
def vectors(tmp_path):
    words = ["owl", "dodo", "the", "emu"]
    path = tmp_path / "vectors.npz"
    matrix = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    np.savez(path, words=np.array("\n".join(words).encode()), vectors=matrix)
    return str(path), dict(zip(words, torch.from_numpy(matrix), strict=True))


def test_words_start_with_their_vectors_and_their_dimension_is_used(vectors):
    path, table = vectors
    encoder = lstm(vectors=path)
    assert encoder.options.dim == 5
    for word, vector in table.items():
        number = torch.from_numpy(encoder.vocabulary.encode([word]).values)
        assert number.item() > 1
        assert torch.equal(encoder.eval().words(number)[0], vector)


def test_words_outside_the_training_texts_keep_their_vector(vectors):
    path, table = vectors
    encoder = lstm(vectors=path).train()
    optimiser = torch.optim.Adam(encoder.parameters(), 0.1)
    for _ in range(2):
        encoder(*encoder.collate(encoder.encode(TEXTS))).sum().backward()
        optimiser.step()
    lookup = {word: encoder.words(torch.from_numpy(encoder.vocabulary.encode([word]).values))[0] for word in table}
    for word in ("dodo", "emu"):
        assert torch.equal(lookup[word], table[word])
    assert not torch.equal(lookup["owl"], table["owl"])


def test_rare_words_keep_their_pretrained_vector(vectors):
    path, table = vectors
    encoder = lstm(texts=["hen hen dodo owl"], vectors=path, min_count=2).train()
    encoder(*encoder.collate(encoder.encode(["hen hen dodo owl"]))).sum().backward()
    numbers = torch.from_numpy(encoder.vocabulary.encode(["dodo owl"]).values)
    assert torch.equal(encoder.words(numbers), torch.stack([table["dodo"], table["owl"]]))
    # padding, unknown, hen: only the last of them was trained
    assert (encoder.words.weight.grad != 0).any(1).tolist() == [False, False, True]


def test_the_number_of_kept_words_is_limited(vectors):
    encoder = lstm(vectors=vectors[0], kept_words=1)
    assert "dodo" in encoder.vocabulary
    assert "emu" not in encoder.vocabulary


@pytest.mark.parametrize("with_vectors", [False, True])
def test_a_saved_encoder_does_not_need_the_vectors_file(tmp_path, vectors, with_vectors):
    encoder = lstm(vectors=vectors[0] if with_vectors else None)
    encoder.save(tmp_path)
    Path(vectors[0]).unlink()
    again = type(encoder).load(tmp_path, encoder.options)
    again.load_state_dict(encoder.state_dict())
    texts = [*TEXTS, "dodo emu owl"]
    assert torch.equal(features(again, texts), features(encoder, texts))


def test_the_share_of_words_with_a_vector_is_reported(tmp_path, caplog):
    (tmp_path / "tiny.txt").write_text("owl 0.1 0.2\noak 0.3 0.1\n")
    options = LSTMEncoder.Options(vectors=str(tmp_path / "tiny.txt"), hidden=2)
    with caplog.at_level("INFO", logger="arbormax"):
        LSTMEncoder.fit(["an owl and an owl"], options)
    assert "33.3 % of 3 distinct words, 40.0 % of 5 running words" in caplog.text
