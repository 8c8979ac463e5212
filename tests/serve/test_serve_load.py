"""Many requests at once: they are answered together, each with its own answer, or refused; shutdown loses none."""

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
from serve_toy import TEXTS, TREE, Gate, problem, served
from torch.backends import mkldnn

from arbormax import Taxonomy
from arbormax.model import TrainConfig
from arbormax.model.network import Model
from arbormax.model.predict import Decoding
from arbormax.serve import Settings, create_app, run
from arbormax.serve.batching import ClosedError, Job, QueueFullError, Worker


def wait_until(ready):
    until = time.monotonic() + 20
    while not ready():
        assert time.monotonic() < until
        time.sleep(0.005)


class Crowd:
    """Requests that are sent at the same time, each by a thread of its own."""

    def __init__(self, client):
        self.client, self.pool, self.waiting = client, ThreadPoolExecutor(32), []

    def ask(self, **asked):
        self.waiting.append(self.pool.submit(self.client.post, "/v1/predict", json=asked))

    def answers(self):
        found = [each.result(20) for each in self.waiting]
        self.pool.shutdown()
        return found


def queued(client):
    return client.app.state.service.worker.waiting


def test_requests_that_wait_together_are_answered_together(model, clf, monkeypatch):
    texts = [TEXTS[i % len(TEXTS)] for i in range(24)]
    with served(model, batch_size=16) as client:
        gate, crowd = Gate(model, monkeypatch), Crowd(client)
        crowd.ask(text="the first, which keeps the model busy")
        assert gate.reached.wait(10)
        for text in texts[:12]:
            crowd.ask(text=text, top_k=1)
        for text in texts[12:]:
            crowd.ask(text=text, tau=0.9, top_k=2)
        wait_until(lambda: queued(client) == len(texts))
        gate.open.set()
        answers = [answer.json()["predictions"] for answer in crowd.answers()[1:]]
        metrics = client.get("/metrics").text
    assert gate.sizes == [1, 16, 8]
    assert all(len(rows) == 1 for rows in answers)
    found = [rows[0] for rows in answers]
    assert [row["label"] for row in found[:12]] == clf.predict(texts[:12]).tolist()
    assert [row["node"] for row in found[12:]] == clf.predict_nodes(texts[12:], 0.9).tolist()
    assert [len(row["alternatives"]) for row in found] == [1] * 12 + [2] * 12
    assert 'arbormax_batch_texts_bucket{le="8.0"} 2.0' in metrics


def test_a_full_queue_refuses_and_says_when_to_come_again(model, monkeypatch):
    with served(model, queue=4, max_texts=4) as client:
        gate, crowd = Gate(model, monkeypatch), Crowd(client)
        crowd.ask(text="the first, which keeps the model busy")
        assert gate.reached.wait(10)
        crowd.ask(texts=["a"] * 3)
        wait_until(lambda: queued(client) == 3)
        refused = client.post("/v1/predict", json={"texts": ["b"] * 2})
        problem(refused, 503)
        assert int(refused.headers["retry-after"]) >= 1
        assert client.get("/readyz").status_code == 200
        crowd.ask(text="c")
        wait_until(lambda: queued(client) == 4)
        assert "full" in problem(client.get("/readyz"), 503)["detail"]
        assert client.get("/healthz").status_code == 200
        gate.open.set()
        assert [answer.status_code for answer in crowd.answers()] == [200] * 3
        assert client.get("/readyz").status_code == 200


def test_too_many_requests_at_a_time_are_refused(model, monkeypatch):
    with served(model, max_requests=2) as client:
        gate, crowd = Gate(model, monkeypatch), Crowd(client)
        crowd.ask(text="a")
        assert gate.reached.wait(10)
        crowd.ask(text="b")
        wait_until(lambda: queued(client) == 1)
        refused = client.post("/v1/predict", json={"text": "c"})
        problem(refused, 503)
        assert refused.headers["retry-after"] == "1"
        gate.open.set()
        assert [answer.status_code for answer in crowd.answers()] == [200] * 2
        assert client.post("/v1/predict", json={"text": "c"}).status_code == 200


def test_one_bad_text_does_not_spoil_the_others_of_its_batch(model, monkeypatch):
    with served(model) as client:
        gate, crowd = Gate(model, monkeypatch), Crowd(client)
        gated = model.node_log_probs

        def picky(texts, batch_size=256):
            if "poison" in texts:
                raise RuntimeError
            return gated(texts, batch_size)

        monkeypatch.setattr(model, "node_log_probs", picky)
        crowd.ask(text="the first, which keeps the model busy")
        assert gate.reached.wait(10)
        for text in ("a", "poison", "b"):
            crowd.ask(text=text)
        wait_until(lambda: queued(client) == 3)
        gate.open.set()
        assert [answer.status_code for answer in crowd.answers()] == [200, 200, 500, 200]


