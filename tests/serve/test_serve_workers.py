"""`arbormax serve` with several worker processes at one address."""

import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inspects processes in /proc")


@pytest.fixture(scope="module")
def folder(clf, tmp_path_factory):
    return clf.save(tmp_path_factory.mktemp("served") / "model")


class Command:
    """The command with two workers, its URL and its output."""

    def __init__(self, folder, *options, temporary=None):
        words = [sys.executable, "-m", "arbormax", "serve", folder, "--port", 0, "--workers", 2, *options]
        environment = {**os.environ, **({"TMPDIR": str(temporary)} if temporary else {})}
        self.process = subprocess.Popen(
            [str(word) for word in words], stderr=subprocess.PIPE, text=True, env=environment
        )
        self.line = next((line for line in self.process.stderr if line.startswith("serving ")), "")

    @property
    def url(self):
        return self.line.split(" at ")[1].split()[0]

    def __enter__(self):
        assert self.line, "the service has stopped"
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()

    def workers(self):
        """The process ids of the workers; multiprocessing has one more child."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return {int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()}

    def predict(self, count):
        """The status codes of predictions, each over its own connection."""
        responses = [httpx.post(f"{self.url}v1/predict", json={"text": "a"}, timeout=30) for _ in range(count)]
        return [response.status_code for response in responses]

    def accepts_connections(self):
        try:
            httpx.get(f"{self.url}healthz", timeout=5)
        except httpx.ConnectError:
            return False
        except httpx.HTTPError:
            pass
        return True

    def metric(self, name):
        text = httpx.get(f"{self.url}metrics", timeout=30).text
        return sum(float(value) for value in re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE))


def wait_until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_workers_share_metrics_are_replaced_and_stop_together(folder):
    options = ("--log-level", "info", "--batch-size", "1", "--queue", "8192")  # one worker may get all slow requests
    with Command(folder, *options) as command, ThreadPoolExecutor() as pool:
        assert "with 2 processes at http://127.0.0.1:" in command.line
        first, second = workers = command.workers()
        assert "libtorch" not in Path(f"/proc/{command.process.pid}/maps").read_text()  # only workers need torch
        assert command.predict(24) == [200] * 24
        assert command.metric("arbormax_texts_total") == 24
        assert command.metric("arbormax_requests_total") >= 24
        assert command.metric("arbormax_queue_texts") == 0

        os.kill(first, signal.SIGKILL)
        wait_until(lambda: len(command.workers() - workers) == 1)
        assert command.predict(8) == [200] * 8
        workers = command.workers()

        body = {"texts": ["a text of some words"] * 1000}
        slow = [pool.submit(httpx.post, f"{command.url}v1/predict", json=body, timeout=60) for _ in range(6)]
        wait_until(lambda: command.metric("arbormax_batch_texts_sum") > 60)
        command.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not command.accepts_connections())
        assert not all(each.done() for each in slow)
        assert [each.result().status_code for each in slow] == [200] * 6

        rest = command.process.communicate(timeout=60)[1]
        assert command.process.returncode == 0
        assert rest.count("POST /v1/predict 200") == 38
        assert f"Child process [{first}] died" in rest
        assert rest.splitlines()[-1] == "stopped"
        assert "Traceback" not in rest
        wait_until(lambda: not any(map(is_alive, {second, *workers})))


@pytest.mark.slow
def test_workers_stop_when_their_parent_is_killed(folder, tmp_path):
    with Command(folder, temporary=tmp_path) as command:
        workers = command.workers()
        assert list(tmp_path.glob("arbormax-*"))
        command.process.kill()
        wait_until(lambda: not any(map(is_alive, workers)))


@pytest.mark.slow
def test_the_service_stops_with_an_error_if_a_worker_cannot_be_replaced(clf, tmp_path):
    with Command(clf.save(tmp_path / "model")) as command:
        (tmp_path / "model").rename(tmp_path / "away")
        for pid in command.workers():
            os.kill(pid, signal.SIGKILL)
        rest = command.process.communicate(timeout=200)[1]
        assert command.process.returncode == 2
        assert "is not a model" in rest.splitlines()[-1]


def test_a_model_that_cannot_be_loaded_is_reported_once(tmp_path):
    words = [sys.executable, "-m", "arbormax", "serve", tmp_path / "nothing", "--port", "0", "--workers", "2"]
    result = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 2
    assert result.stderr.count("is not a model") == 1
    assert "Traceback" not in result.stderr
