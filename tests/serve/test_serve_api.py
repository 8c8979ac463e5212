"""The API: predictions, explanations, the taxonomy, the model, the OpenAPI document and the metrics."""

import asyncio

import httpx
import jsonschema
import numpy as np
import pytest
import torch
from pydantic import ValidationError
from serve_tools import TEXTS, problem, served
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Mount
from starlette.testclient import TestClient

from arbormax import Taxonomy
from arbormax.decode import DECODERS, leaf
from arbormax.encoders import ENCODERS
from arbormax.heads import HEADS
from arbormax.model.predict import NodeNames
from arbormax.model.predict import predict as model_predict
from arbormax.serve import Settings, create_app, schemas
from arbormax.serve.service import TreeIndex


def predict(client, **body):
    response = client.post("/v1/predict", json=body)
    assert response.status_code == 200, response.text
    return schemas.PredictResponse.model_validate_json(response.content).model_dump()["predictions"]


def test_predictions_equal_those_of_the_classifier(client, clf):
    found = predict(client, texts=TEXTS, top_k=3)
    assert [row["label"] for row in found] == clf.predict(TEXTS).tolist()
    assert [tuple(row["path"]) for row in found] == clf.predict_paths(TEXTS)
    probabilities, labels = clf.topk(TEXTS, 3)
    assert [[other["label"] for other in row["alternatives"]] for row in found] == labels.tolist()
    returned = [[other["probability"] for other in row["alternatives"]] for row in found]
    assert returned == pytest.approx(probabilities, abs=1e-6)
    nodes = clf.node_proba(TEXTS)
    for row, proba in zip(found, nodes, strict=True):
        assert [step["name"] for step in row["steps"]] == row["path"]
        assert row["steps"][-1]["node"] == row["node"]
        steps = [step["probability"] for step in row["steps"]]
        assert steps == pytest.approx([proba[step["node"]] for step in row["steps"]], abs=1e-6)
        assert row["probability"] == steps[-1]


def test_a_prediction_contains_the_row_of_the_predict_command(client, model):
    for top_k in (0, 3):
        rows = [each.to_dict() for each in model_predict(model, TEXTS, top_k=top_k)]
        found = client.post("/v1/predict", json={"texts": TEXTS, "top_k": top_k}).json()["predictions"]
        assert [{name: each[name] for name in row} for each, row in zip(found, rows, strict=True)] == rows
        assert all("top" not in each for each in found) == (top_k == 0)


def test_a_registered_decoder_is_in_the_schema_and_can_be_used(model):
    def at_depth(logp, tax, depth: int = 1):
        """The ancestor of the best leaf at one depth."""
        return torch.as_tensor(tax.ancestor_at(leaf(logp, tax).numpy(), depth))

    DECODERS.add("at_depth", at_depth, "the ancestor at one depth")
    try:
        with served(model) as client:
            document = client.get("/openapi.json").json()
            (listed,) = [each for each in client.get("/v1/model").json()["decoders"] if each["name"] == "at_depth"]
            found = predict(client, texts=["the owlish"], depth=2)
            explained = client.post("/v1/explain", json={"text": "the owlish", "decoder": "at_depth"}).json()
    finally:
        DECODERS.remove("at_depth")
    about = {"name": "at_depth", "summary": "the ancestor at one depth", "options": {"depth": 1}}
    assert listed == {**about, "choices": {}, "costs": False}
    assert found[0]["path"] == ["animal", "bird"]
    assert explained["path"] == ["animal"]
    for path in ("/v1/predict", "/v1/explain"):
        schema = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert "at_depth" in str(schema["properties"]["decoder"])
        assert "integer" in str(schema["properties"]["depth"])


def test_the_schema_lists_registered_encoders_and_heads(client):
    schema = client.get("/openapi.json").json()["components"]["schemas"]["ModelResponse"]["properties"]
    assert schema["encoder"]["enum"] == list(ENCODERS.names)
    assert schema["head"]["enum"] == list(HEADS.names)


