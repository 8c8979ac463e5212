"""The service of a model with uncertainty."""

import pytest
from page_tools import tiny_model, uncertain_model
from serve_tools import served

from arbormax.model.predict import predict


def test_a_response_has_the_uncertainty_of_each_step():
    model = uncertain_model()
    with served(model) as client:
        [found] = client.post("/v1/predict", json={"text": "a river"}).json()["predictions"]
        body = {"text": "a river", "within": ["place"]}
        explained = client.post("/v1/explain", json=body).json()["steps"]
        [restricted] = client.post("/v1/predict", json=body).json()["predictions"]
    (expected,) = predict(model, ["a river"])
    assert found["uncertainty"] == expected.to_dict()["uncertainty"]
    assert all(len(values) == len(found["path"]) for values in found["uncertainty"].values())
    for name, values in restricted["uncertainty"].items():
        assert [step["uncertainty"][name] for step in explained] == pytest.approx(values, abs=1e-5)


def test_a_model_without_it_has_no_such_field():
    with served(tiny_model()) as client:
        [found] = client.post("/v1/predict", json={"text": "a river"}).json()["predictions"]
    assert "uncertainty" not in found
