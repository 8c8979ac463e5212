"""Tokenizers."""

import pytest

from arbormax.data.tokens import whitespace, words


@pytest.mark.parametrize("text", ["", "   ", "?!… --", "😀👍🏽", "\x00", "\ud800", "\n\t"])
def test_a_text_without_words_has_none(text):
    assert words(text) == []


def test_words_are_lower_case_without_punctuation_and_keep_their_apostrophe():
    assert words("Don't STOP, (it's) x-ray!") == ["don't", "stop", "it's", "x", "ray"]


def test_both_apostrophes_give_the_same_word():
    assert words("patient’s") == words("patient's")


def test_compatible_forms_of_a_character_give_the_same_word():
    assert words("Ａ ﬁn cafe\u0301") == ["a", "fin", "café"]


def test_marks_belong_to_the_word_they_are_on():
    assert words("हिन्दी भाषा, İstanbul!") == ["हिन्दी", "भाषा", "i̇stanbul"]


def test_control_characters_separate_words():
    assert words("owl\x00hen\ud800cod") == ["owl", "hen", "cod"]


def test_whitespace_keeps_punctuation_and_splits_at_all_whitespace():
    assert whitespace("What's  an\u2028OWL\x85?\r\n\tx\u00a0y") == ["what's", "an", "owl", "?", "x", "y"]


def test_a_long_text_is_read_completely():
    assert len(words("owl " * 100_000)) == 100_000
