"""New classes whose rows start from their texts."""

import numpy as np
import pytest
import torch

import arbormax as am
from arbormax.heads import HEADS
from arbormax.taxonomy.edits.from_text import MOST_ROWS, choose_rows, row_factors
from text_toy import TAX, WORDS, make, small

TEXTS, LABELS = make()
DESCRIBED = TAX.with_texts({label: " ".join(words) for label, words in WORDS.items()})


def trained(head, **settings):
    options = {"encoder": "tfidf", "encoder_options": {}, "head": head, "epochs": 5}
    return small(DESCRIBED, **{**options, **settings}).fit(TEXTS, LABELS)


@pytest.mark.parametrize("head", list(HEADS))
def test_a_new_class_resembles_classes_with_similar_texts(head):
    texts = ["the apple finder", "the bios dos"]
    with_text, without = trained(head), trained(head)
    am.edit(with_text).add("ipad", under="sys", text="apple finder tablet").done()
    am.edit(without).add("ipad", under="sys").done()
    assert with_text.taxonomy_.texts[with_text.taxonomy_.find("ipad")] == "apple finder tablet"
    column = with_text.classes_.tolist().index("ipad")
    apple, bios = with_text.predict_log_proba(texts)[:, column]
    plain_apple, plain_bios = without.predict_log_proba(texts)[:, column]
    assert apple > bios
    assert apple > plain_apple
    assert bios <= plain_bios + 1e-5


@pytest.mark.parametrize("head", list(HEADS))
def test_a_new_class_keeps_its_share_at_the_origin(head):
    clf = trained(head)
    done = am.edit(clf).add("ipad", under="sys", text="apple finder tablet", share=0.2).done()
    tax = done.taxonomy
    probs = done.head.node_log_probs(torch.zeros(clf.model_.head.in_features)).exp()
    ratio = probs[tax.find("ipad")] / probs[tax.find("sys")]
    assert float(ratio.detach()) == pytest.approx(0.2, abs=1e-4)


def test_other_rows_do_not_change():
    clf, same = trained("hierarchical"), trained("hierarchical")
    before = same.model_.head.weight.detach()
    done = am.edit(clf).add("ipad", under="sys", text="apple").done()
    kept = done.node_map[1:] - 1
    assert torch.equal(done.head.weight.detach()[torch.tensor(kept)], before)


def test_a_head_without_an_encoder_stores_the_text_only():
    head = am.HierarchicalSoftmax(8, TAX)
    with_text = am.edit(head).add("ipad", under="sys", text="apple").done()
    without = am.edit(head).add("ipad", under="sys").done()
    assert torch.equal(with_text.head.weight, without.head.weight)
    assert with_text.taxonomy.texts[with_text.taxonomy.find("ipad")] == "apple"


def test_an_exact_map_is_recovered():
    draw = np.random.default_rng(0)
    vectors, groups = draw.normal(size=(60, 4)), np.repeat(np.arange(6), 10)
    linear = draw.normal(size=(4, 3))
    rows = vectors @ linear + draw.normal(size=(6, 3))[groups]
    new = draw.normal(size=4)
    factors = row_factors(vectors @ vectors.T, vectors @ new, groups, groups == 2)
    expected = (new - vectors[groups == 2].mean(0)) @ linear
    np.testing.assert_allclose(factors @ rows, expected, rtol=0.2, atol=0.05)
    assert factors.sum() == pytest.approx(0, abs=1e-9)


def test_the_regression_is_bounded():
    rivals = np.array([17, 18])
    chosen = choose_rows(np.arange(1, 100_000), rivals)
    assert len(chosen) <= MOST_ROWS
    assert set(rivals) <= set(chosen.tolist())
