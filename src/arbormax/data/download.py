"""Downloads of the published files: resumed, checked against known sums, and put in place whole or not at all."""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import socket
import ssl
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from arbormax.data.datasets import icd10cm, paper
from arbormax.data.datasets.base import folder_of
from arbormax.errors import ArbormaxError, OptionError, did_you_mean

__all__ = ["FETCHABLE", "DownloadError", "Remote", "fetch"]

Progress = Callable[[int, int | None], None]

TIMEOUT = 30.0  # seconds without a byte
TRIES = 4  # in a row that bring nothing new
BACKOFF = 0.5  # seconds before the second try, doubled for each further one
CHUNK = 1 << 16
PASSING = {408, 425, 429, 500, 502, 503, 504}
LOCAL = {"localhost", "127.0.0.1", "::1"}


class DownloadError(ArbormaxError, OSError):
    """A file that could not be downloaded, or is not the published one; the message says where to put it by hand."""


class _FaultError(Exception):
    """Why one address did not give the file; `passing` when a further try may."""

    def __init__(self, why: str, *, passing: bool = False, wait: float = 0.0) -> None:
        super().__init__(why)
        self.passing, self.wait = passing, wait


@dataclass(frozen=True)
class Remote:
    """A published file: its name, the addresses to try in turn, and how to know it is right.

    It is right when its bytes have the SHA-256 `sha256`, or its rows, as a table of label, tab and text, have `rows`;
    the latter does not mind blanks at line ends, which differ between published copies.
    """

    name: str
    urls: tuple[str, ...]
    page: str  # where a person finds it
    limit: int  # bytes; more than that is not this file
    sha256: str | None = None
    rows: str | None = None


def _trec(name: str, sha256: str, rows: str) -> Remote:
    hosts = ("https://cogcomp.seas.upenn.edu/Data/QA/QC/", "https://cogcomp.org/Data/QA/QC/")
    return Remote(name, tuple(host + name for host in hosts), hosts[0], 1 << 20, sha256, rows)


def _cachopo(name: str, rows: str, *more: str) -> Remote:
    hosts = ("https://www.cs.umb.edu/~smimarog/textmining/datasets/", "https://web.ist.utl.pt/~acardoso/datasets/")
    page = "https://ana.cachopo.org/datasets-for-single-label-text-categorization"
    return Remote(name, (*(host + name for host in hosts), *more), page, 32 << 20, rows=rows)


_TEXT_GCN = "https://raw.githubusercontent.com/yao8839836/text_gcn/5fa0c35dbe09453a8f724c3f3eb8b6f172deb18c/data/R8/"

FILES: dict[str, tuple[Remote, ...]] = {
    "trec": (
        _trec(
            "train_5500.label",
            "9e4c8bdcaffb96ed61041bd64b564183d52793a8e91d84fc3a8646885f466ec3",
            "4428b0118135b9122ac9671f66fe7fd45c61b08beacb591ddbdc2a1a09ea5834",
        ),
        _trec(
            "TREC_10.label",
            "033f22c028c2bbba9ca682f68ffe204dc1aa6e1cf35dd6207f2d4ca67f0d0e8e",
            "362f949499f30ea9c006498007971397ad6c9a46c75d598ce7b5729673785de3",
        ),
    ),
    "20ng": (
        _cachopo("20ng-train-all-terms.txt", "88a1869518fc705d45ab6bfaf087bb160fee92173e66d8b8d16724b195d6dd0d"),
        _cachopo("20ng-test-all-terms.txt", "b2d8a326ca4a97945c5b77bfda3caaa560ce67a47e10aac57244decc8efa86f3"),
    ),
    "r8": (
        _cachopo(
            "r8-train-all-terms.txt",
            "015bddccc661d2e604bbdb2bf0405c184f35af21a48a55d8e5a8e9947698b2ed",
            f"{_TEXT_GCN}train.txt",
        ),
        _cachopo(
            "r8-test-all-terms.txt",
            "9ed028ab5dbcc8dfb575b2efde93ecc166529e70849dc041113fed6598b0302c",
            f"{_TEXT_GCN}test.txt",
        ),
    ),
    "r52": (
        _cachopo("r52-train-all-terms.txt", "9fc4611ada92056fb96f6f37ccbc2ef2598c007415d2485f57450b3e1ab66908"),
        _cachopo("r52-test-all-terms.txt", "073a3e6de10378f7a87c3545baf50e789bb198469b96c9c1c670c16176829773"),
    ),
    "glove": (
        Remote(
            "glove.6B.zip",
            ("https://nlp.stanford.edu/data/glove.6B.zip", "https://downloads.cs.stanford.edu/nlp/data/glove.6B.zip"),
            "https://nlp.stanford.edu/projects/glove/",
            862_182_613,
            "617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
        ),
    ),
}
FETCHABLE = tuple(FILES)


