"""Texts of nodes as features, and heads whose rows start from them or are tied to them. N nodes, D features."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import arbormax as am
from arbormax.data.examples import Examples
from arbormax.errors import OptionError
from arbormax.heads import HEADS
from arbormax.model import Model, TrainConfig
from arbormax.model.node_texts import (
    build_from_texts,
    node_features,
    node_vectors,
    refresh_ties,
    start_rows,
    tie_rows,
    untie_rows,
)
from text_toy import TAX, WORDS, make, small

NAMES = {label: " ".join(words) for label, words in WORDS.items()}
DESCRIBED = TAX.with_texts(NAMES)
ENCODERS = {"bag": {"dim": 16}, "tfidf": {}, "bilstm": {"hidden": 8, "dim": 8}}
TEXTS, LABELS = make()
TRAIN = Examples(TEXTS, TAX.find_many(LABELS))


def new(encoder="bag", head="hierarchical", **settings):
    options = {"encoder_options": ENCODERS[encoder], "names": "init", "solver": "adam"}
    config = TrainConfig.make(encoder=encoder, head=head, **options, **settings)
    return Model.new(TEXTS, DESCRIBED, config.resolved()).eval()


@pytest.mark.parametrize("encoder", ENCODERS)
def test_node_features_are_the_features_of_the_texts(encoder):
    model = new(encoder)
    features_ND = node_features(model)
    assert (features_ND.layout == torch.strided) == (encoder != "tfidf")
    found = torch.cat(list(model.features(list(DESCRIBED.texts)))).to_dense()
    torch.testing.assert_close(features_ND.to_dense(), found)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_the_vector_of_an_inner_node_is_the_mean_of_the_classes_below(encoder):
    model = new(encoder)
    unit_ND = F.normalize(node_features(model).to_dense(), dim=1)
    vectors_ND = node_vectors(model).to_dense()
    for node in range(DESCRIBED.num_nodes):
        below = [leaf for leaf in DESCRIBED.leaves.tolist() if node in (leaf, *DESCRIBED.ancestors(leaf).tolist())]
        expected = F.normalize(unit_ND[below].mean(0), dim=0)
        torch.testing.assert_close(vectors_ND[node], expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("head", list(HEADS))
def test_the_score_of_a_node_is_the_product_with_its_vector(encoder, head):
    model = new(encoder, head)
    start_rows(model)
    vectors_ND = node_vectors(model).to_dense()
    rows = torch.zeros(DESCRIBED.num_nodes, vectors_ND.shape[1])
    scored = torch.tensor(model.head.row_nodes())
    rows[scored] = model.head.weight.detach()
    if head == "shared":
        for node in range(1, DESCRIBED.num_nodes):
            rows[node] += rows[DESCRIBED.parent[node]]
    scale = rows[scored].norm(dim=1, keepdim=True)
    assert scale.min() > 0
    torch.testing.assert_close(rows[scored] / scale, vectors_ND[scored], atol=1e-5, rtol=1e-4)
    assert not model.head.bias.any()


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("names", ["init", "tied"])
def test_training_uses_the_texts_with_every_encoder_and_head(encoder, names):
    for head in HEADS:
        clf = small(DESCRIBED, encoder=encoder, head=head, names=names, encoder_options=ENCODERS[encoder], epochs=1)
        clf.fit(TEXTS, LABELS)
        assert {name for name, _ in clf.model_.head.named_parameters()} == {"weight", "bias"}
        assert set(clf.predict(TEXTS)) <= set(clf.classes_)


def test_informative_texts_start_close_to_the_labels():
    model = new("tfidf")
    start_rows(model, TRAIN)
    predicted = model.head.predict(torch.cat(list(model.features(TEXTS))))
    assert (TAX.leaves[predicted.numpy()] == TRAIN.nodes).mean() > 0.9


def test_uninformative_texts_start_at_zero():
    tax = TAX.with_texts(dict(zip(NAMES, [*list(NAMES.values())[1:], next(iter(NAMES.values()))], strict=True)))
    config = TrainConfig.make(encoder="tfidf", names="init", solver="adam").resolved()
    model = Model.new(TEXTS, tax, config)
    start_rows(model, TRAIN)
    assert not model.head.weight.any()


def test_words_of_the_texts_are_in_the_vocabulary():
    tax = TAX.with_texts({"med": "stethoscope"})
    for encoder in ("bag", "tfidf"):
        plain = Model.new(TEXTS, tax, TrainConfig.make(encoder=encoder))
        named = Model.new(TEXTS, tax, TrainConfig.make(encoder=encoder, names="init"))
        first, second = (model.encoder.encode(["stethoscope"]).values.tolist() for model in (plain, named))
        assert first != second


def without(label):
    kept = [place for place, other in enumerate(LABELS) if other != label]
    return [TEXTS[place] for place in kept], [LABELS[place] for place in kept]


@pytest.mark.parametrize("head", list(HEADS))
def test_a_tied_class_without_examples_is_predicted_from_its_text(head):
    texts, labels = without("mac")
    settings = {"encoder": "tfidf", "encoder_options": {}, "head": head, "learning_rate": 0.05, "epochs": 8}
    tied = small(DESCRIBED, names="tied", **settings).fit(texts, labels)
    plain = small(DESCRIBED, **settings).fit(texts, labels)
    assert tied.predict(["the apple finder"]).tolist() == ["mac"]
    assert plain.predict(["the apple finder"]).tolist() != ["mac"]
    assert tied.score(texts, labels) > 0.9


def test_a_class_without_examples_does_not_compete_in_training():
    model = new("tfidf", "flat")
    texts, labels = without("mac")
    tie_rows(model, Examples(texts, TAX.find_many(labels)))
    features = torch.cat(list(model.features(texts[:3])))
    mac = int(TAX.class_of[TAX.find("mac")])
    assert model.head.train()(features)[:, mac].exp().max() == 0
    assert model.head.eval()(features)[:, mac].exp().min() > 0
    untie_rows(model)
    assert model.head(features)[:, mac].exp().min() > 0


def test_untying_keeps_the_predictions():
    for encoder in ENCODERS:
        model = new(encoder)
        tie_rows(model, TRAIN)
        features = torch.cat(list(model.features(TEXTS)))
        before = model.head.eval()(features).detach()
        untie_rows(model)
        torch.testing.assert_close(model.head(features).detach(), before)


def test_ties_follow_an_encoder_that_is_trained():
    model = new("bag")
    tie_rows(model, TRAIN)
    before = model.head.weight.detach().clone()
    with torch.no_grad():
        model.encoder.weight.add_(torch.randn_like(model.encoder.weight))
    refresh_ties(model)
    assert not torch.equal(model.head.weight, before)


def test_labels_at_inner_nodes_count_as_examples_of_the_classes_below():
    texts, labels = without("mac")
    clf = small(DESCRIBED, names="tied", head="flat").fit([*texts, "apple"] * 2, [*labels, "sys"] * 2)
    assert np.isfinite(clf.predict_log_proba(texts)).all()


def test_a_model_from_texts_alone():
    for encoder, options in ENCODERS.items():
        for head in HEADS:
            config = TrainConfig.make(encoder=encoder, head=head, encoder_options=options)
            model = build_from_texts(config, DESCRIBED).model
            assert model.config.names == "only"
            nodes = torch.cat(list(model.node_log_probs(["apple finder"]))).exp()
            assert nodes[0, 0] == pytest.approx(1)
    clf = am.TextClassifier(DESCRIBED, encoder="tfidf", head="flat").fit_texts()
    assert clf.predict(["an apple finder", "a doctor"]).tolist() == ["mac", "med"]


def test_a_trained_model_is_the_same_with_the_same_seed():
    for names in ("init", "tied"):
        first, second = (small(DESCRIBED, names=names, seed=3).fit(TEXTS, LABELS) for _ in range(2))
        np.testing.assert_array_equal(first.predict_log_proba(TEXTS), second.predict_log_proba(TEXTS))


def test_a_saved_model_keeps_the_texts(tmp_path):
    clf = small(DESCRIBED, names="tied").fit(TEXTS, LABELS)
    clf.save(tmp_path / "model")
    loaded = am.TextClassifier.load(tmp_path / "model")
    assert loaded.taxonomy_.texts == DESCRIBED.texts
    assert loaded.names == "tied"
    np.testing.assert_array_equal(loaded.predict_log_proba(TEXTS), clf.predict_log_proba(TEXTS))


def test_misuse():
    with pytest.raises(OptionError, match=r"names: expected 'none', 'init', 'tied' or 'only', found 'all'"):
        small(DESCRIBED, names="all").fit(TEXTS, LABELS)
    with pytest.raises(OptionError, match="names: cannot be combined with sparse_head"):
        small(DESCRIBED, names="tied", sparse_head=True).fit(TEXTS, LABELS)
    with pytest.raises(OptionError, match="names: 'only' uses no training data"):
        small(DESCRIBED, names="only").fit(TEXTS, LABELS)
    with pytest.raises(OptionError, match="taxonomy: "):
        am.TextClassifier().fit_texts()
    with pytest.raises(OptionError, match="names: needs an encoder of texts"):
        TrainConfig.make(encoder="features", encoder_options={"inputs": 3}, names="init").check()


def test_tied_rows_are_trained_with_checkpoints(tmp_path):
    clf = small(DESCRIBED, names="tied", folder=tmp_path / "run", validation=0.2).fit(TEXTS, LABELS)
    loaded = am.TextClassifier.load(tmp_path / "run")
    np.testing.assert_array_equal(loaded.predict_log_proba(TEXTS), clf.predict_log_proba(TEXTS))


def test_tied_rows_need_the_strategy_ddp_on_several_devices():
    with pytest.raises(OptionError, match="names: on several devices needs the strategy ddp"):
        small(DESCRIBED, names="tied", devices=2).fit(TEXTS, LABELS)