def test_a_model_with_few_classes_limits_top_k(model):
    request = schemas.predict_request(Settings(), num_classes=3)
    assert request(text="a").top_k == 3
    with pytest.raises(ValidationError, match="less than or equal to 3"):
        request(text="a", top_k=4)


@pytest.mark.parametrize("tau", [0.0, 0.3, 0.9, 0.9999])
def test_tau_selects_the_node_that_the_classifier_selects(client, clf, tau):
    texts = [*TEXTS, "owlish codish", "nothing known"]
    found = predict(client, texts=texts, tau=tau, top_k=0)
    assert [row["node"] for row in found] == clf.predict_nodes(texts, tau).tolist()
    assert not any(row["alternatives"] for row in found)


def test_the_greedy_decoder_follows_the_best_child(client, clf):
    texts = ["owlish oakish", "hen"]
    found = predict(client, texts=texts, decoder="greedy")
    assert [row["node"] for row in found] == clf.predict_nodes(texts, decoder="greedy").tolist()


def test_a_prediction_of_the_root_has_an_empty_path(client):
    (row,) = predict(client, text="zzz", tau=0.9999)
    assert (row["label"], row["node"], row["path"], row["steps"], row["probability"]) == ("", 0, [], [], 1.0)
    assert len(row["alternatives"]) == 5


def test_a_mounted_application_returns_the_same_responses(client, model):
    inner = create_app(model)

    async def post_both(place):
        transport = httpx.ASGITransport(Starlette(routes=[Mount(place, inner)]))
        async with (
            inner.router.lifespan_context(inner),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as there,
        ):
            url = f"{place}/v1/predict"
            return [await there.post(url, json=body) for body in ({"texts": TEXTS}, {"text": 3})]

    valid, invalid = asyncio.run(post_both("/shop"))
    assert valid.content == client.post("/v1/predict", json={"texts": TEXTS}).content
    assert problem(invalid, 422) == problem(client.post("/v1/predict", json={"text": 3}), 422)


def test_a_mount_point_equal_to_a_path_prefix_adds_no_routes(model):
    outer = TestClient(Starlette(routes=[Mount("/v1", create_app(model))]), base_url="http://localhost")
    problem(outer.post("/v1/predict", json={"text": "a"}), 404)


def test_added_middleware_processes_predictions(model):
    app = create_app(model)
    app.add_middleware(CORSMiddleware, allow_origins=["*"])
    with TestClient(app, base_url="http://localhost") as client:
        response = client.post("/v1/predict", json={"text": "a"}, headers={"origin": "http://elsewhere.example"})
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == "*"


def test_unusual_texts_are_accepted(client):
    texts = ["", " ", "a\0b", "\u202eowlish", "🦉" * 50, "<script>alert(1)</script>", '"}]', "owlish\n\r\t"]
    assert len(predict(client, texts=texts)) == len(texts)


def test_a_request_of_several_batches_is_answered_in_order(model, clf):
    texts = [TEXTS[i % len(TEXTS)] for i in range(100)]
    with served(model, batch_size=7) as client:
        assert [row["label"] for row in predict(client, texts=texts)] == clf.predict(texts).tolist()


def test_an_explanation_contains_the_relevant_part_of_the_tree(client, clf):
    response = client.post("/v1/explain", json={"text": "an owlish text", "siblings": 2})
    assert response.status_code == 200, response.text
    found = response.json()
    assert schemas.ExplainResponse.model_validate(found).model_dump().keys() == found.keys()
    plain = client.post("/v1/explain", json={"text": "an owlish text", "words": False, "tau": 0.99})
    schemas.ExplainResponse.model_validate_json(plain.content)
    assert found["label"] == clf.predict(["an owlish text"])[0]
    assert found["nodes"][0]["parent"] is None
    assert [step["name"] for step in found["steps"]][: found["stopped_at"]] == found["path"]
    assert len(found["steps"][0]["words"]) == len(found["tokens"])
    problem(client.post("/v1/explain", json={"text": "owl", "node": 10_000}), 404)


