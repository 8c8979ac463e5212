"""Downloads from a small local server: complete, cut short, wrong and refused."""

import contextlib
import hashlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from arbormax.data import download as module
from arbormax.data.datasets import RemoteFile, load, paper
from arbormax.data.datasets.text_files import RemoteTable
from arbormax.data.download import DownloadError, fetch, fetchable
from arbormax.errors import ArbormaxError, OptionError

BODY = bytes(range(256)) * 2_000  # several chunks
PAGE = "https://example.org/"


class Server:
    """Serves `body` at every path, and can be configured to misbehave; `paths` lists the requests."""

    def __init__(self, body=BODY):
        self.body, self.paths = body, []
        self.length = True  # whether Content-Length is sent
        self.cut = False  # whether bodies end early
        self.ranges = False  # whether a part of the body can be requested; each request gets at most a third then
        self.answers = []  # statuses to return first, instead of the body
        self.location = None
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                server.paths.append(self.path)
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
        if self.ranges:
            start = int(request.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
            request.send_response(206)
            request.send_header("Content-Length", str(len(self.body) - start))
            request.end_headers()
            request.wfile.write(self.body[start : start + len(self.body) // 3])
            return
        request.send_response(200)
        if self.length:
            request.send_header("Content-Length", str(len(self.body)))
        request.end_headers()
        with contextlib.suppress(ConnectionError):  # a client that has read enough hangs up
            request.wfile.write(self.body[: len(self.body) // 2] if self.cut else self.body)

    def url(self, name="file.bin"):
        return f"http://127.0.0.1:{self.http.server_port}/{name}"

    def close(self):
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    running = Server()
    yield running
    running.close()


def offer(monkeypatch, *urls, sha256=None, max_bytes=1 << 20):
    """Make `fetch("glove")` download one file from these addresses."""
    digest = sha256 or hashlib.sha256(BODY).hexdigest()
    monkeypatch.setitem(module.VECTORS, "glove", (RemoteFile("file.bin", urls, PAGE, max_bytes, digest),))


@pytest.fixture
def offer_table(monkeypatch):
    """Make `fetch("r8")` download a training file with these rows."""

    def offer(url, rows):
        remote = RemoteTable("r8-train-all-terms.txt", (url,), PAGE, 1 << 20, rows_sha256=rows)
        monkeypatch.setattr(paper.R8, "remote_files", (remote,))

    return offer


def refused():
    """A local address on which no server listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/file.bin"


def names(root):
    return sorted(path.name for path in (root / "glove").iterdir())


def test_a_file_is_downloaded_and_progress_is_reported(server, monkeypatch, tmp_path):
    offer(monkeypatch, server.url())
    reported = []
    (path,) = fetch("glove", tmp_path, lambda done, total: reported.append((done, total)))
    assert path == tmp_path / "glove" / "file.bin"
    assert path.read_bytes() == BODY
    assert names(tmp_path) == ["file.bin"]
    assert reported[-1] == (len(BODY), len(BODY))
    assert reported == sorted(reported)


def test_a_correct_file_is_not_downloaded_again(server, monkeypatch, tmp_path):
    offer(monkeypatch, server.url())
    fetch("glove", tmp_path)
    server.paths.clear()
    assert fetch("glove", str(tmp_path)) == [tmp_path / "glove" / "file.bin"]
    assert server.paths == []


def test_a_wrong_file_is_replaced(server, monkeypatch, tmp_path):
    offer(monkeypatch, server.url())
    (tmp_path / "glove").mkdir()
    (tmp_path / "glove" / "file.bin").write_bytes(b"half a file")
    fetch("glove", tmp_path)
    assert (tmp_path / "glove" / "file.bin").read_bytes() == BODY


def test_a_wrong_digest_leaves_nothing_and_the_error_has_both_digests(server, monkeypatch, tmp_path):
    offer(monkeypatch, server.url(), sha256="0" * 64)
    with pytest.raises(DownloadError) as caught:
        fetch("glove", tmp_path)
    assert f"expected SHA-256 {'0' * 64}, found {hashlib.sha256(BODY).hexdigest()}" in str(caught.value)
    assert names(tmp_path) == []


def test_the_error_about_a_missing_file_names_addresses_and_path(server, monkeypatch, tmp_path):
    offer(monkeypatch, server.url("one"), server.url("two"))
    server.answers = [404, 404]
    with pytest.raises(DownloadError) as caught:
        fetch("glove", tmp_path)
    reported = str(caught.value)
    for part in (server.url("one"), server.url("two"), "HTTP Error 404", str(tmp_path / "glove" / "file.bin")):
        assert part in reported
    assert len(server.paths) == 2
    assert isinstance(caught.value, ArbormaxError)
    assert isinstance(caught.value, OSError)


def test_the_next_address_is_tried_when_one_fails(server, monkeypatch, tmp_path):
    offer(monkeypatch, refused(), server.url())
    (path,) = fetch("glove", tmp_path)
    assert path.read_bytes() == BODY


def test_a_server_that_does_not_answer_times_out(server, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "TIMEOUT", 0.05)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        offer(monkeypatch, f"http://127.0.0.1:{silent.getsockname()[1]}/file.bin")
        with pytest.raises(DownloadError, match="timed out"):
            fetch("glove", tmp_path)


def test_without_a_connection_the_error_lists_all_missing_files_with_their_paths(server, monkeypatch, tmp_path):
    address = refused()
    remotes = [RemoteFile(name, (address + name,), PAGE, 1000, "0" * 64) for name in ("one", "two")]
    monkeypatch.setitem(module.VECTORS, "glove", tuple(remotes))
    with pytest.raises(DownloadError) as caught:
        fetch("glove", tmp_path)
    reported = str(caught.value)
    assert "refused" in reported
    for name in ("one", "two"):
        assert address + name in reported
        assert str(tmp_path / "glove" / name) in reported


def test_an_unknown_host_is_reported(server, monkeypatch, tmp_path):
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
def test_a_file_that_is_too_large_is_discarded(server, monkeypatch, tmp_path, length):
    offer(monkeypatch, server.url(), max_bytes=100_000)
    server.length = length
    with pytest.raises(DownloadError, match="100,000"):
        fetch("glove", tmp_path)
    assert names(tmp_path) == []


def test_a_body_without_a_content_length_is_read_to_the_end(server, monkeypatch, tmp_path):
    offer(monkeypatch, server.url())
    server.length = False
    reported = []
    (path,) = fetch("glove", tmp_path, lambda done, total: reported.append(total))
    assert path.read_bytes() == BODY
    assert set(reported) == {None}


def test_a_redirect_is_followed(server, monkeypatch, tmp_path):
    offer(monkeypatch, server.url())
    server.answers, server.location = [302], server.url("elsewhere")
    assert fetch("glove", tmp_path)[0].read_bytes() == BODY


def test_a_folder_that_cannot_be_written_is_an_error(server, monkeypatch, tmp_path):
    offer(monkeypatch, server.url())
    (tmp_path / "glove").write_text("a file where the folder should be")
    with pytest.raises(FileExistsError):
        fetch("glove", tmp_path)


def test_a_body_that_ends_early_is_an_error_and_leaves_nothing(server, monkeypatch, tmp_path):
    offer(monkeypatch, server.url())
    server.cut = True
    with pytest.raises(DownloadError, match="ended after 256,000 of 512,000 bytes"):
        fetch("glove", tmp_path)
    assert names(tmp_path) == []


def test_a_connection_that_ends_early_is_resumed(server, monkeypatch, tmp_path):
    server.ranges = True
    offer(monkeypatch, server.url())
    (path,) = fetch("glove", tmp_path)
    assert path.read_bytes() == BODY
    assert len(server.paths) == 4  # three thirds, and the bytes that the division left over


def test_an_interrupted_download_leaves_nothing(server, monkeypatch, tmp_path):
    offer(monkeypatch, server.url())

    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("glove", tmp_path, interrupt)
    assert names(tmp_path) == []


def test_rows_are_checked_independently_of_line_ends(server, offer_table, tmp_path):
    rows = hashlib.sha256(b"earn\tprofits rose\nacq\tbid made\n").hexdigest()
    server.body = b"earn\tprofits rose \r\nacq\tbid made \r\n"
    offer_table(server.url(), rows)
    (path,) = fetch("r8", tmp_path)
    (tmp_path / "r8" / "test.tsv").write_text("acq\tbid made\n")
    assert load("r8", tmp_path).train.inputs == ["profits rose", "bid made"]
    path.unlink()
    server.body = b"earn\tprofits fell\n"
    with pytest.raises(DownloadError, match=f"expected rows with SHA-256 {rows}"):
        fetch("r8", tmp_path)


def test_a_table_with_the_published_rows_needs_no_download(server, offer_table, tmp_path):
    table = b"earn\tprofits rose\n"
    offer_table(server.url(), hashlib.sha256(table).hexdigest())
    (tmp_path / "r8").mkdir()
    (tmp_path / "r8" / "train.tsv").write_bytes(table)
    assert fetch("r8", tmp_path) == [tmp_path / "r8" / "train.tsv"]
    assert server.paths == []


def test_an_unknown_name_gets_a_suggestion(tmp_path):
    with pytest.raises(OptionError, match="did you mean 'glove'"):
        fetch("glov", tmp_path)
    with pytest.raises(OptionError, match="'icd10cm' has no download"):
        fetch("icd10cm", tmp_path)


def test_every_published_file_has_a_digest_and_https_addresses():
    assert set(fetchable()) == {*paper.SOURCES, "glove"}
    remotes = [remote for source in paper.SOURCES.values() for remote in source.remote_files]
    assert all(remote.rows_sha256 for remote in remotes)
    for remote in [*remotes, module.GLOVE]:
        assert remote.sha256 or remote.rows_sha256
        assert all(urlsplit(url).scheme == "https" for url in remote.urls)
