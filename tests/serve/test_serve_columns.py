"""A model that was trained on several columns, in the service."""

import pytest
from serve_tools import problem, served

import arbormax as am

ROWS = [
    {"name": "scarf", "about": "warm", "brand": "Acme"},
    {"name": "ball", "about": "round", "brand": "Bolt"},
] * 10


@pytest.fixture(scope="module")
def fitted():
    tree = {"goods": ["shop", "sport"]}
    return am.TextClassifier(tree, text_columns=["name", "about"], also=["brand"]).fit(ROWS, ["shop", "sport"] * 10)


@pytest.fixture(scope="module")
def client(fitted):
    with served(fitted.model_) as client:
        yield client


def test_the_columns_of_a_row_are_predicted_and_explained(client, fitted):
    found = client.post("/v1/predict", json={"texts": ROWS[:2]}).json()["predictions"]
    assert [row["label"] for row in found] == fitted.predict(ROWS[:2]).tolist()
    explained = client.post("/v1/explain", json={"text": ROWS[0]}).json()
    assert [token["text"] for token in explained["tokens"]] == ["scarf", "warm", "brand: Acme"]


def test_an_unknown_column_is_a_problem(client):
    found = problem(client.post("/v1/predict", json={"text": {"nmae": "scarf"}}), 422)
    assert "the model has no column 'nmae'; did you mean 'name'?" in str(found)


def test_the_description_of_the_model_lists_its_columns(client):
    assert client.get("/v1/model").json()["columns"] == {"text": ["name", "about"], "also": ["brand"]}
