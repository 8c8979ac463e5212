"""The bag-of-words encoder."""

import pytest
import torch

from arbormax.encoders import ENCODERS
from arbormax.errors import InputError

TEXTS = ["the owl hoots", "the owl sleeps", "an eel", "the owl hoots", ""]


def bag(texts=TEXTS, **options):
    kind = ENCODERS["bag"]
    return kind.fit(texts, kind.Options(**{"dim": 5, "dropout": 0.0, **options}))


def features(encoder, texts):
    with torch.no_grad():
        return encoder(*encoder.collate(encoder.encode(texts)))


@pytest.mark.parametrize("ngrams", [1, 2, 3])
def test_features_are_the_mean_vector_of_words_and_ngrams(ngrams):
    encoder = bag(ngrams=ngrams, char_ngrams=0)
    texts = [*TEXTS, "the owl hoots the dodo hoots owl", "dodo"]
    rows = encoder.encode(texts)
    found = features(encoder, texts)
    for i in range(len(texts)):
        numbers = rows.values[rows.offsets[i] : rows.offsets[i + 1]]
        naive = encoder.weight[numbers].mean(0) if len(numbers) else torch.zeros(5)
        torch.testing.assert_close(found[i], naive.detach())


@pytest.mark.parametrize("weight", [0.5, 0.2])
def test_features_with_characters_are_the_weighted_sum_of_two_means(weight):
    encoder = bag(min_char_count=1, char_weight=weight)
    texts = [*TEXTS, "the owl hoots the dodo hoots owl", "zzzzz", "owlet", "a"]
    numbers = encoder.characters.number
    assert {" ow", "owl", "wl ", " owl", "owl "} <= set(numbers)
    found = features(encoder, texts)
    for text, row in zip(texts, found, strict=True):
        words = encoder.grams.encode(encoder.vocabulary.encode([text])).values
        padded = [f" {word} " for word in text.split()]
        grams = [word[i : i + n] for word in padded for n in (3, 4) for i in range(len(word) - n + 1)]
        ids = [len(encoder.vocabulary) + len(encoder.grams) + numbers[gram] for gram in grams if gram in numbers]
        naive = torch.zeros(5)
        if len(words):
            share = weight if ids else 0.0
            naive = (1 - share) * encoder.weight[words].mean(0)
            naive += share * encoder.weight[ids].mean(0) if ids else 0
        torch.testing.assert_close(row, naive.detach())


def test_unknown_words_differ_by_their_characters():
    one, other = features(bag(), ["owls", "eels"])
    assert not torch.allclose(one, other)
    one, other = features(bag(char_ngrams=0), ["owls", "eels"])
    assert torch.equal(one, other)


def test_rare_ngrams_of_characters_have_no_vector():
    assert "ooh" not in bag(["ooh", "aah aah"]).characters.number
    assert "ooh" in bag(["ooh", "aah aah"], min_char_count=1).characters.number
    assert "aah" not in bag(["ooh", "aah aah"]).characters.number  # twice, but in one text
    assert len(bag(max_char_terms=7).characters) == 7


def test_only_ngrams_depend_on_word_order():
    for ngrams, same in ((1, True), (2, False)):
        encoder = bag(ngrams=ngrams, min_ngram_count=1)
        one, other = features(encoder, ["the owl hoots", "hoots owl the"])
        assert torch.allclose(one, other) is same


def test_rare_ngrams_have_no_vector():
    assert len(bag(ngrams=2, min_ngram_count=2).grams) == 2  # the owl, owl hoots
    assert len(bag(ngrams=2, min_ngram_count=3).grams) == 1
    assert len(bag(ngrams=1).grams) == 0


@pytest.mark.parametrize("texts", [[""], ["", ""], ["?!", "😀", "\x00", "\ud800"]])
def test_texts_without_words_have_features_and_can_be_trained(texts):
    encoder = bag()
    out = encoder(*encoder.collate(encoder.encode(texts)))
    assert out.shape == (len(texts), 5)
    assert out.isfinite().all()
    (out + encoder.weight[0, 0]).sum().backward()


def test_features_do_not_depend_on_the_other_texts_of_the_batch():
    encoder = bag()
    alone = torch.cat([features(encoder, [text]) for text in TEXTS])
    torch.testing.assert_close(features(encoder, TEXTS), alone)


@pytest.mark.parametrize("longest", [0, 4])
def test_a_saved_encoder_gives_the_same_features(tmp_path, longest):
    encoder = bag(ngrams=3, char_ngrams=longest)
    encoder.save(tmp_path)
    again = type(encoder).load(tmp_path, encoder.options)
    again.load_state_dict(encoder.state_dict())
    assert torch.equal(features(again, TEXTS), features(encoder, TEXTS))


def test_a_text_of_a_hundred_thousand_words_is_averaged():
    assert features(bag(), ["owl the " * 50_000]).isfinite().all()


def test_an_incomplete_vocabulary_is_an_error(tmp_path):
    encoder = bag()
    encoder.save(tmp_path)
    path = tmp_path / "vocabulary.txt"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match="incomplete"):
        type(encoder).load(tmp_path, encoder.options)
