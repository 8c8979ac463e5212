"""Decoders by name, restrictions and reasons in the service."""

import pytest
from serve_tools import TEXTS, problem

import arbormax as am


def predict(client, **body):
    response = client.post("/v1/predict", json=body)
    assert response.status_code == 200, response.text
    return response.json()["predictions"]


@pytest.mark.parametrize("decoder", am.decode.NAMES)
def test_every_decoder_answers_by_name(client, clf, decoder):
    found = predict(client, texts=TEXTS, decoder=decoder)
    assert [row["node"] for row in found] == clf.predict_nodes(TEXTS, decoder=decoder).tolist()


@pytest.mark.parametrize(("metric", "options"), [("hf", {"beta": 0.5}), ("information", {"lam": 2.0}), ("risk", {})])
def test_the_optimal_decoder_takes_a_metric(client, clf, metric, options):
    found = predict(client, texts=TEXTS, decoder="optimal", metric=metric, **options)
    nodes = clf.predict_nodes(TEXTS, decoder="optimal", metric=metric, **options)
    assert [row["node"] for row in found] == nodes.tolist()
    assert problem(client.post("/v1/predict", json={"text": "a", "metric": "hff"}), 422)["errors"][0]["pointer"] == (
        "#/metric"
    )


def test_texts_are_restricted_together_or_each(client, clf):
    labels = {row["label"] for row in predict(client, texts=TEXTS, within=["animal > bird", "oak"], without=["hen"])}
    assert labels == {"owl", "oak"}
    each = [["fish"], None, [2]]
    found = [row["label"] for row in predict(client, texts=TEXTS[:3], within=each)]
    assert found == clf.predict(TEXTS[:3], within=each).tolist()
    assert {row["label"] for row in predict(client, text=TEXTS[0], top_k=2, within=["fish"])[0]["top"]} == {
        "cod",
        "eel",
    }
    body = {"text": "an owlish text", "within": ["fish"]}
    assert client.post("/v1/explain", json=body).json()["path"][:2] == ["animal", "fish"]


@pytest.mark.parametrize(
    ("body", "pointer", "detail"),
    [
        ({"within": ["fishes"]}, "#/within", "did you mean 'fish'"),
        ({"within": [99]}, "#/within", "from 0 to 10"),
        ({"within": []}, "#/within", "at least one node"),
        ({"without": ["animal", "plant"]}, "#/without", "leaves no class"),
        ({"within": [["fish"], None]}, "#/within", "one for each text"),
    ],
)
@pytest.mark.parametrize("path", ["predict", "explain"])
def test_an_impossible_restriction_is_a_problem_with_its_place(client, path, body, pointer, detail):
    response = client.post(f"/v1/{path}", json={"text": "an owl", **body})
    content = problem(response, 422)
    if path == "predict" or "each text" not in detail:
        assert content["errors"][0]["pointer"] == pointer
        assert detail in content["errors"][0]["detail"]


def test_a_prediction_above_the_classes_has_a_reason(client):
    (row,) = predict(client, text="zzz", tau=0.9999)
    assert row["reason"].startswith("With a threshold of 99.99 %, the prediction stops at the root, because ")
    found = client.post("/v1/explain", json={"text": "zzz", "tau": 0.9999}).json()
    assert found["reason"] == row["reason"]
    assert predict(client, text=TEXTS[0])[0]["reason"] is None


def test_only_allowed_classes_are_listed(client):
    found = predict(client, texts=TEXTS[:2], within=[["fish"], None], top_k=4)
    assert [len(row["top"]) for row in found] == [len(row["alternatives"]) for row in found] == [2, 4]


def test_the_k_of_beam_is_the_number_of_alternatives(client):
    for body in ({"decoder": "beam", "k": 3}, {"k": 3}, {"decoder": "beam", "top_k": 3}, {"k": 3, "top_k": 3}):
        assert len(predict(client, text=TEXTS[0], **body)[0]["top"]) == 3
    assert len(predict(client, text=TEXTS[0], decoder="beam")[0]["top"]) == 5
    content = problem(client.post("/v1/predict", json={"text": "a", "decoder": "beam", "k": 3, "top_k": 2}), 422)
    assert content["errors"][0]["pointer"] == "#/top_k"


def test_a_coverage_refuses_a_restriction(client):
    body = {"text": "a", "coverage": 0.9, "within": ["fish"]}
    content = problem(client.post("/v1/predict", json=body), 422)
    assert content["errors"][0]["pointer"] == "#/within"
    assert "cannot be combined with a restriction" in content["errors"][0]["detail"]


@pytest.mark.parametrize(
    ("body", "pointer", "detail"),
    [
        ({"lam": 2}, "#/lam", "it is an option of the metric 'information'"),
        ({"decoder": "leaf", "tau": 0.5}, "#/tau", "it is an option of the decoder 'threshold' or 'climb'"),
    ],
)
def test_an_option_of_another_decoder_or_metric_names_it(client, body, pointer, detail):
    content = problem(client.post("/v1/predict", json={"text": "a", **body}), 422)
    assert content["errors"][0]["pointer"] == pointer
    assert detail in content["errors"][0]["detail"]


@pytest.mark.parametrize("path", ["predict", "explain"])
def test_a_single_node_or_a_misspelled_decoder_is_one_clear_error(client, path):
    for body, pointer, detail in (
        ({"within": "fish"}, "#/within", "expected a list of nodes"),
        ({"without": 2}, "#/without", "expected a list of nodes"),
        ({"decoder": "treshold"}, "#/decoder", "did you mean 'threshold'?"),
    ):
        (error,) = problem(client.post(f"/v1/{path}", json={"text": "a", **body}), 422)["errors"]
        assert error["pointer"] == pointer
        assert detail in error["detail"]
