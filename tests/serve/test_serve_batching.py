"""Many requests at once are answered in batches or refused; shutdown answers all accepted requests."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from serve_tools import TEXTS, TREE, Gate, problem, served
from torch.backends import mkldnn

from arbormax import Taxonomy
from arbormax.cli.serve import load_app
from arbormax.model import TrainConfig, save_model
from arbormax.model.network import Model
from arbormax.serve import Settings, create_app, run
from arbormax.serve.batching import Batcher, ClosedError, QueueFullError


def wait_until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Requests:
    """Requests that are sent at the same time, each by its own thread."""

    def __init__(self, client):
        self.client, self.pool, self.waiting = client, ThreadPoolExecutor(32), []

    def send(self, **body):
        self.waiting.append(self.pool.submit(self.client.post, "/v1/predict", json=body))

    def responses(self):
        found = [each.result(20) for each in self.waiting]
        self.pool.shutdown()
        return found


def queued(client):
    return client.app.state.service.batcher.waiting


def test_waiting_requests_are_answered_together(model, clf, monkeypatch):
    texts = [TEXTS[i % len(TEXTS)] for i in range(24)]
    with served(model, batch_size=16) as client:
        gate, requests = Gate(model, monkeypatch), Requests(client)
        requests.send(text="the first, which occupies the model")
        assert gate.reached.wait(10)
        for text in texts:
            requests.send(text=text, top_k=1)
        wait_until(lambda: queued(client) == len(texts))
        gate.open.set()
        predictions = [response.json()["predictions"] for response in requests.responses()[1:]]
        metrics = client.get("/metrics").text
    assert gate.sizes == [1, 16, 8]
    assert all(len(rows) == 1 for rows in predictions)
    assert [rows[0]["label"] for rows in predictions] == clf.predict(texts).tolist()
    assert 'arbormax_batch_texts_bucket{le="8.0"} 2.0' in metrics


def test_requests_with_different_options_share_a_batch(model, clf, monkeypatch):
    texts = [TEXTS[i % len(TEXTS)] for i in range(24)]
    with served(model, batch_size=16) as client:
        gate, requests = Gate(model, monkeypatch), Requests(client)
        requests.send(text="the first, which occupies the model")
        assert gate.reached.wait(10)
        for text in texts[:12]:
            requests.send(text=text, top_k=1)
        for text in texts[12:]:
            requests.send(text=text, tau=0.9, top_k=2)
        wait_until(lambda: queued(client) == len(texts))
        gate.open.set()
        found = [response.json()["predictions"][0] for response in requests.responses()[1:]]
        metrics = client.get("/metrics").text
    assert gate.sizes == [1, 12, 4, 8]  # the model takes the texts of equal options together
    assert [row["label"] for row in found[:12]] == clf.predict(texts[:12]).tolist()
    assert [row["node"] for row in found[12:]] == clf.predict_nodes(texts[12:], 0.9).tolist()
    assert [len(row["alternatives"]) for row in found] == [1] * 12 + [2] * 12
    assert 'arbormax_batch_texts_bucket{le="8.0"} 2.0' in metrics


def test_a_full_queue_refuses_requests_with_retry_after(model, monkeypatch):
    with served(model, queue=4, max_texts=4) as client:
        gate, requests = Gate(model, monkeypatch), Requests(client)
        requests.send(text="the first, which occupies the model")
        assert gate.reached.wait(10)
        requests.send(texts=["a"] * 3)
        wait_until(lambda: queued(client) == 3)
        refused = client.post("/v1/predict", json={"texts": ["b"] * 2})
        problem(refused, 503)
        assert int(refused.headers["retry-after"]) >= 1
        assert client.get("/readyz").status_code == 200
        requests.send(text="c")
        wait_until(lambda: queued(client) == 4)
        assert "full" in problem(client.get("/readyz"), 503)["detail"]
        assert client.get("/healthz").status_code == 200
        gate.open.set()
        assert [response.status_code for response in requests.responses()] == [200] * 3
        assert client.get("/readyz").status_code == 200


def test_too_many_simultaneous_requests_are_refused(model, monkeypatch):
    with served(model, max_requests=2) as client:
        gate, requests = Gate(model, monkeypatch), Requests(client)
        requests.send(text="a")
        assert gate.reached.wait(10)
        requests.send(text="b")
        wait_until(lambda: queued(client) == 1)
        refused = client.post("/v1/predict", json={"text": "c"})
        problem(refused, 503)
        assert refused.headers["retry-after"] == "1"
        gate.open.set()
        assert [response.status_code for response in requests.responses()] == [200] * 2
        assert client.post("/v1/predict", json={"text": "c"}).status_code == 200


def test_an_invalid_text_does_not_fail_the_other_requests_of_its_batch(model, monkeypatch):
    with served(model) as client:
        gate, requests = Gate(model, monkeypatch), Requests(client)
        real = model.features

        def reject_poison(texts, batch_size=256):
            if "poison" in texts:
                raise RuntimeError
            return real(texts, batch_size)

        monkeypatch.setattr(model, "features", reject_poison)
        requests.send(text="the first, which occupies the model")
        assert gate.reached.wait(10)
        for text in ("a", "poison", "b"):
            requests.send(text=text)
        wait_until(lambda: queued(client) == 3)
        gate.open.set()
        assert [response.status_code for response in requests.responses()] == [200, 200, 500, 200]


def test_shutdown_answers_accepted_requests(model, monkeypatch):
    with served(model, batch_size=4) as client:
        gate, requests = Gate(model, monkeypatch), Requests(client)
        for text in TEXTS:
            requests.send(text=text)
        assert gate.reached.wait(10)
        wait_until(lambda: queued(client) + gate.sizes[0] == len(TEXTS))
        client.server.should_exit = True  # as Uvicorn does on SIGTERM
        threading.Timer(0.3, gate.open.set).start()
        assert [response.status_code for response in requests.responses()] == [200] * len(TEXTS)
        client.thread.join(20)
        assert not client.thread.is_alive()
        with pytest.raises(httpx.ConnectError):
            client.get("/healthz")


def test_a_closed_or_full_batcher_refuses_immediately():
    async def main():
        opened = threading.Event()

        def score(texts, options):
            opened.wait(10)
            return list(texts)

        batcher = Batcher(score, queue=2, batch_size=1)
        assert batcher.state == "starting"
        batcher.start()
        first = asyncio.ensure_future(batcher.predict(["a"], [None]))
        await asyncio.sleep(0.05)
        others = [asyncio.ensure_future(batcher.predict([name], [None])) for name in "bc"]
        await asyncio.sleep(0)
        assert (batcher.waiting, batcher.state) == (2, "full")
        with pytest.raises(QueueFullError):
            await batcher.predict(["d"], [None])
        others[0].cancel()
        await asyncio.sleep(0)
        assert batcher.waiting == 1
        closing = asyncio.ensure_future(batcher.close())
        await asyncio.sleep(0)
        with pytest.raises(ClosedError):
            await batcher.predict(["e"], [None])
        opened.set()
        await closing
        assert await first == ["a"]
        assert await others[1] == ["c"]
        assert batcher.state == "closing"

    asyncio.run(asyncio.wait_for(main(), 20))


def test_a_batch_waits_for_callers_that_were_answered_together():
    sizes = []

    def score(texts, options):
        sizes.append(len(texts))
        return ["{}"] * len(texts)

    async def main():
        batcher = Batcher(score, queue=100, batch_size=64, wait=0.5)
        batcher.start()
        await batcher.predict(["first"], [None])
        await asyncio.gather(*(batcher.predict([str(n)], [None]) for n in range(10)))
        begin = time.perf_counter()
        early = [asyncio.ensure_future(batcher.predict([str(n)], [None])) for n in range(4)]
        await asyncio.sleep(0.05)
        assert sizes == [1, 10]
        await asyncio.gather(*early, *(batcher.predict([str(n)], [None]) for n in range(4)))
        assert sizes == [1, 10, 8]
        assert time.perf_counter() - begin < 0.4
        await asyncio.gather(*(batcher.predict([str(n)], [None]) for n in range(3)))  # fewer than expected
        assert sizes == [1, 10, 8, 3]
        assert time.perf_counter() - begin > 0.45
        begin = time.perf_counter()
        for _ in range(5):
            await batcher.predict(["alone"], [None])
        assert time.perf_counter() - begin < 0.9  # only the first one waits
        await batcher.close()

    asyncio.run(main())


def test_a_request_of_several_batches_keeps_its_order():
    async def main():
        batcher = Batcher(lambda texts, options: list(texts), queue=4096, batch_size=64)
        batcher.start()
        texts = [str(number) for number in range(100)]
        first, second = await asyncio.gather(
            batcher.predict(texts, [None] * len(texts)), batcher.predict(["x"], [None])
        )
        assert first == texts
        assert second == ["x"]
        await batcher.close()

    asyncio.run(main())


def test_a_wrong_number_of_results_is_an_error():
    async def main():
        batcher = Batcher(lambda texts, options: [], queue=10, batch_size=4)
        batcher.start()
        with pytest.raises(RuntimeError, match="1 texts have 0 results"):
            await asyncio.wait_for(batcher.predict(["none"], [None]), 10)
        await batcher.close()

    asyncio.run(main())


def test_a_batcher_can_be_started_again():
    batcher = Batcher(lambda texts, options: list(texts), queue=10, batch_size=4)

    async def main():
        batcher.start()
        assert await asyncio.wait_for(batcher.predict(["a"], [None]), 10) == ["a"]
        await batcher.close()

    asyncio.run(main())
    asyncio.run(main())


def test_abandoned_requests_do_not_block_others(model, monkeypatch):
    with served(model) as client:
        gate = Gate(model, monkeypatch)
        for _ in range(5):
            with pytest.raises(httpx.TimeoutException):
                client.post("/v1/predict", json={"text": "left"}, timeout=0.05)
        gate.open.set()
        assert client.post("/v1/predict", json={"text": "stays"}).status_code == 200


@pytest.mark.parametrize(("path", "body"), [("explain", {"text": "left"}), ("predict", {"texts": ["left"] * 9})])
def test_queued_work_is_dropped_when_its_client_disconnects(model, monkeypatch, path, body):
    with served(model, batch_size=8) as client:
        gate, requests = Gate(model, monkeypatch), Requests(client)
        requests.send(text="the first, which occupies the model")
        assert gate.reached.wait(10)
        with pytest.raises(httpx.TimeoutException):
            client.post(f"/v1/{path}", json=body, timeout=0.2)
        wait_until(lambda: queued(client) == 0)
        gate.open.set()
        assert [response.status_code for response in requests.responses()] == [200]
        assert gate.sizes == [1]
        assert f'requests_total{{route="/v1/{path}",status="499"}} 1.0' in client.get("/metrics").text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_server_after_the_last_response(model, number):
    settings = Settings(port=0)
    found = []

    def request_and_stop(url):
        def send():
            found.append(httpx.post(f"{url}v1/predict", json={"text": "a"}, timeout=20).status_code)
            os.kill(os.getpid(), number)

        threading.Thread(target=send).start()

    run(create_app(model, settings), settings, request_and_stop)
    assert found == [200]


@pytest.mark.parametrize("encoder", ["bag", "bilstm"])
def test_onednn_is_disabled_for_models_that_do_not_need_it(encoder, tmp_path):
    """oneDNN keeps a kernel for each shape of a batch; recurrent networks need it and see few shapes."""
    config = TrainConfig.make(encoder=encoder, encoder_options={"dim": 8})
    save_model(Model.new(TEXTS, Taxonomy.from_nested(TREE), config), tmp_path / "model")
    before = mkldnn.enabled
    try:
        load_app(tmp_path / "model", Settings())
        assert mkldnn.enabled == (before and encoder == "bilstm")
    finally:
        mkldnn.enabled = before


def test_the_command_serves_until_it_is_stopped(clf, tmp_path):
    folder = clf.save(tmp_path / "model")
    command = [sys.executable, "-m", "arbormax", "serve", folder, "--port", 0, "--workers", 1, "--batch-size", 1]
    command += ["--log-level", "info"]
    process = subprocess.Popen([str(word) for word in command], stderr=subprocess.PIPE, text=True)
    try:
        line = process.stderr.readline()
        assert line.startswith("serving "), line + process.stderr.read()
        url = line.split(" at ")[1].split()[0]
        with httpx.Client(base_url=url, timeout=30) as client:
            requests = Requests(client)
            for _ in range(8):
                requests.send(texts=["a secret text"] * 60)
            wait_until(lambda: 'requests_total{route="/v1/predict",status="200"}' in client.get("/metrics").text)
            process.send_signal(signal.SIGTERM)
            assert [response.status_code for response in requests.responses()] == [200] * 8
        rest = process.communicate(timeout=30)[1]
        assert process.returncode == 0
        assert rest.count("POST /v1/predict 200") == 8
        assert rest.splitlines()[-1].startswith("stopped")
        assert "secret" not in rest
    finally:
        process.kill()
        process.wait()
