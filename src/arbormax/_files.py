"""Atomic file writing, and values ready for JSON."""

from __future__ import annotations

import json
import math
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from arbormax._locks import is_kept, remove_leftovers
from arbormax.errors import ArbormaxError, InputError

_IS_WINDOWS = os.name == "nt"
_PREFIX = ".arbormax-"  # of temporary files and folders


@contextmanager
def atomic_write(path: str | os.PathLike[str], *, text: bool = False) -> Iterator[IO[Any]]:
    """Open a file that appears under `path` only when the block ends without an error.

    The content goes to a temporary file in the same folder first, so `path` always holds either the old content or
    all of the new one. A symbolic link stays a link, and an existing file keeps its permissions. Temporary files that
    killed processes have left in the folder are removed.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise InputError(f"{os.fspath(path)} is not a regular file")
    if not target.parent.is_dir():
        raise InputError(f"{os.fspath(path)}: the folder {target.parent} does not exist")
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
    remove_leftovers(target.parent, f"{_PREFIX}*")
    handle, temporary = _create_temporary(target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") if text else os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if mode is not None:
                temporary.chmod(mode)
            if not _IS_WINDOWS:  # while it is locked
                os.replace(temporary, target)
        if _IS_WINDOWS:  # cannot rename an open file
            os.replace(temporary, target)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:  # such as a full disk
            raise type(error)(error.errno, error.strerror, os.fspath(path)) from error
        raise


def _create_temporary(folder: Path) -> tuple[int, Path]:
    """A new file in the folder, open and locked."""
    while True:
        path = folder / f"{_PREFIX}{secrets.token_hex(8)}.tmp"
        # os.open applies the user's umask to a new file, which mkstemp does not
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        if is_kept(handle):
            return handle, path
        os.close(handle)


@contextmanager
def temporary_folder(parent: Path) -> Iterator[Path]:
    """A new folder in `parent`, which is removed at the end of the block, as are those of killed processes."""
    remove_leftovers(parent, f"{_PREFIX}*")
    while True:
        path = parent / f"{_PREFIX}{secrets.token_hex(8)}"
        path.mkdir()
        if _IS_WINDOWS:  # cannot open a folder
            handle = None
            break
        handle = os.open(path, os.O_RDONLY)
        if is_kept(handle):
            break
        os.close(handle)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        if handle is not None:
            os.close(handle)


def write_file(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Replace the content of a file in one step; a string is written as UTF-8."""
    with atomic_write(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def read_json(path: Path, kind: type[ArbormaxError] = InputError) -> dict[str, Any]:
    """The JSON object in a file; anything else in the file is an error of this kind."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise kind(f"{path} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise kind(f"{path}: expected a JSON object, found {type(content).__name__}")
    return content


def to_plain(value: Any) -> Any:
    """The value with nothing but JSON's types; infinite numbers and NaN become None."""
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [to_plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy and torch
        return to_plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
