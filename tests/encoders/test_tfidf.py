"""The TF-IDF encoder and heads on sparse features."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse import hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

import arbormax as am
from arbormax.data.ragged import Ragged
from arbormax.data.tokens import words
from arbormax.encoders.tfidf import TfidfEncoder, TfidfOptions
from arbormax.errors import InputError

TEXTS = ["The owl eats the mouse", "A mouse eats", "the owl's mouse", "the owl eats the owl", ""]
TAX = am.Taxonomy.from_nested({"bird": ["owl", "jay"], "beast": ["mouse", {"cat": ["lynx", "puma"]}]})
HEADS = [am.HierarchicalSoftmax, am.FlatSoftmax, am.SharedSoftmax]


def made(texts: list[str] = TEXTS, **options: object) -> TfidfEncoder:
    encoder = TfidfEncoder.fit(texts, TfidfOptions(**{"char_ngrams": 0, "min_char_ngrams": 2, **options}))
    assert isinstance(encoder, TfidfEncoder)
    return encoder


def features(encoder: TfidfEncoder, texts: list[str]) -> torch.Tensor:
    return encoder(*encoder.collate(encoder.encode(texts)))


def test_features_equal_those_of_scikit_learn():
    vectorizer = TfidfVectorizer(
        tokenizer=words, token_pattern=None, lowercase=False, ngram_range=(1, 2), sublinear_tf=True
    )
    expected = vectorizer.fit(TEXTS).transform([*TEXTS, "owl owl bat"]).toarray()
    encoder = made(min_ngram_count=1)
    assert encoder.terms == tuple(vectorizer.get_feature_names_out())
    np.testing.assert_allclose(features(encoder, [*TEXTS, "owl owl bat"]).to_dense(), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("shortest", "longest", "share"), [(2, 5, 0.5), (1, 1, 0.5), (4, 4, 0.8), (3, 16, 0.1)])
def test_features_of_characters_equal_those_of_scikit_learn(shortest: int, longest: int, share: float):
    texts = ["The owl eats the mouse", "A mouse eats an eel", "the owl's naïve mouse", "", "東京 owl 東京 o"]
    new = [*texts, "owlish mice", "ee eee", "?"]
    how = {"lowercase": False, "sublinear_tf": True}
    word = TfidfVectorizer(tokenizer=words, token_pattern=None, ngram_range=(1, 2), **how).fit(texts)
    # its own words are separated by blanks
    character = TfidfVectorizer(analyzer="char_wb", ngram_range=(shortest, longest), **how)
    character.fit([" ".join(words(text)) for text in texts])
    blocks = word.transform(new), character.transform([" ".join(words(text)) for text in new])
    both = hstack([(1 - share) ** 0.5 * blocks[0], share**0.5 * blocks[1]])
    encoder = made(
        texts, min_ngram_count=1, char_ngrams=longest, min_char_ngrams=shortest, min_char_count=1, char_weight=share
    )
    grams = tuple("\t" + gram for gram in character.get_feature_names_out())
    assert encoder.terms == (*word.get_feature_names_out(), *grams)
    expected = normalize(both.tocsr()).toarray()
    np.testing.assert_allclose(features(encoder, new).to_dense(), expected, rtol=1e-5, atol=1e-7)


def test_unknown_words_have_features_of_their_characters():
    similar, other = features(made(char_ngrams=4), ["owls", "zzz"]).to_dense()
    assert similar.norm() == pytest.approx(1)
    assert other.norm() == 0


def test_ngrams_of_characters_have_their_own_limits():
    def grams(**options: object) -> list[str]:
        return [term.removeprefix("\t") for term in made(char_ngrams=3, **options).terms if term.startswith("\t")]

    assert "eat" in grams(min_char_count=3)
    assert "eat" not in grams(min_char_count=4)
    assert {len(gram) for gram in grams(min_char_ngrams=3)} == {3}
    assert grams(max_char_terms=1, min_char_ngrams=2) == ["e "]
    assert made(char_ngrams=3).terms[: made().out_features] == made().terms


@pytest.mark.parametrize("words", [10, 60])
def test_ngrams_of_characters_in_many_long_texts_are_left_out(words: int):
    filler = " ".join(["no"] * words)
    texts = [f"owl jay {filler}" for _ in range(101)] + [f"jay lynx {filler}" for _ in range(99)]

    def grams(share: float) -> set[str]:
        encoder = made(texts, char_ngrams=3, min_char_ngrams=3, max_char_share=share)
        return {term.removeprefix("\t") for term in encoder.terms if term.startswith("\t")}

    every = {" ow", "owl", "wl ", " ja", "jay", "ay ", " ly", "lyn", "ynx", "nx ", " no", "no "}
    assert grams(1.0) == every
    assert grams(0.51) == (every - {" ja", "jay", "ay ", " no", "no "} if words > 50 else every)
    assert grams(0.1) == ({" ly", "lyn", "ynx", "nx "} if words > 50 else every)  # in 99 texts, which are few


def test_a_shortest_ngram_above_the_longest_is_an_error():
    with pytest.raises(ValueError, match="min_char_ngrams: expected at most char_ngrams, 3, found 4"):
        TfidfOptions(char_ngrams=3, min_char_ngrams=4)


@pytest.mark.parametrize("longest", [0, 4])
def test_features_are_sparse_rows_of_length_one_and_an_unknown_text_is_a_row_of_zeros(longest: int):
    encoder = made(char_ngrams=longest)
    found = features(encoder, ["", *TEXTS, "by"])
    assert found.layout == torch.sparse_coo
    assert found.dtype == torch.float32
    assert found.shape == (7, encoder.out_features)
    length = found.to_dense().norm(dim=1)
    torch.testing.assert_close(length, torch.tensor([0.0, 1, 1, 1, 1, 0, 0]))


def test_the_batch_is_a_valid_sparse_tensor_without_repeats():
    found = features(made(), TEXTS)
    checked = torch.sparse_coo_tensor(found.indices(), found.values(), found.shape, check_invariants=True).coalesce()
    assert torch.equal(checked.indices(), found.indices())


def test_rare_words_and_rare_ngrams_have_their_own_limits():
    assert "a" in made().terms
    assert "a" not in made(min_count=2).terms
    assert "a mouse" not in made().terms
    assert "a mouse" in made(min_ngram_count=1).terms
    assert not any(" " in term for term in made(ngrams=1).terms)


def test_the_most_frequent_terms_are_kept():
    assert made(max_terms=1, ngrams=1).terms == ("the",)


def test_tokens_may_be_split_on_whitespace():
    assert "mouse!" in made(["a Mouse! mouse"], tokens="whitespace").terms


def test_texts_without_words_are_an_error():
    with pytest.raises(InputError, match="no word"):
        made(["", "?!"])
    with pytest.raises(InputError, match="min_count: no word occurs in at least 9"):
        made(min_count=9, ngrams=1)


@pytest.mark.parametrize("longest", [0, 4])
@pytest.mark.parametrize("tokens", ["words", "whitespace"])
def test_a_saved_encoder_gives_exactly_the_same_features(tmp_path: Path, tokens: str, longest: int):
    texts = [*TEXTS, "na\u00efve caf\u00e9 \x85 x\u2028y\x0bz \u00a0 end", "caf\u00e9 na\u00efve"]
    options = {"tokens": tokens, "min_ngram_count": 1, "char_ngrams": longest, "min_char_ngrams": 2}
    encoder = made(texts, **options).half()  # a change of precision must not change the counts
    encoder.save(tmp_path)
    again = TfidfEncoder.load(tmp_path, TfidfOptions(**options))
    again.load_state_dict(encoder.state_dict())
    assert again.terms == encoder.terms
    before, after = made(texts, **options).encode(texts), again.encode(texts)
    assert after.weights is not None
    np.testing.assert_array_equal(after.values, before.values)
    np.testing.assert_array_equal(after.weights, before.weights)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"owl\nmou", "incomplete"),
        (b"owl\nowl\n", "twice"),
        (b"caf\xe9\n", "UTF-8"),
        (b"\tow\nowl\n", "after the words"),
    ],
)
def test_a_damaged_vocabulary_is_an_error(tmp_path: Path, content: bytes, told: str):
    (tmp_path / "vocabulary.txt").write_bytes(content)
    with pytest.raises(InputError, match=told):
        TfidfEncoder.load(tmp_path, TfidfOptions())


@pytest.mark.parametrize("longest", [0, 4])
def test_texts_may_be_encoded_together_or_separately(longest: int):
    encoder = made(char_ngrams=longest)
    whole = encoder.encode(TEXTS)
    for item, text in enumerate(TEXTS):
        alone, row = encoder.encode([text]), whole.take(np.array([item]))
        np.testing.assert_array_equal(alone.values, row.values)
        np.testing.assert_array_equal(alone.weights, row.weights)
    assert len(encoder.encode([])) == 0


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [0, 7])
def test_a_head_gives_the_same_result_for_sparse_and_dense_features(kind: type, bias: bool, rows: int):
    torch.manual_seed(0)
    head = kind(9, TAX, bias=bias)
    dense = torch.randn(rows, 9) * (torch.rand(rows, 9) < 0.3)
    sparse = dense.to_sparse()
    target = torch.arange(rows) % TAX.num_leaves
    for ask in (head, head.node_log_probs, head.predict, lambda h: head.topk(h, 3)):
        torch.testing.assert_close(ask(sparse), ask(dense))
    grads = []
    for h in (sparse, dense):
        head.zero_grad()
        head.loss(h, target, reduction="sum").backward()
        assert head.weight.grad.layout == torch.strided
        grads.append(head.weight.grad)
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("kind", HEADS)
def test_sparse_features_of_another_shape_are_an_error(kind: type):
    with pytest.raises(InputError, match="last dimension of 9"):
        kind(9, TAX)(torch.eye(4).to_sparse())
    with pytest.raises(InputError, match="two dimensions"):
        kind(9, TAX).loss(torch.zeros(2, 3, 9).to_sparse(), torch.zeros(2, 3, dtype=torch.int64))


@pytest.mark.parametrize("kind", HEADS)
def test_a_head_learns_from_sparse_features(kind: type):
    texts = ["hoot owl", "blue jay", "small mouse", "tufted lynx", "mountain puma"]
    encoder = made(texts)
    head = kind(encoder.out_features, TAX, init="zeros")
    optimiser = torch.optim.Adam(head.parameters(), lr=0.1)
    target = torch.tensor([TAX.class_of[TAX.find(text.split()[1])] for text in texts])
    for _ in range(50):
        optimiser.zero_grad()
        head.loss(features(encoder, texts), target).backward()
        optimiser.step()
    assert torch.equal(head.predict(features(encoder, ["the owl", "jay !", "mouse", "lynx", "puma"])), target)


def test_a_batch_keeps_empty_rows_at_its_end():
    encoder = made()
    rows = Ragged(np.array([1, 2]), np.array([0, 2, 2, 2]), np.array([0.6, 0.8], dtype=np.float32))
    assert encoder(*encoder.collate(rows)).shape == (3, encoder.out_features)
