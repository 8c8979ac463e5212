"""Errors are problems in the format of RFC 9457; they contain no secrets, and no text is logged."""

import logging
import socket
from contextlib import suppress

import httpx
import pytest
from pydantic import ValidationError
from serve_tools import JSON, Gate, problem, served

from arbormax.serve import Settings

KEY = "a-key-for-tests"


@pytest.mark.parametrize(
    ("body", "status", "location"),
    [
        (b"", 400, None),
        (b"{", 400, None),
        (b"null", 422, "#"),
        (b"[]", 422, "#"),
        (b"\xff", 400, None),
        (b'{"text": "\xff"}', 400, None),
        (b'{"text": "\\ud800 alone"}', 400, None),
        (b"{}", 422, "#"),
        (b'{"text": "a", "texts": ["b"]}', 422, "#"),
        (b'{"text": 1}', 422, "#/text"),
        (b'{"texts": []}', 422, "#/texts"),
        (b'{"texts": ["a", null]}', 422, "#/texts/1"),
        (b'{"text": "a", "colour": "red"}', 422, "#/colour"),
        (b'{"text": "a", "top_k": -1}', 422, "#/top_k"),
        (b'{"text": "a", "top_k": "5"}', 422, "#/top_k"),
        (b'{"text": "a", "top_k": 101}', 422, "#/top_k"),
        (b'{"text": "a", "tau": 2}', 422, "#/tau"),
        (b'{"text": "a", "tau": NaN}', 422, "#/tau"),
        (b'{"text": "a", "decoder": "best"}', 422, "#/decoder"),
        (b'{"text": "a", "decoder": "leaf", "tau": 0.5}', 422, "#/tau"),
        (b"[" * 100_000, 400, None),
    ],
)
def test_an_invalid_body_is_reported_with_its_location(client, body, status, location):
    content = problem(client.post("/v1/predict", content=body, headers=JSON), status)
    if location is not None:
        assert [error["pointer"] for error in content["errors"]] == [location]


def test_an_error_response_does_not_contain_the_text(client):
    response = client.post("/v1/predict", json={"texts": ["a secret", 5], "tau": "a secret"})
    assert len(problem(response, 422)["errors"]) == 2
    assert "a secret" not in response.text


def test_a_body_with_thousands_of_errors_is_reported_without_a_list(client):
    content = problem(client.post("/v1/predict", json={str(n): n for n in range(5000)}), 422)
    assert "5000 errors" in content["detail"]
    assert "errors" not in content
    content = problem(client.post("/v1/predict", json={"texts": [1] * 1000}), 422)
    assert len(content["errors"]) == 20


def test_an_invalid_query_is_reported(client):
    content = problem(client.get("/v1/taxonomy", params={"limit": 501, "nod": 3}), 422)
    assert {error["parameter"] for error in content["errors"]} == {"limit", "nod"}
    problem(client.get("/v1/taxonomy", params={"search": "a" * 201}), 422)


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_only_json_is_accepted(client, kind):
    headers = {} if kind is None else {"content-type": kind}
    problem(client.post("/v1/predict", content=b'{"text": "a"}', headers=headers), 415)
    problem(client.post("/v1/predict", content=b"x", headers={**JSON, "content-encoding": "gzip"}), 415)
    with_charset = {"content-type": "application/json; charset=utf-8"}
    assert client.post("/v1/predict", content=b'{"text": "a"}', headers=with_charset).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/docs", 404),
        ("GET", "/static/../app.py", 404),
        ("GET", "/static/%2e%2e/app.py", 404),
        ("GET", "/v1/predict", 405),
        ("OPTIONS", "/v1/predict", 405),
        ("DELETE", "/v1/model", 405),
    ],
)
def test_unknown_paths_and_methods_are_problems(client, method, path, status):
    response = client.request(method, path)
    problem(response, status)
    assert status != 405 or "allow" in response.headers


def test_every_response_has_security_headers(client):
    for response in (client.get("/v1/model"), client.get("/nolocation"), client.post("/v1/predict", content=b"")):
        policy = response.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in policy
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["referrer-policy"] == "no-referrer"
        assert response.headers["cache-control"] == "no-store"


def test_a_local_service_accepts_local_host_names_only(client, model):
    problem(client.get("/v1/model", headers={"host": "evil.example"}), 421)
    problem(client.get("/v1/model", headers={"host": "127.0.0.1.evil.example:8000"}), 421)
    for name in ("localhost", "localhost:8000", "127.0.0.1", "[::1]:8000"):
        assert client.get("/v1/model", headers={"host": name}).status_code == 200
    with served(model, allowed_hosts=("models.example",)) as other:
        assert other.get("/v1/model", headers={"host": "Models.example:443"}).status_code == 200
        problem(other.get("/v1/model", headers={"host": "evil.example"}), 421)


