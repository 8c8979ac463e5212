"""Predictions that are read and answered right at their connection, and what is handed on from there."""

import json
import re
import socket
import threading
import time
from contextlib import contextmanager

import pytest
from serve_toy import JSON, Gate, served

from arbormax.serve.front import Desk


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
    with socket.create_connection(("127.0.0.1", client.base_url.port), timeout=10) as line:
        yield line


def answer(line, rest=b""):
    """The status, headers and content of the next answer, and what came behind it."""
    while b"\r\n\r\n" not in rest:
        more = line.recv(65536)
        assert more, rest
        rest += more
    head, _, rest = rest.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(one.lower().split(": ", 1) for one in lines)
    while len(rest) < int(headers["content-length"]):
        rest += line.recv(65536)
    size = int(headers["content-length"])
    return int(first.split()[1]), headers, rest[:size], rest[size:]


@pytest.fixture
def direct(monkeypatch):
    """The bodies that were answered at their connection."""
    found, real = [], Desk.job_of

    def noted(desk, content, front):
        job = real(desk, content, front)
        if job is not None:
            found.append(content)
        return job

    monkeypatch.setattr(Desk, "job_of", noted)
    return found


def test_it_gives_what_the_long_way_gives(client, direct):
    asked = request(body("the owlish", top_k=2))
    with connected(client) as line:
        line.sendall(asked)
        short = answer(line)
        assert len(direct) == 1
        line.sendall(request(b"", "GET /healthz HTTP/1.1"))
        assert answer(line)[0] == 200
        line.sendall(asked)  # behind another request it goes the long way
        long = answer(line)
        assert len(direct) == 1
    assert short == long
    assert json.loads(short[2])["predictions"][0]["label"] == "owl"


def test_requests_may_come_in_pieces_or_several_at_once(client, direct):
    words = ["the owlish", "a codish", "an old oakish"]
    asked = [request(body(word)) for word in words]
    found, rest = [], b""
    with connected(client) as line:
        line.sendall(b"".join(asked))
        for _ in words:
            status, _, content, rest = answer(line, rest)
            found.append((status, json.loads(content)["predictions"][0]["label"]))
    assert found == [(200, "owl"), (200, "cod"), (200, "oak")]
    with connected(client) as line:
        line.sendall(asked[0][:-5])  # the head and most of the body
        time.sleep(0.1)
        line.sendall(asked[0][-5:] + asked[1][:-3])
        assert json.loads(answer(line)[2])["predictions"][0]["label"] == "owl"
        line.sendall(asked[1][-3:])
        assert json.loads(answer(line)[2])["predictions"][0]["label"] == "cod"
    assert len(direct) == 5


