"""Several processes at one address, as `arbormax serve` starts on several cores."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")


@pytest.fixture(scope="module")
def folder(clf, tmp_path_factory):
    return clf.save(tmp_path_factory.mktemp("served") / "model")


class Served:
    """The program with two processes, its address and what it says."""

    def __init__(self, folder, *options, temporary=None, workers=2, cores=None):
        command = [sys.executable, "-m", "arbormax", "serve", folder, "--port", 0, *options]
        command += [] if workers is None else ["--workers", workers]
        where = {**os.environ, "TMPDIR": str(temporary or tempfile.gettempdir())}
        where |= {} if cores is None else {"OMP_NUM_THREADS": str(cores)}
        self.program = subprocess.Popen([str(word) for word in command], stderr=subprocess.PIPE, text=True, env=where)
        self.line = self.program.stderr.readline()
        self.address = self.line.split(" at ")[1].split()[0] if " at " in self.line else None

    def __enter__(self):
        assert self.address, self.line + self.program.stderr.read()
        return self

    def __exit__(self, *_):
        self.program.kill()
        self.program.wait()
        self.program.stderr.close()

    def team(self):
        """The processes that answer; another child looks after what they share."""
        children = Path(f"/proc/{self.program.pid}/task/{self.program.pid}/children").read_text().split()
        return {int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()}

    def ask(self, count=1):
        """Answers, each over a connection of its own."""
        found = [httpx.post(f"{self.address}v1/predict", json={"text": "a"}, timeout=30) for _ in range(count)]
        return [answer.status_code for answer in found]

    def lets_in(self):
        try:
            httpx.get(f"{self.address}healthz", timeout=5)
        except httpx.ConnectError:
            return False
        except httpx.HTTPError:
            pass
        return True

    def counted(self, name):
        text = httpx.get(f"{self.address}metrics", timeout=30).text
        return sum(float(value) for value in re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE))

    def stop(self, how):
        self.program.send_signal(how)
        rest = self.program.communicate(timeout=60)[1]
        return self.program.returncode, rest


def cmdline(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""


def until(what, seconds=30):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.1)


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_they_answer_at_one_address_count_together_and_stop_together(folder):
    with Served(folder) as served:
        assert "with 2 processes at http://127.0.0.1:" in served.line
        team = served.team()
        assert len(team) == 2
        assert served.ask(24) == [200] * 24
        assert served.counted("arbormax_texts_total") == 24  # whoever is asked
        assert served.counted("arbormax_requests_total") >= 24
        assert served.counted("arbormax_queue_texts") == 0
        code, rest = served.stop(signal.SIGTERM)
        assert code == 0
        assert rest.count("POST /v1/predict 200") == 24
        assert rest.splitlines()[-1].startswith("stopped")
        assert "Traceback" not in rest
        until(lambda: not any(map(is_alive, team)))


@pytest.mark.parametrize(("cores", "options", "count"), [(1, [], 1), (2, [], 2), (2, ["--threads", 2], 1)])
def test_without_a_number_there_is_a_process_a_core(folder, cores, options, count):
    with Served(folder, *options, workers=None, cores=cores) as served:
        assert ("with 2 processes" in served.line) == (count == 2)
        assert len(served.team()) == (2 if count == 2 else 0)
        assert served.ask(2) == [200, 200]
        # who only looks after others does without torch, in whose place there is room for a model
        assert ("libtorch" in Path(f"/proc/{served.program.pid}/maps").read_text()) == (count == 1)


def test_one_that_is_killed_is_replaced_and_the_others_answer_meanwhile(folder):
    with Served(folder) as served:
        first, second = served.team()
        os.kill(first, signal.SIGKILL)
        until(lambda: len(served.team() - {first, second}) == 1)
        assert served.ask(8) == [200] * 8
        code, rest = served.stop(signal.SIGINT)
        assert code == 0
        assert "ended with code -9: another takes its place" in rest


def test_after_the_signal_nobody_is_let_in_and_the_accepted_are_answered(folder):
    options = ("--batch-size", "1", "--queue", "8192")  # one process may get all of them
    with Served(folder, *options) as served, ThreadPoolExecutor() as pool:
        asked = {"texts": ["a text of some words"] * 1000}
        slow = [pool.submit(httpx.post, f"{served.address}v1/predict", json=asked, timeout=60) for _ in range(6)]
        until(lambda: served.counted("arbormax_batch_texts_sum") > 20)
        served.program.send_signal(signal.SIGTERM)
        until(lambda: not served.lets_in())
        assert not all(one.done() for one in slow)
        assert [one.result().status_code for one in slow] == [200] * 6
        assert served.program.wait(60) == 0


@pytest.mark.slow
def test_a_service_whose_processes_cannot_be_replaced_ends_and_says_why(clf, tmp_path):
    with Served(clf.save(tmp_path / "model")) as served:
        (tmp_path / "model").rename(tmp_path / "away")
        for pid in served.team():
            os.kill(pid, signal.SIGKILL)
        rest = served.program.communicate(timeout=200)[1]
        assert served.program.returncode == 2
        assert "is not a model" in rest.splitlines()[-1]


def test_they_end_with_the_program_that_looks_after_them_and_leave_nothing(folder, tmp_path):
    with Served(folder, temporary=tmp_path) as served:
        team = served.team()
        assert list(tmp_path.glob("arbormax-*"))
        served.program.kill()
        until(lambda: not any(map(is_alive, team)))
    assert not list(tmp_path.glob("arbormax-*"))


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_start_that_is_broken_off_says_little_and_leaves_nothing(folder, tmp_path, how):
    (tmp_path / "dawdling.py").write_text(
        "import pathlib, time\npathlib.Path(__file__).with_name('here').touch()\ntime.sleep(60)"
    )
    where = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "arbormax", "serve", str(folder), "--workers", "2", "--import", "dawdling"]
    command += ["--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=where, start_new_session=True) as program:
        children = Path(f"/proc/{program.pid}/task/{program.pid}/children")
        until(lambda: sum(b"spawn_main" in cmdline(pid) for pid in children.read_text().split()) == 2)
        team = [int(pid) for pid in children.read_text().split() if b"spawn_main" in cmdline(pid)]
        if how == signal.SIGINT:
            os.killpg(program.pid, how)  # at once, as Ctrl-C reaches all of them
        else:
            until((tmp_path / "here").exists)
            program.kill()
        assert "Traceback" not in program.stderr.read()
    until(lambda: not any(map(is_alive, team)))
    assert not list(tmp_path.glob("arbormax-*"))


def test_a_model_that_cannot_be_loaded_is_told_once(tmp_path):
    command = [sys.executable, "-m", "arbormax", "serve", tmp_path / "nothing", "--port", "0", "--workers", "2"]
    found = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 2
    assert found.stderr.count("is not a model") == 1
    assert "Traceback" not in found.stderr
