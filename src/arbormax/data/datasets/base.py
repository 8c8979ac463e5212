"""The interface of a dataset, and the folder that contains the files."""

from __future__ import annotations

import hashlib
import os
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from arbormax.data.examples import Examples
from arbormax.errors import ArbormaxError
from arbormax.taxonomy import Taxonomy

Split = Literal["train", "test"]
SPLITS: tuple[Split, ...] = ("train", "test")


class MissingDataError(ArbormaxError, FileNotFoundError):
    """The files of a dataset do not exist."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """A taxonomy with training and test examples."""

    name: str
    taxonomy: Taxonomy
    train: Examples
    test: Examples
    description: str
    licence: str
    source: str


@dataclass(frozen=True)
class Status:
    """Whether a dataset can be loaded: its row counts, or what is missing and where it belongs."""

    name: str
    available: bool
    description: str
    train: int | None = None  # rows
    test: int | None = None
    found: tuple[str, ...] = ()  # files, or the package
    missing: tuple[str, ...] = ()
    hint: str = ""  # how to get what is missing


@dataclass(frozen=True)
class RemoteFile:
    """A published file: its name, the addresses to try in turn, and its SHA-256."""

    name: str
    urls: tuple[str, ...]
    page: str  # the web page that lists it
    max_bytes: int
    sha256: str | None = None

    @property
    def local_names(self) -> tuple[str, ...]:
        """The names under which the file may exist."""
        return (self.name,)

    def find_mismatch(self, path: Path) -> str | None:
        """How a file differs from the published one, or None if it does not."""
        if self.sha256 is None:
            return None
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        return None if found == self.sha256 else f"expected SHA-256 {self.sha256}, found {found}"


class DatasetSource(ABC):
    """Finds and reads one dataset. Subclass this and add an instance to `DATASETS` to add a dataset.

    `folder` is the data folder; the files of a dataset are in the subfolder with its name.
    """

    name: str
    description: str
    hint: str = ""  # how to get the dataset if it is missing
    remote_files: tuple[RemoteFile, ...] = ()  # what `fetch` downloads

    @abstractmethod
    def load(self, folder: Path) -> Dataset:
        """The whole dataset."""

    @abstractmethod
    def status(self, folder: Path) -> Status:
        """Whether the dataset can be loaded, without reading it."""

    def taxonomy(self, folder: Path) -> Taxonomy:
        """The tree alone."""
        return self.load(folder).taxonomy

    def load_split(self, folder: Path, split: Split) -> Examples:
        """One of the two splits."""
        examples: Examples = getattr(self.load(folder), split)
        return examples


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
    if xdg.is_absolute():  # the XDG specification says to ignore a relative path
        return xdg / "arbormax"
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "arbormax"


def resolve_root(root: Path | str | None) -> Path:
    """`root` if given, else `data_root()`."""
    return data_root() if root is None else Path(root).expanduser()