@pytest.mark.parametrize(
    ("asked", "status"),
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
def test_what_is_not_quite_ordinary_is_handed_on(client, direct, asked, status):
    with connected(client) as line:
        line.sendall(asked)
        got = line.recv(65536)
    assert int(got.split()[1]) == status, got
    assert not direct or b"charset" in asked  # which is ordinary


def test_an_expected_key_is_asked_for_here_too(model, direct):
    key = "a-key-of-some-length"
    with served(model, api_key=key) as client:
        for headers, status in (({}, 401), ({"x_api_key": key}, 200), ({"authorization": f"Bearer {key}!"}, 401)):
            with connected(client) as line:
                line.sendall(request(body(), **headers))
                assert answer(line)[0] == status
    assert len(direct) == 1


def test_who_asks_without_reading_is_not_read_either(model, direct):
    asked = request(body(top_k=6))
    with served(model) as client, socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        line.connect(("127.0.0.1", client.base_url.port))
        line.setblocking(False)
        sent, data, still = 0, asked * 150_000, time.monotonic()
        while sent < len(data) and time.monotonic() < still + 1.0:
            try:
                sent += line.send(data[sent : sent + (1 << 20)])
                still = time.monotonic()
            except BlockingIOError:
                time.sleep(0.01)
        assert sent < len(data)
        answered = 0
        while answered < len(direct):  # until its own buffers are full
            answered = len(direct)
            time.sleep(0.5)
        assert 0 < answered < sent // len(asked) // 2
        line.settimeout(20)
        rest = b""
        for _ in range(answered):
            status, _, _, rest = answer(line, rest)
            assert status == 200
        assert len(direct) > answered


def test_an_idle_connection_is_closed_and_a_busy_one_is_not(model, monkeypatch):
    with served(model) as client:
        client.server.config.timeout_keep_alive = 0.2
        with connected(client) as fresh, connected(client) as used:
            used.sendall(request(body()))
            assert answer(used)[0] == 200
            assert used.recv(1) == b""
            gate = Gate(model, monkeypatch)
            client.app.state.service.worker._pace = 1.0  # as if it were slow
            fresh.sendall(request(body()))
            assert gate.reached.wait(10)
            time.sleep(1.3)
            gate.open.set()
            assert answer(fresh)[0] == 200


def counted(client, status):
    pattern = rf'arbormax_requests_total{{route="/v1/predict",status="{status}"}} (\S+)'
    return sum(map(float, re.findall(pattern, client.get("/metrics").text)))


def test_who_leaves_is_waited_for_no_more(model, monkeypatch):
    gate = Gate(model, monkeypatch)
    with served(model) as client:
        with connected(client) as first:
            first.sendall(request(body()))
            assert gate.reached.wait(10)
            with connected(client) as second:
                second.sendall(request(body()))
                while not client.app.state.service.worker.waiting:
                    time.sleep(0.01)
        until = time.monotonic() + 10
        while counted(client, 499) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        assert counted(client, 499) == 2
        assert client.app.state.service.worker.waiting == 0
        assert client.app.state.service.company.now == 0
        gate.open.set()
        assert client.post("/v1/predict", content=body(), headers=JSON).status_code == 200


def test_shutdown_answers_what_has_begun_to_come(model):
    asked = request(body())
    with served(model) as client:
        with connected(client) as line:
            line.sendall(asked[:-4])
            while not client.app.state.service.company.now:
                time.sleep(0.01)
            client.server.should_exit = True
            time.sleep(0.3)
            line.sendall(asked[-4:])
            status, headers, _, _ = answer(line)
            assert (status, headers["connection"]) == (200, "close")
            assert line.recv(1) == b""
        client.thread.join(20)
        assert not client.thread.is_alive()


def test_a_refusal_keeps_the_connection_and_the_way(model, direct):
    with served(model, queue=1, max_texts=1, max_requests=1) as client, connected(client) as line:
        line.sendall(request(b"{}") + request(body()))
        status, _, _, rest = answer(line)
        assert status == 422
        assert answer(line, rest)[0] == 200
        client.app.state.service.company.now += 1
        line.sendall(request(body()))
        status, headers, _, _ = answer(line)
        assert (status, headers["retry-after"]) == (503, "1")
        client.app.state.service.company.now -= 1
        line.sendall(request(body()))
        assert answer(line)[0] == 200
        assert client.app.state.service.company.now == 0
    assert len(direct) == 2


def test_heads_that_are_refused_or_long_are_not_remembered(model):
    with served(model) as client:
        desk = client.server.config.http.keywords["desk"]
        for headers in ({"host": "elsewhere.example"}, {"x_long": "x" * 3000}, {}):
            with connected(client) as line:
                line.sendall(request(body(), **headers))
                answer(line)
        assert len(desk._lengths) == 1


def test_a_model_that_fails_is_told_the_long_way(model, monkeypatch):
    def broken(texts, batch_size=256):
        raise RuntimeError("broken")

    with served(model) as client, connected(client) as line:
        monkeypatch.setattr(model, "node_log_probs", broken)
        line.sendall(request(body()))
        status, headers, _, _ = answer(line)
        assert (status, headers["content-type"]) == (500, "application/problem+json")
        assert client.app.state.service.company.now == 0


def test_a_quick_model_is_called_on_the_event_loop_and_a_slow_one_is_not(model, monkeypatch):
    threads, pause, real = [], 0.0, model.node_log_probs

    def noted(texts, batch_size=256):
        threads.append(threading.current_thread().name == "arbormax-model")
        time.sleep(pause)
        return real(texts, batch_size)

    monkeypatch.setattr(model, "node_log_probs", noted)
    with served(model) as client:
        for pause in (0.0, 0.1, 0.0):
            for _ in range(60):
                assert client.post("/v1/predict", content=body(), headers=JSON).status_code == 200
                if threads[-1] == bool(pause):
                    break
            assert threads[-1] == bool(pause)
    assert threads[0]  # before anything is known of it


def test_layers_that_were_added_see_every_request(model, direct):
    from arbormax.serve import Settings, create_app
    from arbormax.serve.listen import listening
    from arbormax.serve.server import server_of

    seen = []

    class Layer:
        def __init__(self, app):
            self.app = app

        async def __call__(self, scope, receive, send):
            seen.append(scope.get("path"))
            await self.app(scope, receive, send)

    app, started = create_app(model, Settings()), threading.Event()
    app.add_middleware(Layer)
    server = server_of(app, Settings(), started.set)
    with listening("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        assert started.wait(20)
        with socket.create_connection(listener.getsockname(), timeout=10) as line:
            line.sendall(request(body()))
            assert answer(line)[0] == 200
        server.should_exit = True
        thread.join(30)
    assert "/v1/predict" in seen
    assert not direct
