"""Costs of mistakes in requests to the service."""

import numpy as np
import pytest
from serve_tools import problem, served

from arbormax import decode

CLASSES = ["owl", "hen", "cod", "eel", "oak", "rye"]
TEXTS = ["an old eelish", "the owlish", "zebra", "henish codish"]
RISK = {"decoder": "optimal", "metric": "risk"}


def table(seed=0):
    """Costs that make the most probable class a bad prediction for some of the texts."""
    values = np.random.default_rng(seed).integers(0, 20, (6, 6)) * (1.0 - np.eye(6))
    return values.tolist()


def labels(client, **body):
    response = client.post("/v1/predict", json={"texts": TEXTS, **RISK, **body})
    assert response.status_code == 200, response.text
    return [row["label"] for row in response.json()["predictions"]]


@pytest.mark.parametrize("seed", range(5))
def test_costs_choose_the_class_with_the_smallest_expected_cost(client, model, seed):
    tax, costs = model.taxonomy, np.array(table(seed))
    logp = next(model.node_log_probs(TEXTS))
    expected = [tax.label(node) for node in decode.optimal(logp, tax, "risk", costs=costs).tolist()]
    assert labels(client, costs={"rows": costs.tolist()}) == expected
    order = np.random.default_rng(seed).permutation(6)
    named = {"classes": [tax.classes[place] for place in order], "rows": costs[np.ix_(order, order)].tolist()}
    assert labels(client, costs=named) == expected
    body = {"text": TEXTS[0], **RISK, "costs": named}
    assert client.post("/v1/explain", json=body).json()["label"] == expected[0]


def test_texts_of_equal_costs_are_predicted_together(model):
    with served(model) as client:
        service = client.app.state.service
        first, second = (service.decodings(request(client, table(0)), 1)[0] for _ in range(2))
        assert first == second
        assert first != service.decodings(request(client, table(1)), 1)[0]


def request(client, rows):
    from arbormax.serve.schemas import predict_request

    return predict_request(client.app.state.service.settings, 6)(text="a", **RISK, costs={"rows": rows})


@pytest.mark.parametrize(
    ("body", "pointer", "message"),
    [
        ({"costs": {"rows": table()[:5]}}, "#/costs/rows", "at least 6 items"),
        ({"costs": {"rows": [row[:5] for row in table()]}}, "#/costs/rows/0", "at least 6 items"),
        ({"costs": {"rows": [[*row, 1.0] for row in table()]}}, "#/costs/rows/0", "at most 6 items"),
        ({"costs": {"rows": [["a"] * 6] * 6}}, "#/costs/rows/0/0", "a valid number"),
        ({"costs": {"rows": [[-1] * 6] * 6}}, "#/costs/rows/0/0", "greater than or equal to 0"),
        ({"costs": table()}, "#/costs", "an object"),
        ({"costs": {"rows": table(), "classes": [*CLASSES[:5], "ry"]}}, "#/costs", "did you mean 'rye'"),
        ({"costs": {"rows": table(), "classes": [*CLASSES[:5], "owl"]}}, "#/costs", "'owl' is there twice"),
        ({"costs": {"rows": table(), "classes": [*CLASSES[:5], "animal"]}}, "#/costs", "'animal' is no class"),
        ({"costs": {"rows": table(), "classes": CLASSES[:5]}}, "#/costs/classes", "at least 6 items"),
        ({"costs": {"rows": table(), "names": CLASSES}}, "#/costs/names", "unknown field"),
        ({"costs": {"rows": table()}, "metric": "hf"}, "#/costs", "an option of the metric 'risk'"),
        ({"costs": {"rows": table()}, "decoder": "leaf", "metric": None}, "#/costs", "of the decoder 'optimal'"),
    ],
)
def test_wrong_costs_are_problems_at_their_place(client, body, pointer, message):
    content = problem(client.post("/v1/predict", json={"text": "a", **RISK, **body}), 422)
    assert content["errors"][0]["pointer"] == pointer
    assert message in content["errors"][0]["detail"]


def test_costs_and_a_coverage_exclude_each_other(client):
    body = {"text": "a", "coverage": 0.9, "costs": {"rows": table()}}
    content = problem(client.post("/v1/predict", json=body), 422)
    assert content["errors"][0]["pointer"] == "#/coverage"


def test_infinite_costs_are_refused(client):
    rows = str(table()).replace("0.0", "1e999")
    body = f'{{"text": "a", "decoder": "optimal", "metric": "risk", "costs": {{"rows": {rows}}}}}'
    response = client.post("/v1/predict", content=body, headers={"content-type": "application/json"})
    assert "finite" in str(problem(response, 422))


def test_a_model_with_more_classes_than_the_limit_takes_no_costs(model):
    with served(model, max_cost_classes=5) as client:
        content = problem(client.post("/v1/predict", json={"text": "a", **RISK, "costs": {"rows": table()}}), 422)
        assert content["errors"][0]["detail"] == "not available, because the model has more than 5 classes"
        schema = client.get("/openapi.json").json()["paths"]["/v1/predict"]["post"]["requestBody"]["content"]
        assert schema["application/json"]["schema"]["properties"]["costs"]["type"] == "null"


def test_the_document_and_the_description_tell_the_size_and_the_metrics(client):
    schema = client.get("/openapi.json").json()["paths"]["/v1/predict"]["post"]["requestBody"]["content"]
    rows = schema["application/json"]["schema"]["properties"]["costs"]["anyOf"][0]["properties"]["rows"]
    assert (rows["minItems"], rows["maxItems"], rows["items"]["maxItems"]) == (6, 6, 6)
    info = client.get("/v1/model").json()
    assert info["limits"]["max_cost_classes"] == 500
    by_name = {each["name"]: each for each in info["decoders"]}
    assert by_name["optimal"]["costs"]
    assert "risk" in by_name["optimal"]["choices"]["metric"]
    assert not by_name["leaf"]["costs"]
