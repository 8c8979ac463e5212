"""Downloads of published files, checked against known digests and stored whole or not at all."""

from __future__ import annotations

import http.client
import os
import urllib.request
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.error import HTTPError

from arbormax.data.datasets import DATASETS
from arbormax.data.datasets.base import RemoteFile, resolve_root
from arbormax.errors import ArbormaxError, OptionError, did_you_mean

__all__ = ["DownloadError", "fetch", "fetchable"]

Progress = Callable[[int, int | None], None]

TIMEOUT = 30.0  # seconds without a byte
_CHUNK = 1 << 16

GLOVE = RemoteFile(
    "glove.6B.zip",
    ("https://nlp.stanford.edu/data/glove.6B.zip", "https://downloads.cs.stanford.edu/nlp/data/glove.6B.zip"),
    "https://nlp.stanford.edu/projects/glove/",
    862_182_613,
    "617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
)
VECTORS = {"glove": (GLOVE,)}  # downloads that are not datasets


class DownloadError(ArbormaxError, OSError):
    """A file could not be downloaded, or is not the published one."""


def fetchable() -> tuple[str, ...]:
    """The names that `fetch` accepts: datasets with published files, and word vectors."""
    return *(name for name in DATASETS if DATASETS[name].remote_files), *VECTORS


def fetch(name: str, root: Path | str | None = None, progress: Progress | None = None) -> list[Path]:
    """Download the files of `name`, one of `fetchable()`, into its folder below `root`, and return their paths.

    `root` is by default `data_root()`. Files that exist and are correct are not downloaded again; a table
    (`train.tsv`, `test.tsv`) with the published rows is correct. `progress(done, total)` is called with byte counts,
    file by file; `total` is None if the server does not send it. Proxies are read from the environment.
    """
    folder = resolve_root(root) / name
    remotes = VECTORS[name] if name in VECTORS else _dataset_files(name)
    found = [_find(remote, folder) for remote in remotes]
    for place, remote in enumerate(remotes):
        if found[place] is None:
            failures = _download(remote, folder, progress)
            if failures:
                missing = [other for other in remotes if _find(other, folder) is None]
                wanted = "".join(f"\n  - {other.urls[0]}\n    as {folder / other.name}" for other in missing)
                raise DownloadError(
                    f"could not download {remote.name} of {name}:{failures}\n"
                    f"Try again later, or save each file yourself:{wanted}\nThe files are listed on {remote.page}"
                )
    return [path or folder / remote.name for path, remote in zip(found, remotes, strict=True)]


def _dataset_files(name: str) -> tuple[RemoteFile, ...]:
    known = fetchable()
    if name not in DATASETS:
        raise OptionError(
            f"nothing to download for {name!r}{did_you_mean(name, known)} (available: {', '.join(known)})",
            argument="name",
        )
    if not DATASETS[name].remote_files:
        raise OptionError(f"the dataset {name!r} has no download: {DATASETS[name].hint}", argument="name")
    return DATASETS[name].remote_files


def _find(remote: RemoteFile, folder: Path) -> Path | None:
    """The correct file if it exists."""
    paths = (folder / name for name in remote.local_names)
    return next((path for path in paths if path.is_file() and remote.find_mismatch(path) is None), None)


def _download(remote: RemoteFile, folder: Path, progress: Progress | None) -> str:
    """Store the file from the first address that has it; returns why the addresses failed, or an empty string."""
    folder.mkdir(parents=True, exist_ok=True)
    failures = ""
    for url in remote.urls:
        with TemporaryDirectory(prefix=".download-", dir=folder) as temporary:
            path = Path(temporary) / remote.name
            path.touch()
            before, problem = -1, None
            while before < path.stat().st_size <= remote.max_bytes:  # resume as long as new bytes arrive
                before = path.stat().st_size
                problem = _transfer(url, path, remote.max_bytes, progress)
                if problem is None:
                    problem = remote.find_mismatch(path)
                    break
            if problem is None:
                os.replace(path, folder / remote.name)
                return ""
        failures += f"\n  - {url}: {problem}"
    return failures


def _transfer(url: str, path: Path, max_bytes: int, progress: Progress | None) -> str | None:
    """Download one address to a path, after the bytes that it has; returns what went wrong, or None."""
    done = path.stat().st_size
    # Some servers refuse Python's own user agent, and a compressed body would not be the file.
    headers = {"User-Agent": "arbormax", "Accept-Encoding": "identity"}
    if done:
        headers["Range"] = f"bytes={done}-"
    try:
        request = urllib.request.Request(url, headers=headers)  # noqa: S310 - addresses are those of registered files
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response, path.open("r+b") as file:  # noqa: S310
            done = done if response.status == HTTPStatus.PARTIAL_CONTENT else 0  # other servers send the whole file
            file.seek(done)
            file.truncate()
            length = response.headers.get("Content-Length", "")
            total = done + int(length) if length.isdigit() else None
            while done <= max_bytes and (chunk := response.read(_CHUNK)):
                file.write(chunk)
                done += len(chunk)
                if progress:
                    progress(done, total)
    except HTTPError as error:
        with error:
            return str(error)
    except (OSError, http.client.HTTPException) as error:
        return str(error) or type(error).__name__
    if done > max_bytes:
        return f"expected at most {max_bytes:,} bytes, found more"
    if total is not None and done < total:
        return f"the connection ended after {done:,} of {total:,} bytes"
    return None