def fetch(
    name: str,
    root: Path | str | None = None,
    progress: Progress | None = None,
    opener: urllib.request.OpenerDirector | None = None,
) -> list[Path]:
    """The files of `name`, one of `FETCHABLE`, downloaded into its folder below `root` unless right and there.

    `root` is `data_root()` unless given. `progress(done, total)` is called with bytes, for one file after the other;
    `total` is None where the server does not tell. A download that was cut off goes on from where it stopped; one that
    another process is at is an error. A table (`train.tsv`, `test.tsv`) with the published rows counts as there.
    """
    if name == icd10cm.NAME:
        raise OptionError(f"{name} needs no download, it comes with a package: pip install 'arbormax[text]'")
    if name not in FILES:
        known = ", ".join(FILES)
        raise OptionError(f"nothing to fetch is named {name!r}, expected one of {known}{did_you_mean(name, FILES)}")
    folder = folder_of(root)
    opener = opener or urllib.request.build_opener(_SafeRedirects)
    places: list[Path] = []
    for place, remote in enumerate(FILES[name]):
        target = folder / name / remote.name
        there = _there(name, folder, remote)
        if there is None:
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                with _alone(target):
                    _obtain(name, remote, target, progress, opener)
            except DownloadError:
                raise
            except _FaultError as fault:
                rest = [other for other in FILES[name][place:] if _there(name, folder, other) is None]
                raise DownloadError(_by_hand(name, folder, remote, str(fault), rest)) from fault
            except OSError as error:
                raise DownloadError(f"cannot write {target}: {error}; make room or choose another root") from error
        places.append(there or target)
    return places


def _by_hand(name: str, folder: Path, remote: Remote, why: str, rest: list[Remote]) -> str:
    wanted = "".join(f"\n  - {other.urls[0]}\n    as {folder / name / other.name}" for other in rest)
    return (
        f"could not download {remote.name} of {name}:{why}\nTry again later, which goes on from what has arrived, or "
        f"save each file by hand, and it is taken up from there:{wanted}\nThey are listed on {remote.page}"
    )


def _there(name: str, folder: Path, remote: Remote) -> Path | None:
    """The right file, where it is there already, under its published name or as a table."""
    candidates = [folder / name / remote.name]
    if source := paper.SOURCES.get(name):
        candidates = list(source.candidates(folder, paper.SPLITS[source.files.index(remote.name)]))
    return next((path for path in candidates if path.is_file() and _mismatch(name, remote, path) is None), None)


