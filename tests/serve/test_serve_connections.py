"""Connections over HTTP/1.1: pipelining, partial and malformed requests, timeouts, disconnects, shutdown."""

import json
import re
import socket
import time
from contextlib import contextmanager

import pytest
from serve_tools import JSON, Gate, served, served_app

from arbormax.serve import Settings, create_app


def body(text="the owlish", **options):
    return json.dumps({"text": text, **options}).encode()


def request(content, head="POST /v1/predict HTTP/1.1", **headers):
    headers = {"host": "localhost", "content-type": "application/json", "content-length": len(content)} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    lines = [head, *(f"{name}: {value}" for name, value in headers.items() if value is not None)]
    return "\r\n".join([*lines, "", ""]).encode() + content


@contextmanager
def connected(client):
    with socket.create_connection(("127.0.0.1", client.base_url.port), timeout=10) as connection:
        yield connection


def read_response(connection, rest=b""):
    """The status, headers and content of the next response, and the bytes after it."""
    while b"\r\n\r\n" not in rest:
        more = connection.recv(65536)
        assert more, rest
        rest += more
    head, _, rest = rest.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    while len(rest) < int(headers["content-length"]):
        rest += connection.recv(65536)
    size = int(headers["content-length"])
    return int(first.split()[1]), headers, rest[:size], rest[size:]


def test_requests_may_arrive_in_pieces_or_several_at_once(client):
    words = ["the owlish", "a codish", "an old oakish"]
    requests = [request(body(word)) for word in words]
    found, rest = [], b""
    with connected(client) as connection:
        connection.sendall(b"".join(requests))
        for _ in words:
            status, _, content, rest = read_response(connection, rest)
            found.append((status, json.loads(content)["predictions"][0]["label"]))
    assert found == [(200, "owl"), (200, "cod"), (200, "oak")]
    with connected(client) as connection:
        connection.sendall(requests[0][:-5])  # the head and most of the body
        time.sleep(0.1)
        connection.sendall(requests[0][-5:] + requests[1][:-3])
        assert json.loads(read_response(connection)[2])["predictions"][0]["label"] == "owl"
        connection.sendall(requests[1][-3:])
        assert json.loads(read_response(connection)[2])["predictions"][0]["label"] == "cod"


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (request(body(), expect="100-continue"), 100),
        (request(body(), connection="close"), 200),
        (request(body(), "POST /v1/predict?x=1 HTTP/1.1"), 200),
        (request(body(), content_type="application/json; charset=utf-8"), 200),
        (request(b"5\r\n{}   \r\n0\r\n\r\n", content_length=None, transfer_encoding="chunked"), 422),
        (request(body(), content_type="text/plain"), 415),
        (request(body(), content_encoding="gzip"), 415),
        (request(body(), host="elsewhere.example"), 421),
        (request(body(), content_length="+30"), 400),
        (request(body(), **{"content_length ": "30"}), 400),
        (request(body(), x_odd="a\x01b"), 400),
        (request(body(), "POST /v1/predict HTTP/1.1\r\nnothing"), 400),
        (request(b"{}"), 422),
        (request(b"{"), 400),
        (request(body(), "POST /v1/predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3"), 400),
        (request(body("x" * 20_001)), 422),
        (request(body("x" * 70_000)), 422),
    ],
)
def test_a_request_gets_the_status_of_its_first_defect(client, content, status):
    with connected(client) as connection:
        connection.sendall(content)
        response = connection.recv(65536)
    assert int(response.split()[1]) == status, response


@pytest.mark.parametrize(
    ("content", "status", "detail"),
    [
        (request(body(), "POST /v1/predict HTTP/1.1\r\nhost: localhost"), 400, b"expected one Host header, found 2"),
        (request(body(), host=None), 400, b"expected one Host header, found 0"),
        (request(body(), "POST http://localhost/v1/predict HTTP/1.1"), 400, b"The target of a request is a path."),
        (request(b"", "GET http://elsewhere.example/healthz HTTP/1.1"), 400, b"The target of a request is a path."),
        (request(b"", "CONNECT localhost:80 HTTP/1.1"), 400, b""),
    ],
)
def test_a_request_with_two_hosts_is_refused(client, content, status, detail):
    with connected(client) as connection:
        connection.sendall(content)
        response = b"".join(iter(lambda: connection.recv(65536), b""))
    assert int(response.split()[1]) == status, response
    assert detail in response


def flood(connection, start, piece, count=10_000):
    """Send the piece until the service closes the connection; returns the bytes that were sent, and the response."""
    sent = 0
    try:
        connection.sendall(start)
        for _ in range(count):
            connection.sendall(piece)
            sent += len(piece)
    except OSError:
        pass
    try:
        return sent, connection.recv(65536)
    except OSError:  # the connection was reset because of unread bytes
        return sent, b""


START = b"POST /v1/predict HTTP/1.1\r\nhost: localhost\r\n"
CHUNKED = START + b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (START, b"a: b\r\n" * 4096),
        (START + b"a: ", b"b" * 20_000),
        (START, b"b" * 20_000),
        (b"GET /", b"b" * 20_000),
        (b"", b"\r\n" * 10_000),
        (CHUNKED + b"0\r\n", b"a: b\r\n" * 4096),
        (CHUNKED + b"0\r\na: ", b"b" * 20_000),
        (CHUNKED + b"1;", b"b" * 20_000),
    ],
    ids=["headers", "value", "name", "target", "blank lines", "trailers", "trailer", "chunk extension"],
)
def test_a_head_without_an_end_is_refused(client, start, piece):
    with connected(client) as connection:
        sent, response = flood(connection, start, piece)
    assert sent < 32 * 2**20  # what the buffers of the system hold
    assert response.startswith((b"HTTP/1.1 431 Request Header Fields Too Large", b"HTTP/1.1 400")) or not response
    assert client.get("/healthz").status_code == 200


