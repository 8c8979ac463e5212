"""The service of a model with uncertainty."""

from copy import deepcopy

from page_tools import tiny_model
from serve_tools import served

from arbormax.data.examples import Examples
from arbormax.model.posterior import UNCERTAINTIES, Trained
from arbormax.model.predict import predict


def test_a_response_has_the_uncertainty_of_each_step():
    model = deepcopy(tiny_model())  # others use it, too
    kind = UNCERTAINTIES["laplace"]
    labelled = Examples(["a river"], model.taxonomy.leaves[:1])
    model.posterior = kind.fit(Trained(model, labelled), kind.Options(draws=5))
    with served(model) as client:
        [found] = client.post("/v1/predict", json={"text": "a river"}).json()["predictions"]
    (expected,) = predict(model, ["a river"])
    assert found["uncertainty"] == [step._asdict() for step in expected.uncertainty]
    assert len(found["uncertainty"]) == len(found["path"])


def test_a_model_without_it_has_no_such_field():
    with served(tiny_model()) as client:
        [found] = client.post("/v1/predict", json={"text": "a river"}).json()["predictions"]
    assert "uncertainty" not in found
