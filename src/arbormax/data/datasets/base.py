"""What every dataset gives, and the folder that their files lie in."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from arbormax.data.examples import Examples
from arbormax.errors import ArbormaxError
from arbormax.taxonomy import Taxonomy


class MissingDataError(ArbormaxError, FileNotFoundError):
    """The files of a dataset are not where they were looked for."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """A taxonomy with texts to train on and texts to test on."""

    name: str
    taxonomy: Taxonomy
    train: Examples
    test: Examples
    description: str
    licence: str
    source: str


@dataclass(frozen=True)
class Status:
    """What is there of one dataset: row counts when it can be loaded, else what is missing and where it goes."""

    name: str
    there: bool
    description: str
    train: int | None = None  # rows
    test: int | None = None
    found: tuple[str, ...] = ()  # the files, or the package, that were found
    missing: tuple[str, ...] = ()
    hint: str = ""  # how to get what is missing


def data_root() -> Path:
    """The folder of all data: `$ARBORMAX_DATA`, else `arbormax` in the user's cache folder.

    The cache folder is `$XDG_CACHE_HOME` or `~/.cache`; `~/Library/Caches` on macOS, `%LOCALAPPDATA%` on Windows.
    """
    if named := os.environ.get("ARBORMAX_DATA"):
        return Path(named).expanduser()
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "arbormax"
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if xdg.is_absolute():  # the standard says to ignore a relative one
        return xdg / "arbormax"
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "arbormax"


def folder_of(root: Path | str | None) -> Path:
    """The folder to look in: `root` where one is given, else `data_root()`."""
    return data_root() if root is None else Path(root).expanduser()