def test_shutdown_answers_what_was_accepted(model, monkeypatch):
    with served(model, batch_size=4) as client:
        gate, crowd = Gate(model, monkeypatch), Crowd(client)
        for text in TEXTS:
            crowd.ask(text=text)
        assert gate.reached.wait(10)
        wait_until(lambda: queued(client) + gate.sizes[0] == len(TEXTS))
        client.server.should_exit = True  # what Uvicorn does on SIGTERM
        threading.Timer(0.3, gate.open.set).start()
        assert [answer.status_code for answer in crowd.answers()] == [200] * len(TEXTS)
        client.thread.join(20)
        assert not client.thread.is_alive()
        with pytest.raises(httpx.ConnectError):
            client.get("/healthz")


def test_a_worker_that_is_closed_or_full_refuses_at_once():
    async def play():
        opened = threading.Event()

        def score(texts, decodings):
            opened.wait(10)
            return list(texts)

        worker = Worker(score, queue=2, batch_size=1)
        assert worker.state == "starting"
        worker.start()
        first = asyncio.ensure_future(worker.predict(["a"], Decoding()))
        await asyncio.sleep(0.05)
        others = [asyncio.ensure_future(worker.predict([name], Decoding())) for name in "bc"]
        await asyncio.sleep(0)
        assert (worker.waiting, worker.state) == (2, "full")
        with pytest.raises(QueueFullError):
            await worker.predict(["d"], Decoding())
        others[0].cancel()
        await asyncio.sleep(0)
        assert worker.waiting == 1
        closing = asyncio.ensure_future(worker.close())
        await asyncio.sleep(0)
        with pytest.raises(ClosedError):
            await worker.predict(["e"], Decoding())
        opened.set()
        await closing
        assert await first == ["a"]
        assert await others[1] == ["c"]
        assert worker.state == "closing"

    asyncio.run(asyncio.wait_for(play(), 20))


def test_a_batch_is_held_for_those_who_were_answered_together():
    sizes = []

    def score(texts, decodings):
        sizes.append(len(texts))
        return ["{}"] * len(texts)

    async def main():
        worker = Worker(score, queue=100, batch_size=64, wait=0.5)
        worker.start()
        await worker.predict(["first"], Decoding())  # in its thread: nothing is known of its pace
        await asyncio.gather(*(worker.predict([str(n)], Decoding()) for n in range(10)))
        begin = time.perf_counter()
        early = [asyncio.ensure_future(worker.predict([str(n)], Decoding())) for n in range(4)]
        await asyncio.sleep(0.05)
        assert sizes == [1, 10]
        await asyncio.gather(*early, *(worker.predict([str(n)], Decoding()) for n in range(4)))
        assert sizes == [1, 10, 8]
        assert time.perf_counter() - begin < 0.4
        await asyncio.gather(*(worker.predict([str(n)], Decoding()) for n in range(3)))  # fewer than hoped for
        assert sizes == [1, 10, 8, 3]
        assert time.perf_counter() - begin > 0.45
        begin = time.perf_counter()
        for _ in range(5):
            await worker.predict(["alone"], Decoding())
        assert time.perf_counter() - begin < 0.9  # the first is held, once
        await worker.close()

    asyncio.run(main())


def test_a_request_of_several_batches_keeps_its_order_between_thread_and_loop():
    goes_on, sizes = threading.Event(), []

    def score(texts, decodings):
        sizes.append(len(texts))
        if len(texts) == 64:
            assert goes_on.wait(20)
        return list(texts)

    async def main():
        worker = Worker(score, queue=4096, batch_size=64)
        worker.start()
        await worker.predict(["first"], Decoding())
        worker._pace = 2e-4  # 64 texts are for the thread, 36 for the loop
        texts = [str(number) for number in range(100)]
        long = asyncio.ensure_future(worker.predict(texts, Decoding()))
        while len(sizes) < 2:
            await asyncio.sleep(0.001)
        short = asyncio.ensure_future(worker.predict(["x"], Decoding()))  # wakes the loop behind what follows

        def hold_up():
            goes_on.set()
            time.sleep(0.05)  # the thread ends its batch meanwhile

        asyncio.get_running_loop().call_soon(hold_up)
        assert await long == texts
        assert await short == ["x"]
        await worker.close()

    asyncio.run(main())