def test_requests_without_the_api_key_are_refused(model):
    with served(model, api_key=KEY) as client:
        for headers in ({}, {"x-api-key": "wrong"}, {"authorization": f"Basic {KEY}"}, {"x-api-key": KEY + "x"}):
            for method, path in (("POST", "/v1/predict"), ("GET", "/v1/taxonomy"), ("GET", "/metrics"), ("GET", "/no")):
                response = client.request(method, path, headers=headers)
                problem(response, 401)
                assert response.headers["www-authenticate"] == "Bearer"
                assert KEY not in response.text
        for headers in ({"authorization": f"Bearer {KEY}"}, {"authorization": f"bearer {KEY}"}, {"x-api-key": KEY}):
            assert client.post("/v1/predict", json={"text": "a"}, headers=headers).status_code == 200
        for path in ("/healthz", "/readyz"):
            assert client.get(path).status_code == 200
    assert KEY not in repr(Settings(api_key=KEY))


def test_limits_of_texts_are_enforced(model):
    with served(model, max_texts=3, max_characters=10) as client:
        content = problem(client.post("/v1/predict", json={"texts": ["a"] * 4}), 422)
        assert content["errors"][0]["pointer"] == "#/texts"
        content = problem(client.post("/v1/predict", json={"texts": ["a", "b" * 11]}), 422)
        assert content["errors"][0]["pointer"] == "#/texts/1"
        problem(client.post("/v1/explain", json={"text": "b" * 11}), 422)
        assert client.post("/v1/predict", json={"texts": ["b" * 10] * 3}).status_code == 200


def test_a_body_over_the_limit_is_not_read(model):
    with served(model, max_body_bytes=2000) as client:
        problem(client.post("/v1/predict", content=b" " * 3000, headers=JSON), 413)
        sent = 0

        def endless():
            nonlocal sent
            while sent < 50_000_000:
                sent += 1000
                yield b" " * 1000

        with suppress(httpx.TransportError):  # if the connection is closed while sending
            problem(client.post("/v1/predict", content=endless(), headers=JSON), 413)
        assert sent < 50_000_000
        assert client.post("/v1/predict", json={"text": "a"}).status_code == 200


def test_an_incomplete_body_times_out(model):
    with served(model, request_seconds=0.3) as client:
        with socket.create_connection((client.base_url.host, client.base_url.port), timeout=10) as slow:
            slow.sendall(b"POST /v1/predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99\r\n")
            slow.sendall(b"content-type: application/json\r\n\r\n{")
            response = b""
            while part := slow.recv(10_000):  # until it is closed
                response += part
        assert response.startswith(b"HTTP/1.1 408")
        assert b"application/problem+json" in response
        assert client.get("/readyz").status_code == 200


def test_a_request_over_the_time_limit_is_dropped(model, monkeypatch):
    with served(model, request_seconds=0.4) as client:
        gate = Gate(model, monkeypatch)
        problem(client.post("/v1/predict", json={"text": "first, which occupies the model"}), 504)
        problem(client.post("/v1/predict", json={"texts": ["second"] * 10}), 504)
        assert "arbormax_queue_texts 0.0" in client.get("/metrics").text
        gate.open.set()
        assert client.post("/v1/predict", json={"text": "third"}).status_code == 200
        assert gate.sizes == [1, 1]


def test_an_unexpected_error_reveals_nothing_and_logs_no_text(model, monkeypatch, caplog):
    def fail(texts, batch_size=256):
        raise RuntimeError(f"cannot read {texts}")

    with served(model) as client, caplog.at_level(logging.DEBUG):
        monkeypatch.setattr(model, "features", fail)
        response = client.post("/v1/predict", json={"text": "my secret"})
    problem(response, 500)
    assert "secret" not in response.text
    assert "RuntimeError" not in response.text
    logged = [record.getMessage() for record in caplog.records if record.name == "arbormax.serve"]
    assert any("RuntimeError at " in line and "test_serve_errors.py" in line for line in logged)
    assert "secret" not in caplog.text


def test_an_unexpected_error_keeps_the_connection(model, monkeypatch):
    with served(model) as client:
        with monkeypatch.context() as patch:
            patch.setattr(client.app.state.service.tree, "page", lambda *_: 1 / 0)
            problem(client.get("/v1/taxonomy"), 500)
        assert client.get("/v1/taxonomy").status_code == 200


def test_texts_are_logged_only_if_requested(model, caplog):
    body = {"texts": ["my secret", "another secret"]}
    for log_texts in (False, True):
        caplog.clear()
        with served(model, log_texts=log_texts) as client, caplog.at_level(logging.DEBUG):
            client.post("/v1/predict", json=body)
            client.post("/v1/predict", json={**body, "top_k": "secret"})
            client.post("/v1/predict", content=b'{"text": "secret')
            client.get("/v1/taxonomy", params={"search": "secret"})
            client.get("/secret")
        lines = [record.getMessage() for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
        assert any(line.startswith("POST /v1/predict 200") for line in lines)
        assert any("secret" in line for line in lines) == log_texts


def test_contradictory_settings_are_refused():
    with pytest.raises(ValidationError, match="never fits into a queue"):
        Settings(max_texts=100, queue=50)
    with pytest.raises(ValidationError):
        Settings(max_text=5)
    for key in ("short", "schlüssel-lang", " padded key ", "two\nlines of it"):
        with pytest.raises(ValidationError, match="an API key "):
            Settings(api_key=key)
    assert Settings().is_local
    assert not Settings(host="0.0.0.0").is_local
