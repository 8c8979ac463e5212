"""Counts of words and their n-grams, and of n-grams of characters, compared with those of scikit-learn."""

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer

from arbormax.data.characters import CharacterNGrams
from arbormax.data.terms import NumberedTexts, WordTerms

TEXTS = [row.split() for row in ("the owl eats the owl", "", "the mouse eats the owl", "an owl", "the owl")]
NEW = [row.split() for row in ("owl the owl eats", "a bat eats the", "")]


def counter(**settings):
    return CountVectorizer(tokenizer=list, token_pattern=None, lowercase=False, **settings)


@pytest.mark.parametrize("longest", [1, 2, 3])
def test_terms_and_counts_equal_those_of_scikit_learn(longest):
    expected = counter(ngram_range=(1, longest)).fit(TEXTS)
    names, counts = WordTerms.learn(NumberedTexts.of(TEXTS), longest, 1, 1, 1000)
    assert names == expected.get_feature_names_out().tolist()
    np.testing.assert_array_equal(counts.toarray(), expected.transform(TEXTS).toarray())
    np.testing.assert_array_equal(
        WordTerms(names).count(NumberedTexts.of(NEW)).toarray(), expected.transform(NEW).toarray()
    )


def test_rare_terms_are_left_out_and_the_most_frequent_are_kept():
    texts = NumberedTexts.of(TEXTS)
    assert WordTerms.learn(texts, 2, 1, 2, 1000)[0] == ["an", "eats", "eats the", "mouse", "owl", "the", "the owl"]
    assert WordTerms.learn(texts, 2, 4, 3, 1000)[0] == ["owl", "the owl"]
    assert WordTerms.learn(texts, 2, 4, 4, 1000)[0] == ["owl"]  # "the owl" occurs four times, twice in one text
    assert WordTerms.learn(texts, 2, 1, 1, 2)[0] == ["owl", "the"]
    assert WordTerms.learn(texts, 2, 9, 9, 9)[0] == []


def test_an_ngram_is_known_without_its_words():
    terms = WordTerms(["the red owl", "owl"])
    columns, ends, lengths = terms.places(NumberedTexts.of([["the", "red", "owl", "red"], ["red", "owl"]]))
    assert sorted(zip(columns.tolist(), ends.tolist(), lengths.tolist(), strict=True)) == [
        (0, 2, 3),
        (1, 2, 1),
        (1, 5, 1),
    ]


def test_counts_of_characters_of_new_texts_equal_those_of_the_training():
    texts = NumberedTexts.of(TEXTS)
    grams, counts = CharacterNGrams.learn(texts, 2, 3)
    np.testing.assert_array_equal(counts.toarray(), grams.count(texts).toarray())
    assert grams.encode_texts(texts).lengths.tolist() == counts.sum(1).ravel().tolist()[0]