def test_an_answer_that_cannot_be_given_does_not_lose_the_others():
    def refused(got):
        raise ValueError("no")

    async def main():
        worker = Worker(lambda texts, decodings: list(texts), queue=10, batch_size=4)
        worker.start()
        bad = Job(["bad"], Decoding(), refused)
        worker.submit(bad)
        assert await asyncio.wait_for(worker.predict(["good"], Decoding()), 10) == ["good"]
        worker._score = lambda texts, decodings: []
        with pytest.raises(RuntimeError, match="1 texts have 0 answers"):
            await asyncio.wait_for(worker.predict(["none"], Decoding()), 10)
        await worker.close()

    asyncio.run(main())


def test_requests_left_by_their_callers_do_not_stop_the_others(model, monkeypatch):
    with served(model) as client:
        gate = Gate(model, monkeypatch)
        for _ in range(5):
            with pytest.raises(httpx.TimeoutException):
                client.post("/v1/predict", json={"text": "left"}, timeout=0.05)
        gate.open.set()
        assert client.post("/v1/predict", json={"text": "stays"}).status_code == 200


@pytest.mark.parametrize(("path", "asked"), [("explain", {"text": "left"}), ("predict", {"texts": ["left"] * 9})])
def test_long_work_is_dropped_when_its_caller_leaves(model, monkeypatch, path, asked):
    with served(model, batch_size=8) as client:
        gate, crowd = Gate(model, monkeypatch), Crowd(client)
        crowd.ask(text="the first, which keeps the model busy")
        assert gate.reached.wait(10)
        with pytest.raises(httpx.TimeoutException):
            client.post(f"/v1/{path}", json=asked, timeout=0.2)
        wait_until(lambda: queued(client) == 0)
        gate.open.set()
        assert [answer.status_code for answer in crowd.answers()] == [200]
        assert gate.sizes == [1]
        assert f'requests_total{{route="/v1/{path}",status="499"}} 1.0' in client.get("/metrics").text


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_when_all_is_answered(model, how):
    settings = Settings(port=0)
    found = []

    def ask_and_stop(address):
        def ask():
            found.append(httpx.post(f"{address}v1/predict", json={"text": "a"}, timeout=20).status_code)
            os.kill(os.getpid(), how)

        threading.Thread(target=ask).start()

    run(create_app(model, settings), settings, ask_and_stop)
    assert found == [200]


@pytest.mark.parametrize("encoder", ["bag", "bilstm"])
def test_a_process_that_serves_keeps_no_kernel_for_each_shape_of_a_batch(encoder):
    """Of oneDNN's, which recurrent networks cannot do without; they see few shapes."""
    config = TrainConfig.make(encoder=encoder, encoder_options={"dim": 8})
    app, seen = create_app(Model.new(TEXTS, Taxonomy.from_nested(TREE), config), settings := Settings(port=0)), []

    def look_and_stop(_):
        seen.append(mkldnn.enabled)
        os.kill(os.getpid(), signal.SIGTERM)

    before = mkldnn.enabled
    run(app, settings, look_and_stop)
    assert seen == [before and encoder == "bilstm"]
    assert mkldnn.enabled is before


def test_the_program_serves_until_it_is_stopped(clf, tmp_path):
    folder = clf.save(tmp_path / "model")
    command = [sys.executable, "-m", "arbormax", "serve", folder, "--port", 0, "--workers", 1, "--batch-size", 1]
    process = subprocess.Popen([str(word) for word in command], stderr=subprocess.PIPE, text=True)
    try:
        line = process.stderr.readline()
        assert line.startswith("serving "), line + process.stderr.read()
        address = line.split(" at ")[1].split()[0]
        with httpx.Client(base_url=address, timeout=30) as client:
            crowd = Crowd(client)
            for _ in range(8):
                crowd.ask(texts=["a secret text"] * 60)
            wait_until(lambda: 'requests_total{route="/v1/predict",status="200"}' in client.get("/metrics").text)
            process.send_signal(signal.SIGTERM)
            assert [answer.status_code for answer in crowd.answers()] == [200] * 8
        rest = process.communicate(timeout=30)[1]
        assert process.returncode == 0
        assert rest.count("POST /v1/predict 200") == 8
        assert rest.splitlines()[-1].startswith("stopped")
        assert "secret" not in rest
    finally:
        process.kill()
        process.wait()