def test_the_taxonomy_is_returned_in_pages(client, clf):
    tax = clf.taxonomy_
    top = schemas.TaxonomyPage.model_validate_json(client.get("/v1/taxonomy").content)
    assert (top.classes, top.nodes, top.depth, top.fingerprint) == (6, tax.num_nodes, 3, tax.fingerprint)
    assert [(child.name, child.classes, child.children) for child in top.children] == [
        ("animal", 4, 2),
        ("plant", 2, 2),
    ]
    bird = tax.find("bird")
    page = client.get("/v1/taxonomy", params={"node": bird, "offset": 1, "limit": 1}).json()
    assert [ancestor["name"] for ancestor in page["ancestors"]][1:] == ["animal"]
    assert (page["total"], page["offset"], [child["label"] for child in page["children"]]) == (2, 1, ["hen"])
    problem(client.get("/v1/taxonomy", params={"node": tax.num_nodes}), 404)


def test_a_search_returns_the_best_matches_first():
    names = [
        "acute pain",
        "pain",
        "pains of old",
        "Chronic PAIN",
        "spain",
        "back  pain, acute",
        "Schmerz",
        "straße",
        "Rückgabe",
    ]
    tax = Taxonomy.from_nested(names)
    tree = TreeIndex(tax, NodeNames(tax), "names")

    def found(words):
        return [match["name"] for match in tree.search(words, 0, 50)["matches"]]

    assert found("Pain") == ["pain", "pains of old", "acute pain", "Chronic PAIN", "back  pain, acute", "spain"]
    assert found("acute pain") == ["acute pain", "back  pain, acute"]
    assert found("STRASSE") == ["straße"]
    assert found("ruckgabe") == found("ru\u0308ck") == found("Rück") == ["Rückgabe"]
    assert found("root") == found("nowhere") == found(" ") == []
    assert tree.search("pain", 1, 2)["total"] == 6
    assert [m["name"] for m in tree.search("pain", 1, 2)["matches"]] == ["pains of old", "acute pain"]


def test_a_search_agrees_with_a_scan_of_all_names():
    rng = np.random.default_rng(0)
    names = sorted({"".join(rng.choice(list("ab é"), size=rng.integers(1, 7))).strip() or "x" for _ in range(300)})
    tax = Taxonomy.from_nested(names)
    tree = TreeIndex(tax, NodeNames(tax), "names")
    for word in ("a", "b", "é", "ab", "ba", "éa", "aab", "zz"):
        found = [match["name"] for match in tree.search(word, 0, 500)["matches"]]
        assert sorted(found) == [name for name in names if word in name]
        ranks = [
            0 if name == word else 1 if name.startswith(word) else 2 if f" {word}" in name else 3 for name in found
        ]
        assert ranks == sorted(ranks)


def test_a_search_over_http_returns_paths(client):
    found = client.get("/v1/taxonomy", params={"search": "O"}).json()
    paths = [match["path"] for match in found["matches"]]
    assert paths == [["plant", "oak"], ["animal", "bird", "owl"], ["animal", "fish", "cod"]]
    assert found["total"] == 3
    schemas.TaxonomyMatches.model_validate(found)


def test_the_model_route_describes_the_model_and_the_limits(client):
    found = schemas.ModelResponse.model_validate_json(client.get("/v1/model").content)
    assert (found.name, found.encoder, found.head, found.classes) == ("toy", "bag", "hierarchical", 6)
    assert found.limits.max_texts == 1024
    assert found.examples == ["an owlish text"]


