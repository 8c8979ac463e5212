"""Locks that end with the process that holds them: of a folder with a named owner, and of temporary files.

Windows has no such locks: there, folders are not locked, and files that a killed process leaves are not removed.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from arbormax.errors import OptionError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_held: set[Path] = set()  # the lock files of this process


@contextmanager
def lock_folder(path: Path, argument: str | None = None) -> Iterator[None]:
    """Hold the lock file `path` for the time of the block; raise if another process holds it.

    The file names its owner. The system releases the lock when the owner ends, however it ends, and the next process
    takes it over. Within one process, blocks with the same file can be nested. A folder that contains nothing else at
    the end of the block is removed.
    """
    place = path.resolve()
    if fcntl is None or place in _held:
        yield
        return
    handle = _open_locked(place, argument)
    _held.add(place)
    try:
        owner = {"pid": os.getpid(), "host": socket.gethostname(), "since": datetime.now(UTC).isoformat("T", "seconds")}
        os.truncate(handle, 0)
        os.pwrite(handle, (json.dumps(owner) + "\n").encode(), 0)
        yield
    finally:
        _held.discard(place)
        with suppress(OSError):
            if [path.name for path in place.parent.iterdir()] == [place.name]:
                place.unlink()
                place.parent.rmdir()
        os.close(handle)


def _open_locked(path: Path, argument: str | None) -> int:
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # the folder was removed in between
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            if not try_lock(handle):
                owner = _describe_owner(handle)
                os.close(handle)
                raise OptionError(
                    f"{path.parent.parent} is in use by {owner}; wait for it, end it, or choose another folder",
                    argument=argument,
                )
            if os.fstat(handle).st_nlink:
                return handle
            os.close(handle)  # the former owner removed the file before it released the lock


def _describe_owner(handle: int) -> str:
    try:
        owner = json.loads(os.pread(handle, 1000, 0))
        return f"process {owner['pid']} on {owner['host']} since {owner['since']}"
    except (ValueError, LookupError, TypeError):  # it has just taken the lock
        return "another process"


def try_lock(handle: int) -> bool:
    """Lock an open file or folder until it is closed; False if another process holds the lock."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # the file system has no locks
        return True
    return True


def remove_leftovers(folder: Path, pattern: str) -> None:
    """Remove the temporary files and folders that processes which were killed have left.

    Those in use are locked, see `create_locked`.
    """
    if fcntl is None:
        return
    for path in folder.glob(pattern):
        with suppress(OSError):  # of another user, or removed by another process
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_folder = stat.S_ISDIR(os.fstat(handle).st_mode)
                shutil.rmtree(path) if is_folder else path.unlink()
            finally:
                os.close(handle)


def is_kept(handle: int) -> bool:
    """Lock a temporary file or folder that was just created; False if another process has removed it before."""
    return try_lock(handle) and os.fstat(handle).st_nlink > 0
