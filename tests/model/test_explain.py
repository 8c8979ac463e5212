"""Explanations: the steps, what else was possible, and the words that mattered."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import arbormax as am
from arbormax.data.tokens import spans, words
from arbormax.encoders import BagEncoder, Encoder
from arbormax.errors import InputError, OptionError
from arbormax.model import Model, TrainConfig
from arbormax.model.explain import explain
from arbormax.model.predict import Decoding
from arbormax.taxonomy import Taxonomy
from arbormax.training import fit
from strategies import taxonomies
from toy import TREE, examples
from toy import settings as toy_settings

TEXTS = ["the owl sat on a mat", "Where is the ½ owl’s ﬁnd of 東京 ?", "a mat, the mat"]
ODD = ["", "   ", "!?", "zzz", "नमस्ते दुनिया", "\ud800 x", "<script>alert(1)</script>", "mat " * 2000]
SMALL = {"bag": {"dim": 8}, "lstm": {"dim": 4, "hidden": 5}, "bilstm": {"dim": 4, "hidden": 5}, "tfidf": {}}
HEADS = ["hierarchical", "flat", "shared"]


def untrained(tax=TREE, encoder="bag", head="hierarchical", **options) -> Model:
    """A model with weights that differ enough for its probabilities to."""
    config = TrainConfig.make(encoder=encoder, head=head, encoder_options={**SMALL.get(encoder, {}), **options})
    model = Model.new(TEXTS * 3, tax, config)
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw))
    return model.eval()


def logs(model: Model, texts: list[str]) -> np.ndarray:
    return torch.cat(list(model.node_log_probs(texts))).double().numpy()


@pytest.fixture(scope="module")
def trained() -> Model:
    return fit(toy_settings(validation=0.0), TREE, examples(), progress=False).model


# --------------------------------------------------------------------------------------------------- the relevant part


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(taxonomies(), st.sampled_from(HEADS), st.integers(1, 4), st.floats(0, 0.99), st.data())
def test_nodes_and_steps_agree_with_the_model(tax, head, siblings, tau, data):
    model = untrained(tax, head=head)
    node = data.draw(st.none() | st.integers(0, tax.num_nodes - 1))
    decoding = Decoding.choose(tau=tau)
    found = explain(model, TEXTS[0], decoding=decoding, siblings=siblings, node=node, words=False)
    logp = logs(model, TEXTS[:1])
    answer = int(decoding.nodes(torch.from_numpy(logp), tax)) if node is None else node
    assert (found["node"], tuple(found["path"])) == (answer, tax.path(answer))
    assert found["probability"] == pytest.approx(math.exp(logp[0, answer]), rel=1e-5)
    # the steps go through the answer and end at the best leaf below it
    steps = [step["node"] for step in found["steps"]]
    assert found["stopped_at"] == len(found["path"])
    assert answer == ([0, *steps])[found["stopped_at"]]
    assert [step["name"] for step in found["steps"]] == list(tax.path(steps[-1]))
    below = [leaf for leaf in tax.leaves.tolist() if answer in (leaf, *tax.ancestors(leaf))]
    assert logp[0, steps[-1]] == logp[0, below].max()
    # every node of the path lists its best children, the others are counted
    nodes = {node["node"]: node for node in found["nodes"]}
    assert next(iter(nodes)) == 0
    assert [node for node in nodes if nodes[node]["on_path"]] == [0, *steps]
    for number, node in nodes.items():
        listed = [other for other in nodes.values() if other["parent"] == number]
        children = tax.children(number).tolist()
        assert node["children"] == len(listed) + node["hidden"] == len(children)
        assert node["classes"] == tax.leaf_counts[number]
        if children:
            total = sum(child["probability"] for child in listed) + node["hidden_probability"]
            assert total == pytest.approx(node["probability"], rel=1e-4)
        if node["parent"] is not None:
            assert list(nodes).index(node["parent"]) < list(nodes).index(number)
            chance = math.exp(logp[0, number] - logp[0, node["parent"]])
            assert node["conditional"] == pytest.approx(min(1, chance), rel=1e-4)
        if listed:
            assert len(listed) == min(siblings, len(children))
            hidden = set(children) - {child["node"] for child in listed}
            others = [logp[0, child["node"]] for child in listed if child["node"] not in steps]
            assert all(logp[0, child] <= min(others, default=math.inf) for child in hidden)


def test_the_hidden_probability_is_at_most_one():
    for others in range(2, 40):  # whose probabilities add up to a little more than one for some of them
        model = untrained(Taxonomy.from_nested([str(leaf) for leaf in range(others + 1)]))
        with torch.no_grad():
            model.head.weight.zero_()
            model.head.bias.zero_()[0] = -30.0
        root = explain(model, TEXTS[0], siblings=1, node=1, words=False)["nodes"][0]
        assert root["hidden"] == others
        assert 1 - 1e-5 < root["hidden_probability"] <= 1


def test_steps_lead_through_a_node_that_is_not_above_the_best_leaf():
    model = untrained()
    logp = logs(model, TEXTS[:1])[0]
    best = TREE.leaves[np.argmax(logp[TREE.leaves])]
    other = next(node for node in (1, 2) if node not in TREE.ancestors(best))
    found = explain(model, TEXTS[0], node=other)
    assert found["steps"][0]["node"] == other
    assert len(found["steps"]) > found["stopped_at"] == 1


def test_a_root_prediction_has_no_path():
    found = explain(untrained(), TEXTS[0], decoding=Decoding.choose(tau=0.999999))
    assert (found["label"], found["path"], found["stopped_at"], found["probability"]) == ("", [], 0, 1.0)
    assert found["steps"]


@pytest.mark.parametrize("given", [{"siblings": 0}, {"node": -1}, {"node": TREE.num_nodes}])
def test_invalid_arguments_are_errors(given):
    with pytest.raises(OptionError, match=str(next(iter(given.values())))):
        explain(untrained(), "owl", **given)
    with pytest.raises(InputError, match="list"):
        explain(untrained(), ["owl"])


# ----------------------------------------------------------------------------------------------------------- the words


@pytest.mark.parametrize("encoder", SMALL)
@pytest.mark.parametrize("text", [*TEXTS, *ODD], ids=range(len(TEXTS + ODD)))
def test_tokens_are_parts_of_the_text(encoder, text):
    found = explain(untrained(encoder=encoder), text)
    json.dumps(found, allow_nan=False)
    ends = [0]
    for token in found["tokens"]:
        assert token["text"] == text[token["start"] : token["end"]] != ""
        assert token["start"] >= ends[-1]
        ends.append(token["end"])
    assert {len(step["words"]) for step in found["steps"]} == {len(found["tokens"])}
    assert found["words_method"] == "gradient × input"


@pytest.mark.parametrize("encoder", SMALL)
@pytest.mark.parametrize("text", [*TEXTS, "", "zzz", "mat " * 600], ids=range(6))
def test_gates_of_one_do_not_change_the_features(encoder, text):
    model = untrained(encoder=encoder)
    given = model.encoder.gated_features(text, torch.ones(len(model.encoder.spans(text))))
    usual = model.encoder(*model.encoder.collate(model.encoder.encode([text])))
    assert torch.allclose(given.to_dense(), usual.to_dense(), atol=1e-6)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("encoder", SMALL)
def test_a_contribution_is_the_gradient_of_a_gate(encoder, head):
    model = untrained(encoder=encoder, head=head)
    text, small = TEXTS[0], 1e-2
    found = explain(model, text)
    for place in range(len(found["tokens"])):
        ends = []
        for change in (-small, small):
            gates = torch.ones(len(found["tokens"]))
            gates[place] += change
            ends.append(model.head.node_log_probs(model.encoder.gated_features(text, gates))[0].detach())
        for step in found["steps"]:
            node, parent = step["node"], TREE.parent[step["node"]]
            low, high = (float(logp[node] - logp[parent]) for logp in ends)
            assert step["words"][place] == pytest.approx((high - low) / (2 * small), abs=2e-3, rel=1e-2)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize(
    ("encoder", "options"),
    [
        ("bag", {"char_ngrams": 0}),
        ("bag", {"char_ngrams": 5}),
        ("tfidf", {"char_ngrams": 0}),
        ("tfidf", {"char_ngrams": 4}),
    ],
)
def test_contributions_of_a_linear_model_sum_to_the_log_odds_of_siblings(encoder, options, head):
    model = untrained(encoder=encoder, head=head, **options)
    with torch.no_grad():
        model.head.bias.zero_()
    one, other = (explain(model, TEXTS[1], node=TREE.find(leaf))["steps"][-1] for leaf in ("owl", "hen"))
    odds = math.log(one["conditional"] / other["conditional"])
    assert sum(one["words"]) - sum(other["words"]) == pytest.approx(odds, rel=1e-4)


def test_the_deciding_word_has_the_largest_contribution(trained):
    for leaf in TREE.classes:
        text = f"some old {leaf}ish in the"
        found = explain(trained, text)
        assert found["label"] == leaf
        without = [text[: token["start"]] + text[token["end"] :] for token in found["tokens"]]
        logp = logs(trained, [text, *without])
        for step in found["steps"]:
            conditional = logp[:, step["node"]] - logp[:, TREE.parent[step["node"]]]
            lost = conditional[0] - conditional[1:]
            assert np.argmax(step["words"]) == np.argmax(lost) == 2
            assert step["words"][2] > 0
            strong = np.abs(lost) > 0.2 * np.abs(lost).max()
            assert (np.sign(step["words"])[strong] == np.sign(lost)[strong]).all()


@pytest.fixture(scope="module", params=["tfidf", "bag"])
def negations(request):
    """A model of phrases in which no single word tells the class."""
    texts = ["so good", "not bad", "so bad", "not good"] * 10
    options = {"ngrams": 2, "char_ngrams": 0, "min_count": 1}
    tree = am.Taxonomy.from_nested({"review": ["praise", "blame"], "other": ["rest"]})
    epochs = {"epochs": 4} if request.param == "bag" else {}
    clf = am.TextClassifier(tree, encoder=request.param, encoder_options=options, validation=0, seed=0, **epochs)
    return clf.fit([*texts, *["nothing here"] * 10], ["praise", "praise", "blame", "blame"] * 10 + ["rest"] * 10)


def test_an_ngram_that_decides_is_the_largest_part(negations):
    for text, label in (("not bad", "praise"), ("not good", "blame")):
        found = negations.explain(text)
        assert found["path"] == ["review", label]
        best = found["steps"][1]["parts"][0]
        assert (best["text"], best["value"] > 0) == (text, True)
        assert text[best["start"] : best["end"]] == text
        single = [part["value"] for part in found["steps"][1]["parts"] if " " not in part["text"]]
        assert best["value"] > 2 * max(map(abs, single), default=0.0)


def test_parts_are_the_words_and_ngrams_without_negligible_ones(negations, monkeypatch):
    assert negations.explain("nothing here")["steps"][1]["parts"] == []  # an only child: nothing matters
    shown = negations.explain("not so good and not bad")["steps"]
    monkeypatch.setattr("arbormax.model.explain.NEGLIGIBLE", 0.0)
    monkeypatch.setattr("arbormax.model.explain.NEGLIGIBLE_SHARE", 0.0)
    every = negations.explain("not so good and not bad")["steps"]
    for step, all_parts in zip(shown, every, strict=True):
        values = [part["value"] for part in all_parts["parts"]]
        assert sum(values) == pytest.approx(sum(step["words"]), abs=1e-6)
        assert values == sorted(values, key=abs, reverse=True)
        kept = [value for value in values if abs(value) >= max(0.005, 0.05 * abs(values[0]))]
        assert [part["value"] for part in step["parts"]] == kept


def test_a_word_beyond_the_length_limit_contributes_nothing():
    found = explain(untrained(encoder="bilstm", max_length=3), TEXTS[0])
    for step in found["steps"]:
        assert all(step["words"][:3])
        assert step["words"][3:] == [0, 0, 0]


@pytest.fixture
def gateless(monkeypatch) -> Model:
    """A model whose encoder has what every encoder has, and no more."""
    monkeypatch.setattr(BagEncoder, "gated_features", Encoder.gated_features)
    monkeypatch.setattr(BagEncoder, "spans", Encoder.spans)
    return untrained()


def test_an_encoder_without_gates_uses_leave_one_out(gateless):
    model = gateless
    text = "a sat-on owl, 東京"
    found = explain(model, text)
    assert found["words_method"] == "leave one out"
    assert [token["text"] for token in found["tokens"]] == text.split()
    logp = logs(model, [text, " sat-on owl, 東京", "a  owl, 東京", "a sat-on  東京", "a sat-on owl, "])
    for step in found["steps"]:
        conditional = logp[:, step["node"]] - logp[:, TREE.parent[step["node"]]]
        assert step["words"] == pytest.approx((conditional[0] - conditional[1:]).tolist(), abs=1e-5)
    assert explain(model, "")["tokens"] == []


def test_leave_one_out_groups_the_words_of_a_long_text(gateless, monkeypatch):
    encode, seen = gateless.encoder.encode, []
    monkeypatch.setattr(gateless.encoder, "encode", lambda texts: seen.extend(texts) or encode(texts))
    found = explain(gateless, "owl " * 5000)
    assert len(seen) < 300
    assert len(found["tokens"]) == len(found["steps"][0]["words"]) == 5000


def test_explain_keeps_the_mode_and_the_gradients_of_the_model():
    model = untrained(dropout=0.5).train()
    with torch.inference_mode():
        assert explain(model, TEXTS[0]) == explain(model, TEXTS[0])
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_words_can_be_disabled(trained):
    found = explain(trained, "an owlish hen", words=False)
    assert (found["tokens"], found["words_method"], found["steps"][0]["words"]) == ([], None, [])


@given(st.text() | st.text("aǅΣ½ﬁ’'İ\u0301\u3099\uff9eｶ각\u1100\u1161\u11a8 .é"))
def test_tokens_have_positions_in_the_text(text):
    places = spans(text)
    assert len(places) == len(words(text))
    for (start, end), word in zip(places, words(text), strict=True):
        assert 0 <= start < end <= len(text)
        found = [part.replace("ς", "σ") for part in words(text[start:end])]
        assert word.replace("ς", "σ") in found
    assert len(spans(text, "whitespace")) == len(text.split())