def test_the_openapi_document_is_complete_and_its_examples_are_valid(client):
    document = client.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert {"/v1/predict", "/v1/explain", "/v1/taxonomy", "/v1/model", "/healthz", "/readyz", "/metrics"} <= set(
        document["paths"]
    )
    references = str(document).split("'$ref': '#/components/schemas/")[1:]
    assert {part.split("'")[0] for part in references} <= set(document["components"]["schemas"])
    count = 0
    for path in ("/v1/predict", "/v1/explain"):
        content = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
        jsonschema.Draft202012Validator.check_schema(content["schema"])
        for example in content["examples"].values():
            jsonschema.validate(example["value"], content["schema"])
            assert client.post(path, json=example["value"]).status_code == 200
            count += 1
    assert count == 7
    schema = document["paths"]["/v1/predict"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert "1024" in str(schema["properties"]["texts"])


@pytest.mark.parametrize(
    ("body", "is_valid"),
    [
        ({"text": "a"}, True),
        ({"texts": ["a"], "text": None}, True),
        ({}, False),
        ({"text": None}, False),
        ({"text": "a", "texts": ["b"]}, False),
        ({"text": "a", "tau": 0.5}, True),
        ({"text": "a", "decoder": "threshold", "tau": 0.5}, True),
        ({"text": "a", "decoder": "threshold"}, True),
        ({"text": "a", "decoder": None, "tau": None}, True),
        ({"text": "a", "decoder": "leaf", "tau": 0.5}, False),
        ({"text": "a", "decoder": "greedy", "tau": 0.5}, False),
        ({"text": "a", "decoder": "threshold", "tau": 0.5, "coverage": 0.9}, False),
        ({"text": "a", "tau": 0.5, "coverage": 0.9}, False),
        ({"text": "a", "within": [1], "coverage": 0.9}, False),
    ],
)
def test_the_schema_has_the_rules_of_the_service(client, body, is_valid):
    document = client.get("/openapi.json").json()
    schema = document["paths"]["/v1/predict"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert jsonschema.Draft202012Validator(schema).is_valid(body) is is_valid
    assert client.post("/v1/predict", json=body).status_code == (200 if is_valid else 422)


def test_the_document_says_that_node_and_search_exclude_each_other(client):
    parameters = client.get("/openapi.json").json()["paths"]["/v1/taxonomy"]["get"]["parameters"]
    about = {parameter["name"]: parameter["description"] for parameter in parameters}
    assert "not with search" in about["node"]
    assert "not with node" in about["search"]


def test_the_openapi_document_describes_the_api_key(model):
    with served(model, api_key="a key of some length") as client:
        document = client.get("/openapi.json", headers={"x-api-key": "a key of some length"}).json()
    schemes = document["components"]["securitySchemes"]
    assert {scheme["type"] for scheme in schemes.values()} == {"http", "apiKey"}
    assert document["paths"]["/v1/predict"]["post"]["security"] == [{name: []} for name in schemes]
    assert document["paths"]["/healthz"]["get"]["security"] == []


def test_a_taxonomy_query_takes_node_or_search(client):
    content = problem(client.get("/v1/taxonomy", params={"node": 1, "search": "owl"}), 422)
    assert "give node or search, not both" in str(content)


def test_health_metrics_and_head(client):
    assert client.get("/healthz").json() == {"status": "alive"}
    assert client.get("/readyz").json() == {"status": "ready"}
    head = client.head("/v1/model")
    assert (head.status_code, head.content) == (200, b"")


def test_metrics_count_requests_texts_and_batches(model):
    with served(model) as client:
        client.post("/v1/predict", json={"texts": TEXTS[:5]})
        client.post("/v1/predict", json={"texts": []})
        client.get("/nowhere/with-a-secret")
        text = client.get("/metrics").text
    assert 'arbormax_requests_total{route="/v1/predict",status="200"} 1.0' in text
    assert 'arbormax_requests_total{route="/v1/predict",status="422"} 1.0' in text
    assert 'arbormax_requests_total{route="(none)",status="404"} 1.0' in text
    assert "arbormax_texts_total 5.0" in text
    assert "arbormax_batch_texts_sum 5.0" in text
    assert "arbormax_queue_texts 0.0" in text
    assert 'arbormax_request_seconds_count{route="/v1/predict"} 2.0' in text
    assert "secret" not in text


def test_metrics_count_a_refused_request_for_its_route(model):
    with served(model, max_body_bytes=1024) as client:
        assert client.post("/v1/predict", json={"text": "x" * 2000}).status_code == 413
        text = client.get("/metrics").text
    assert 'arbormax_requests_total{route="/v1/predict",status="413"} 1.0' in text
