"""Vocabularies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbormax.data.vocabulary import PADDING, UNKNOWN, Vocabulary
from arbormax.errors import InputError

TEXTS = st.lists(st.text(max_size=20), max_size=6)


@given(TEXTS, st.sampled_from(["words", "whitespace"]))
def test_a_saved_vocabulary_encodes_as_before(tmp_path_factory, texts, tokens):
    path = tmp_path_factory.mktemp("words") / "vocabulary.txt"
    vocabulary = Vocabulary.learn(texts, tokens)
    vocabulary.save(path)
    loaded = Vocabulary.load(path, tokens)
    assert loaded.words == vocabulary.words
    assert loaded.encode(texts).values.tolist() == vocabulary.encode(texts).values.tolist()


def test_a_word_with_a_lone_surrogate_is_saved_and_loaded(tmp_path):
    vocabulary = Vocabulary.learn(["owl\ud800 \x00"], "whitespace")
    vocabulary.save(tmp_path / "vocabulary.txt")
    assert Vocabulary.load(tmp_path / "vocabulary.txt", "whitespace").words == vocabulary.words


@given(TEXTS)
def test_no_word_of_the_training_texts_is_unknown_or_padding(texts):
    encoded = Vocabulary.learn(texts).encode(texts)
    assert (encoded.values > UNKNOWN).all()
    assert len(encoded) == len(texts)


def test_unknown_words_get_their_own_number():
    vocabulary = Vocabulary.learn(["owl hen"])
    assert vocabulary.encode(["owl dodo"]).values.tolist() == [2, UNKNOWN]


@pytest.mark.parametrize("name", ["<padding>", "<unknown>"])
def test_a_special_name_in_a_text_is_an_unknown_word(name):
    vocabulary = Vocabulary.learn([f"owl {name} {name}"], "whitespace")
    assert vocabulary.words == ("<padding>", "<unknown>", "owl")
    assert vocabulary.encode([f"{name} owl"]).values.tolist() == [UNKNOWN, 2]
    assert PADDING not in vocabulary.encode([name]).values


def test_the_most_frequent_words_are_first_and_rare_ones_are_dropped():
    texts = ["c c c b b a", "b a d"]
    assert Vocabulary.learn(texts).words[2:] == ("c", "b", "a", "d")
    assert Vocabulary.learn(texts, min_count=2).words[2:] == ("c", "b", "a")
    assert Vocabulary.learn(texts, max_words=2).words[2:] == ("c", "b")


def test_extending_keeps_the_numbers_and_takes_each_new_word_once():
    vocabulary = Vocabulary.learn(["owl hen"])
    more = vocabulary.extend_with(["cod", "owl", "cod", "<unknown>", "eel"])
    assert more.words == (*vocabulary.words, "cod", "eel")


@pytest.mark.parametrize("content", [b"owl\nhe", b"owl\nhen\nowl\n", b"\xff\xfe\n"])
def test_the_error_about_a_damaged_file_names_its_path(tmp_path, content):
    path = tmp_path / "vocabulary.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"vocabulary\.txt"):
        Vocabulary.load(path)


def test_a_vocabulary_without_texts_has_only_the_special_names(tmp_path):
    vocabulary = Vocabulary.learn([])
    vocabulary.save(tmp_path / "vocabulary.txt")
    assert len(Vocabulary.load(tmp_path / "vocabulary.txt")) == len(vocabulary) == 2
