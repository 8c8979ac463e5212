"""Protection against archives that unpack to unreasonable sizes."""

from __future__ import annotations

import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

from arbormax.errors import InputError

ARCHIVE_ERRORS = (  # that zipfile raises for damaged archives, also for encrypted ones and unknown compressions
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    OSError,
    EOFError,
    RuntimeError,
    IndexError,
    MemoryError,
    OverflowError,
    struct.error,
)
_MAX_SIZE = 1 << 35  # bytes of one unpacked file: six times the largest published one
_MAX_RATIO = 100  # unpacked to packed size; numbers as text have a ratio of three
_ALWAYS_ALLOWED = 1 << 28  # bytes; smaller files may have any ratio


def check_archive(archive: zipfile.ZipFile, path: Path, members: Iterable[str]) -> None:
    """Raise an error for members that would unpack to an unreasonable size."""
    for member in members:
        info = archive.getinfo(member)
        is_bomb = info.file_size > _ALWAYS_ALLOWED and info.file_size > _MAX_RATIO * info.compress_size
        if is_bomb or info.file_size > _MAX_SIZE:
            raise InputError(
                f"{path}: {member} would unpack from {info.compress_size:,} to {info.file_size:,} bytes, "
                "which is not plausible for such a file"
            )