def test_the_largest_head_is_accepted(client):
    with connected(client) as connection:
        connection.sendall(request(body(), x_a="a" * 60_000))
        assert read_response(connection)[0] == 200
        connection.sendall(request(body(), x_a="a" * 70_000))
        assert read_response(connection)[0] == 431


def test_too_many_pipelined_requests_end_the_connection(client):
    with connected(client) as connection:
        flood(connection, b"", request(body()) * 100, 500)
    assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        (b"", b""),
        (b"\r\n", b"HTTP/1.1 408"),
        (b"POST /v1/pre", b"HTTP/1.1 408"),
        (START + b"a: ", b"HTTP/1.1 408"),
        (request(body())[:-5], b"HTTP/1.1 408"),
        (START + b"content-type: application/json\r\ncontent-length: 20\r\n\r\n", b"HTTP/1.1 408"),
    ],
    ids=["nothing", "blank line", "target", "header", "body", "no body"],
)
def test_a_slow_request_is_given_up(model, content, answer):
    with served(model, head_seconds=0.4, request_seconds=0.4) as client, connected(client) as connection:
        connection.sendall(content)
        begin = time.monotonic()
        response = b"".join(iter(lambda: connection.recv(65536), b""))
        assert response.startswith(answer)
        assert 0.2 < time.monotonic() - begin < 5
        assert bool(response) is bool(answer)


def test_a_dripping_head_is_given_up(model):
    with served(model, head_seconds=0.4) as client, connected(client) as connection:
        begin = time.monotonic()
        try:
            for byte in START * 20:
                connection.sendall(bytes([byte]))
                time.sleep(0.02)
        except OSError:
            pass
        assert time.monotonic() - begin < 5


def test_the_time_of_a_head_does_not_include_the_response_before_it(model, monkeypatch):
    with served(model, head_seconds=0.4) as client, connected(client) as connection:
        gate = Gate(model, monkeypatch)
        connection.sendall(request(body()) + START[:10])
        assert gate.reached.wait(10)
        time.sleep(0.7)
        gate.open.set()
        assert read_response(connection)[0] == 200


def test_an_idle_connection_is_closed_and_a_busy_one_is_not(model, monkeypatch):
    with served(model) as client:
        client.server.config.timeout_keep_alive = 0.2
        with connected(client) as busy, connected(client) as idle:
            idle.sendall(request(body()))
            assert read_response(idle)[0] == 200
            assert idle.recv(1) == b""
            gate = Gate(model, monkeypatch)
            busy.sendall(request(body()))
            assert gate.reached.wait(10)
            time.sleep(0.5)
            gate.open.set()
            assert read_response(busy)[0] == 200


def count_requests(client, status):
    pattern = rf'arbormax_requests_total{{route="/v1/predict",status="{status}"}} (\S+)'
    return sum(map(float, re.findall(pattern, client.get("/metrics").text)))


def test_a_request_leaves_the_queue_when_its_client_disconnects(model, monkeypatch):
    gate = Gate(model, monkeypatch)
    with served(model) as client:
        batcher = client.app.state.service.batcher
        with connected(client) as first:
            first.sendall(request(body()))
            assert gate.reached.wait(10)
            with connected(client) as second:
                second.sendall(request(body()))
                while not batcher.waiting:
                    time.sleep(0.01)
        deadline = time.monotonic() + 10
        while count_requests(client, 499) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert count_requests(client, 499) == 2
        assert batcher.waiting == 0
        gate.open.set()
        assert client.post("/v1/predict", content=body(), headers=JSON).status_code == 200


def test_shutdown_answers_a_request_that_has_begun_to_arrive(model):
    content = request(body())
    with served(model) as client:
        with connected(client) as connection:
            connection.sendall(content[:-4])
            while not client.server.server_state.tasks:
                time.sleep(0.01)
            client.server.should_exit = True
            time.sleep(0.3)
            connection.sendall(content[-4:])
            assert read_response(connection)[0] == 200
            assert connection.recv(1) == b""
        client.thread.join(20)
        assert not client.thread.is_alive()


def test_an_error_response_keeps_the_connection(model):
    with served(model, queue=1, max_texts=1) as client, connected(client) as connection:
        connection.sendall(request(b"{}") + request(body()))
        status, _, _, rest = read_response(connection)
        assert status == 422
        assert read_response(connection, rest)[0] == 200


def test_a_failing_model_returns_a_problem(model, monkeypatch):
    def fail(texts, batch_size=256):
        raise RuntimeError("broken")

    with served(model) as client, connected(client) as connection:
        monkeypatch.setattr(model, "features", fail)
        connection.sendall(request(body()))
        status, headers, _, _ = read_response(connection)
        assert (status, headers["content-type"]) == (500, "application/problem+json")


def test_added_middleware_processes_every_request(model):
    paths = []

    class Middleware:
        def __init__(self, app):
            self.app = app

        async def __call__(self, scope, receive, send):
            paths.append(scope.get("path"))
            await self.app(scope, receive, send)

    app = create_app(model)
    app.add_middleware(Middleware)
    with served_app(app, Settings()) as client:
        assert client.post("/v1/predict", content=body(), headers=JSON).status_code == 200
    assert "/v1/predict" in paths