def _mismatch(name: str, remote: Remote, path: Path) -> str | None:
    """What is wrong with a file, with the sums expected and found; None when it is right."""
    told = []
    if remote.sha256:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found == remote.sha256:
            return None
        told.append(f"expected SHA-256 {remote.sha256}, found {found}")
    if remote.rows and name in paper.SOURCES:
        try:
            found = paper.rows_digest(paper.SOURCES[name], path)
        except ArbormaxError as error:
            found = str(error)
        if found == remote.rows:
            return None
        told.append(f"expected rows with SHA-256 {remote.rows}, found {found}")
    return f"{'; '.join(told)} ({path.stat().st_size:,} bytes)"


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Keep other processes away from this file and its part; the lock ends with this process, however that ends."""
    try:
        import fcntl
    except ModuleNotFoundError:  # Windows, where nothing is locked
        yield
        return
    path = target.with_name(f"{target.name}.lock")
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # one that its holder removed since it was opened keeps nobody away
            mine = path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat())
        except OSError as error:  # else a file system without locks
            mine = not isinstance(error, BlockingIOError)
        if not mine:
            file.seek(0)
            who = f"process {file.read().strip() or 'unknown'} holds {path}"
            raise DownloadError(f"{target} is being downloaded already: {who}; try again when that has ended")
        file.truncate(0)
        print(os.getpid(), file=file, flush=True)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _obtain(
    name: str, remote: Remote, target: Path, progress: Progress | None, opener: urllib.request.OpenerDirector
) -> None:
    """Put the right file in place, from the first address that gives it."""
    part = target.with_name(f"{target.name}.part")
    faults = ""
    for url in remote.urls:
        resumed = part.exists()
        try:
            _download(url, part, remote.limit, progress, opener)
            wrong = _mismatch(name, remote, part)
            if wrong and resumed:  # the part may be the start of something else: once more, from nothing
                part.unlink()
                _download(url, part, remote.limit, progress, opener)
                wrong = _mismatch(name, remote, part)
        except _FaultError as fault:
            faults += f"\n  - {url}: {fault}"
            continue
        if wrong is None:
            os.replace(part, target)
            return
        part.unlink()
        faults += f"\n  - {url}: not the published file, removed: {wrong}"
    raise _FaultError(faults)


def _download(
    url: str, part: Path, limit: int, progress: Progress | None, opener: urllib.request.OpenerDirector
) -> None:
    """Download one address into the part file; faults that pass are tried again, going on from what is there."""
    tries, furthest = 0, _size(part)
    while True:
        try:
            return _transfer(url, part, limit, progress, opener)
        except _FaultError as fault:
            size = _size(part)
            tries = 1 if size > furthest else tries + 1
            furthest = max(furthest, size)
            if not fault.passing:
                raise
            if tries >= TRIES:
                raise _FaultError(f"{fault} (tried {TRIES} times)") from fault
            time.sleep(max(fault.wait, BACKOFF * 2 ** (tries - 1)))


def _transfer(
    url: str, part: Path, limit: int, progress: Progress | None, opener: urllib.request.OpenerDirector
) -> None:
    """One connection: the rest of the file is added to the part, or all of it where the server cannot resume."""
    done = _size(part)
    with _open(url, done, opener) as response:
        if response.status == 416:  # nothing is left to send: the part is whole, or is no part of this file
            if _range_total(response.headers) != done:
                part.unlink()
                raise _FaultError(f"the server has no more than is in {part}", passing=True)
            return
        if response.status == 206 and _range_start(response.headers) != done:
            part.unlink()
            raise _FaultError("the server sent another range than was asked for", passing=True)
        if response.status != 206:
            done = 0
        length = response.headers.get("Content-Length", "")
        total = done + int(length) if length.isdigit() else None
        if total is not None and total > limit:
            part.unlink(missing_ok=True)
            raise _FaultError(f"found {total:,} bytes, expected at most {limit:,}")
        with part.open("ab" if done else "wb") as file:
            while done <= limit and (chunk := _read(response)):
                done += len(chunk)
                file.write(chunk)
                if progress:
                    progress(done, total)
    if done > limit:
        part.unlink()
        raise _FaultError(f"found more than the {limit:,} bytes expected at most")
    if total is not None and done < total:
        raise _FaultError(f"the connection ended after {done:,} of {total:,} bytes", passing=True)


def _open(url: str, start: int, opener: urllib.request.OpenerDirector) -> Any:
    """The answer of the server: 200, 206 or 416."""
    _check_address(url)
    # Python's own name as agent is turned away by some servers, and a packed body would not be the file.
    headers = {"User-Agent": "arbormax", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - the scheme was checked above
    try:
        response = opener.open(request, timeout=TIMEOUT)
    except HTTPError as error:
        if error.code == 416 and start:
            return error
        with error:
            wait = error.headers.get("Retry-After", "")
        seconds = min(float(wait), 30.0) if wait.isdigit() else 0.0
        raise _FaultError(f"HTTP {error.code} {error.reason}", passing=error.code in PASSING, wait=seconds) from None
    except URLError as error:
        raise _connection_fault(error.reason) from None
    except (OSError, http.client.HTTPException) as error:
        raise _connection_fault(error) from None
    try:
        _check_address(response.geturl())
    except _FaultError:
        response.close()
        raise
    return response


def _connection_fault(reason: object) -> _FaultError:
    # no name, no listener, no trust: trying again would only keep the user waiting
    final = isinstance(reason, socket.gaierror | ConnectionRefusedError | ssl.SSLCertVerificationError)
    told = str(reason) or type(reason).__name__
    return _FaultError(f"no connection: {told}", passing=not final and isinstance(reason, Exception))


def _read(response: Any) -> bytes:
    try:
        chunk: bytes = response.read(CHUNK)
        return chunk
    except (OSError, http.client.HTTPException) as error:
        raise _FaultError(f"the connection broke: {error or type(error).__name__}", passing=True) from None


def _check_address(url: str) -> None:
    """Refuse anything but https; plain http only to this machine itself."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOCAL):
        raise _FaultError(f"expected an https address, found {url}")


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Redirects are followed only to addresses that could have been asked for in the first place."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        try:
            _check_address(newurl)
        except _FaultError:
            fp.close()
            raise
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _range_start(headers: Message) -> int | None:
    found = re.match(r"bytes (\d+)-", headers.get("Content-Range", ""))
    return int(found[1]) if found else None


def _range_total(headers: Message) -> int | None:
    found = re.match(r"bytes \S+/(\d+)$", headers.get("Content-Range", ""))
    return int(found[1]) if found else None


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0
