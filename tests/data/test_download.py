"""Downloads, against a small server on this machine: whole, resumed, cut off, wrong, refused."""

import contextlib
import hashlib
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from arbormax.data import download as module
from arbormax.data.datasets import load, paper
from arbormax.data.download import FETCHABLE, FILES, DownloadError, Remote, fetch
from arbormax.errors import ArbormaxError, OptionError

BODY = bytes(range(256)) * 2_000  # several chunks


class Server:
    """Serves `body` at every path, and can be told to misbehave; `asked` holds the Range of every request."""

    def __init__(self, body=BODY):
        self.body, self.asked = body, []
        self.ranges = True  # whether a Range is honoured
        self.length = True  # whether Content-Length is told
        self.cut = 0  # how many answers end early
        self.answers = []  # statuses to give first, instead of the body
        self.location = None
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                server.asked.append(self.headers.get("Range"))
                server.answer(self)

            def log_message(self, *args):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def answer(self, request):
        if self.answers:
            request.send_response(self.answers.pop(0))
            if self.location:
                request.send_header("Location", self.location)
            request.end_headers()
            return
        body, wanted = self.body, request.headers.get("Range")
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and self.ranges else 0
        if start and start >= len(body):
            request.send_response(416)
            request.send_header("Content-Range", f"bytes */{len(body)}")
            request.end_headers()
            return
        request.send_response(206 if start else 200)
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        if self.length:
            request.send_header("Content-Length", str(len(body) - start))
        request.end_headers()
        rest = body[start:]
        if self.cut:
            self.cut -= 1
            rest = rest[: len(rest) // 2]
        with contextlib.suppress(ConnectionError):  # a client that has seen enough hangs up
            request.wfile.write(rest)

    def url(self, name="file.bin"):
        return f"http://127.0.0.1:{self.http.server_port}/{name}"

    def close(self):
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(module, "BACKOFF", 0.001)
    running = Server()
    yield running
    running.close()


def offer(monkeypatch, *urls, sha256=None, rows=None, limit=1 << 20, name="glove", file="file.bin"):
    """Make `fetch(name)` know one file at these addresses."""
    digest = sha256 if sha256 or rows else hashlib.sha256(BODY).hexdigest()
    monkeypatch.setitem(FILES, name, (Remote(file, urls, "https://example.org/", limit, digest, rows),))


def refused():
    """An address on this machine where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/file.bin"


def names(root):
    return sorted(path.name for path in (root / "glove").iterdir())


def test_a_file_is_downloaded_whole_and_progress_is_told(server, monkeypatch, tmp_path):
    offer(monkeypatch, server.url())
    told = []
    (path,) = fetch("glove", tmp_path, lambda done, total: told.append((done, total)))
    assert path == tmp_path / "glove" / "file.bin"
    assert path.read_bytes() == BODY
    assert names(tmp_path) == ["file.bin"]
    assert told[-1] == (len(BODY), len(BODY))
    assert told == sorted(told)


def test_a_right_file_that_is_there_is_left_alone(server, monkeypatch, tmp_path):
    offer(monkeypatch, server.url())
    fetch("glove", tmp_path)
    server.asked.clear()
    assert fetch("glove", str(tmp_path)) == [tmp_path / "glove" / "file.bin"]
    assert server.asked == []


def test_a_wrong_file_that_is_there_is_replaced(server, monkeypatch, tmp_path):
    offer(monkeypatch, server.url())
    (tmp_path / "glove").mkdir()
    (tmp_path / "glove" / "file.bin").write_bytes(b"half a file")
    fetch("glove", tmp_path)
    assert (tmp_path / "glove" / "file.bin").read_bytes() == BODY


def test_a_download_goes_on_from_the_part_that_is_there(server, monkeypatch, tmp_path):
    offer(monkeypatch, server.url())
    (tmp_path / "glove").mkdir()
    (tmp_path / "glove" / "file.bin.part").write_bytes(BODY[:1000])
    told = []
    (path,) = fetch("glove", tmp_path, lambda done, total: told.append((done, total)))
    assert path.read_bytes() == BODY
    assert server.asked == ["bytes=1000-"]
    assert told[0][0] > 1000
    assert told[-1] == (len(BODY), len(BODY))


def test_a_server_that_cannot_resume_starts_again(server, monkeypatch, tmp_path):
    offer(monkeypatch, server.url())
    server.ranges = False
    (tmp_path / "glove").mkdir()
    (tmp_path / "glove" / "file.bin.part").write_bytes(b"x" * 1000)
    (path,) = fetch("glove", tmp_path)
    assert path.read_bytes() == BODY
    assert len(server.asked) == 1


def test_a_part_that_is_already_whole_needs_no_further_bytes(server, monkeypatch, tmp_path):
    offer(monkeypatch, server.url())
    (tmp_path / "glove").mkdir()
    (tmp_path / "glove" / "file.bin.part").write_bytes(BODY)
    (path,) = fetch("glove", tmp_path)
    assert path.read_bytes() == BODY
    assert len(server.asked) == 1


@pytest.mark.parametrize("stale", [b"x" * 1000, b"x" * len(BODY), b"x" * (len(BODY) + 7)])
def test_a_part_of_something_else_is_thrown_away(server, monkeypatch, tmp_path, stale):
    offer(monkeypatch, server.url())
    (tmp_path / "glove").mkdir()
    (tmp_path / "glove" / "file.bin.part").write_bytes(stale)
    (path,) = fetch("glove", tmp_path)
    assert path.read_bytes() == BODY
    assert names(tmp_path) == ["file.bin"]


def test_a_body_that_ends_early_is_gone_on_with(server, monkeypatch, tmp_path):
    offer(monkeypatch, server.url())
    server.cut = module.TRIES + 2  # every one of them brings something new, so none counts as in vain
    (path,) = fetch("glove", tmp_path)
    assert path.read_bytes() == BODY
    assert server.asked[:3] == [None, f"bytes={len(BODY) // 2}-", f"bytes={len(BODY) * 3 // 4}-"]


def test_a_server_that_always_ends_early_is_given_up_and_leaves_only_the_part(server, monkeypatch, tmp_path):
    offer(monkeypatch, server.url())
    server.ranges, server.cut = False, 100
    with pytest.raises(DownloadError, match=r"ended after 256,000 of 512,000 bytes \(tried 4 times\)"):
        fetch("glove", tmp_path)
    assert names(tmp_path) == ["file.bin.part"]


def test_a_download_that_is_killed_leaves_only_the_part_and_goes_on_later(server, monkeypatch, tmp_path):
    offer(monkeypatch, server.url())

    def kill(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("glove", tmp_path, kill)
    assert names(tmp_path) == ["file.bin.part"]
    (path,) = fetch("glove", tmp_path)
    assert path.read_bytes() == BODY
    assert server.asked[-1] is not None


def test_a_file_that_another_process_downloads_is_refused_until_that_process_is_gone(server, monkeypatch, tmp_path):
    offer(monkeypatch, server.url())
    (tmp_path / "glove").mkdir()
    (tmp_path / "glove" / "file.bin.part").write_bytes(BODY[:1000])
    lock = tmp_path / "glove" / "file.bin.lock"
    script = "import sys, pathlib; from arbormax.data.download import _alone\n"
    script += "with _alone(pathlib.Path(sys.argv[1])): print('ready', flush=True); sys.stdin.read()"
    other = subprocess.Popen(
        [sys.executable, "-c", script, tmp_path / "glove" / "file.bin"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with other:
        assert other.stdout.readline() == "ready\n"
        with pytest.raises(DownloadError, match=f"being downloaded already: process {other.pid} holds .*file.bin.lock"):
            fetch("glove", tmp_path)
        other.kill()
    assert lock.exists()
    assert server.asked == []
    (path,) = fetch("glove", tmp_path)
    assert path.read_bytes() == BODY
    assert server.asked == ["bytes=1000-"]
    assert names(tmp_path) == ["file.bin"]


def test_a_second_download_of_the_same_file_leaves_the_first_alone(server, monkeypatch, tmp_path):
    offer(monkeypatch, server.url())
    refusals = []

    def again(done, total):
        with pytest.raises(DownloadError, match="being downloaded already") as caught:
            fetch("glove", tmp_path)
        refusals.append(caught.value)

    (path,) = fetch("glove", tmp_path, again)
    assert path.read_bytes() == BODY
    assert refusals
    assert names(tmp_path) == ["file.bin"]


def test_a_wrong_checksum_removes_the_file_and_tells_both_sums(server, monkeypatch, tmp_path):
    offer(monkeypatch, server.url(), sha256="0" * 64)
    with pytest.raises(DownloadError) as caught:
        fetch("glove", tmp_path)
    assert f"expected SHA-256 {'0' * 64}, found {hashlib.sha256(BODY).hexdigest()}" in str(caught.value)
    assert names(tmp_path) == []


def test_a_file_that_is_not_found_says_what_to_put_where(server, monkeypatch, tmp_path):
    offer(monkeypatch, server.url("one"), server.url("two"))
    server.answers = [404, 404]
    with pytest.raises(DownloadError) as caught:
        fetch("glove", tmp_path)
    told = str(caught.value)
    for part in (server.url("one"), server.url("two"), "HTTP 404", str(tmp_path / "glove" / "file.bin")):
        assert part in told
    assert len(server.asked) == 2
    assert isinstance(caught.value, ArbormaxError)
    assert isinstance(caught.value, OSError)


def test_the_next_address_is_tried_when_one_fails(server, monkeypatch, tmp_path):
    offer(monkeypatch, refused(), server.url())
    (path,) = fetch("glove", tmp_path)
    assert path.read_bytes() == BODY


def test_a_passing_fault_of_the_server_is_tried_again(server, monkeypatch, tmp_path):
    offer(monkeypatch, server.url())
    server.answers = [503, 429]
    (path,) = fetch("glove", tmp_path)
    assert path.read_bytes() == BODY
    assert len(server.asked) == 3


def test_a_fault_that_does_not_pass_is_given_up_after_a_few_tries(server, monkeypatch, tmp_path):
    offer(monkeypatch, server.url())
    server.answers = [503] * 10
    with pytest.raises(DownloadError, match=r"HTTP 503 .*tried 4 times"):
        fetch("glove", tmp_path)


def test_a_server_that_does_not_answer_in_time_is_given_up(server, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "TIMEOUT", 0.05)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        offer(monkeypatch, f"http://127.0.0.1:{silent.getsockname()[1]}/file.bin")
        with pytest.raises(DownloadError, match="timed out"):
            fetch("glove", tmp_path)


def test_without_a_connection_all_missing_files_are_told_with_their_places(server, monkeypatch, tmp_path):
    address = refused()
    remotes = [Remote(name, (address + name,), "https://example.org/", 1000, "0" * 64) for name in ("one", "two")]
    monkeypatch.setitem(FILES, "glove", tuple(remotes))
    with pytest.raises(DownloadError) as caught:
        fetch("glove", tmp_path)
    told = str(caught.value)
    assert "refused" in told
    for name in ("one", "two"):
        assert address + name in told
        assert str(tmp_path / "glove" / name) in told


def test_a_host_that_has_no_name_is_told_at_once(server, monkeypatch, tmp_path):
    asked = []

    def nowhere(*args, **kwargs):
        asked.append(args)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nowhere)
    offer(monkeypatch, "https://example.invalid/file.bin")
    with pytest.raises(DownloadError, match="Name or service not known"):
        fetch("glove", tmp_path)
    assert len(asked) == 1


@pytest.mark.parametrize("length", [True, False])
def test_a_file_that_is_too_large_is_not_kept(server, monkeypatch, tmp_path, length):
    offer(monkeypatch, server.url(), limit=100_000)
    server.length = length
    with pytest.raises(DownloadError, match="100,000"):
        fetch("glove", tmp_path)
    assert names(tmp_path) == []


def test_a_server_that_tells_no_length_is_read_to_the_end(server, monkeypatch, tmp_path):
    offer(monkeypatch, server.url())
    server.length = False
    told = []
    (path,) = fetch("glove", tmp_path, lambda done, total: told.append(total))
    assert path.read_bytes() == BODY
    assert set(told) == {None}


@pytest.mark.parametrize("url", ["http://example.org/file.bin", "ftp://example.org/file.bin", "file:///etc/hosts"])
def test_only_https_addresses_are_opened(server, monkeypatch, tmp_path, url):
    offer(monkeypatch, url)
    with pytest.raises(DownloadError, match="expected an https address"):
        fetch("glove", tmp_path)


def test_a_redirect_to_plain_http_is_refused(server, monkeypatch, tmp_path):
    offer(monkeypatch, server.url())
    server.answers, server.location = [302], "http://example.org/file.bin"
    with pytest.raises(DownloadError, match=r"expected an https address, found http://example\.org/file\.bin"):
        fetch("glove", tmp_path)


def test_a_redirect_on_the_same_footing_is_followed(server, monkeypatch, tmp_path):
    offer(monkeypatch, server.url())
    server.answers, server.location = [302], server.url("elsewhere")
    assert fetch("glove", tmp_path)[0].read_bytes() == BODY


def test_a_folder_that_cannot_be_written_is_told(server, monkeypatch, tmp_path):
    offer(monkeypatch, server.url())
    (tmp_path / "glove").write_text("a file where the folder should be")
    with pytest.raises(DownloadError, match="cannot write"):
        fetch("glove", tmp_path)


def test_an_opener_of_the_caller_is_used(monkeypatch, tmp_path):
    class Opener:
        def open(self, request, timeout):
            raise OSError(f"asked for {request.full_url}")

    monkeypatch.setattr(module, "BACKOFF", 0.0)
    offer(monkeypatch, "https://example.org/file.bin")
    with pytest.raises(DownloadError, match=r"asked for https://example\.org/file\.bin"):
        fetch("glove", tmp_path, opener=Opener())


def test_rows_are_checked_whatever_their_line_ends(server, monkeypatch, tmp_path):
    rows = hashlib.sha256(b"earn\tprofits rose\nacq\tbid made\n").hexdigest()
    server.body = b"earn\tprofits rose \r\nacq\tbid made \r\n"
    offer(monkeypatch, server.url(), rows=rows, name="r8", file="r8-train-all-terms.txt")
    (path,) = fetch("r8", tmp_path)
    (tmp_path / "r8" / "test.tsv").write_text("acq\tbid made\n")
    assert load("r8", tmp_path).train.inputs == ["profits rose", "bid made"]
    path.unlink()
    server.body = b"earn\tprofits fell\n"
    with pytest.raises(DownloadError, match=f"expected rows with SHA-256 {rows}"):
        fetch("r8", tmp_path)


def test_a_table_with_the_published_rows_needs_no_download(server, monkeypatch, tmp_path):
    table = b"earn\tprofits rose\n"
    offer(monkeypatch, server.url(), rows=hashlib.sha256(table).hexdigest(), name="r8", file="r8-train-all-terms.txt")
    (tmp_path / "r8").mkdir()
    (tmp_path / "r8" / "train.tsv").write_bytes(table)
    assert fetch("r8", tmp_path) == [tmp_path / "r8" / "train.tsv"]
    assert server.asked == []


def test_an_unknown_name_gets_a_suggestion(tmp_path):
    with pytest.raises(OptionError, match="did you mean 'glove'"):
        fetch("glov", tmp_path)
    with pytest.raises(OptionError, match="comes with a package"):
        fetch("icd10cm", tmp_path)


def test_every_published_file_is_checked_and_comes_from_https():
    assert set(FETCHABLE) == {*paper.SOURCES, "glove"}
    for name, remotes in FILES.items():
        if name in paper.SOURCES:
            assert tuple(remote.name for remote in remotes) == paper.SOURCES[name].files
        for remote in remotes:
            assert remote.sha256 or remote.rows
            assert all(urlsplit(url).scheme == "https" for url in remote.urls)
