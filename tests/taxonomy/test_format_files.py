"""Options, choice of the format, and writing of files."""

from __future__ import annotations

import os
import stat

import pytest

from arbormax import Taxonomy
from arbormax.errors import InputError, OptionError, TaxonomyError
from arbormax.taxonomy.formats import FORMATS


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "t.csv",
            {"lay": "edges"},
            r"lay: unknown option of CSV; did you mean 'layout'\? \(available: encoding, layout,",
        ),
        ("t.json", {"sep": "/"}, r"sep: unknown option of JSON \(available: encoding\)"),
        ("t.txt", {"format": "jsn"}, r"unknown format 'jsn'; did you mean 'json'\? \(available: json, yaml"),
        ("t.csv", {"layout": "tree"}, "layout: expected 'edges' or 'paths', found 'tree'"),
        ("t.csv", {"header": "yes"}, "header: expected True or False, found 'yes'"),
        ("t.csv", {"delimiter": ""}, "delimiter: expected one character"),
        ("t.txt", {"sep": ""}, "sep: expected a separator of names"),
        ("t.txt", {"layout": "edges"}, "'paths' or 'children'"),
        ("t.txt", {"layout": "children", "sep": "/"}, "sep: only for layout='paths'"),
        ("t.txt", {"root": "r"}, "root: only for layout='children'"),
        ("p.csv", {"root": "r"}, "root: only for a file of edges"),
        ("t.txt", {"encoding": "utf-99"}, "Python has no encoding 'utf-99'"),
        ("t.txt", {"encoding": 8}, "encoding: expected a string, found 8"),
        ("t.csv", {"root": 8}, "root: expected a string, found 8"),
    ],
)
def test_a_wrong_option_is_an_error_that_lists_the_options(write, name, options, message):
    path = write(name, "level1\na\n" if name == "p.csv" else "parent,child\nr,a\n")
    with pytest.raises(OptionError, match=message):
        Taxonomy.load(path, **options)


def test_an_unknown_suffix_is_an_error_that_lists_the_known_ones(write, tmp_path):
    for path in (write("t.jsn", "[]"), write("noname", "[]")):
        with pytest.raises(TaxonomyError, match=r"available: \.json, \.yaml.*format="):
            Taxonomy.load(path)
    with pytest.raises(TaxonomyError, match=r"did you mean '\.json'"):
        Taxonomy.from_nested(["a"]).save(tmp_path / "x.jsn")
    assert Taxonomy.load(write("x.dat", '["a"]'), format="json").classes == ("a",)


def test_a_missing_file_and_a_folder_raise_the_errors_of_the_system(tmp_path):
    for name in ("gone.json", "gone.xyz"):
        with pytest.raises(FileNotFoundError):
            Taxonomy.load(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        Taxonomy.load(tmp_path / "gone", format="csv")
    for ask in (Taxonomy.load, Taxonomy.from_nested(["a"]).save):
        with pytest.raises(IsADirectoryError, match="a folder"):
            ask(tmp_path)
    with pytest.raises(FileNotFoundError):
        Taxonomy.from_nested(["a"]).save(tmp_path / "no folder" / "t.json")


def test_every_format_can_be_chosen_by_name(tmp_path):
    tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    for name in FORMATS:
        if FORMATS[name].to_text is not None:
            continue  # workbooks are only read
        tax.save(tmp_path / "file", format=name)
        assert Taxonomy.load(tmp_path / "file", format=name) == tax


# Writing


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "t.json"
    Taxonomy.from_nested(["old"]).save(path)
    before = path.read_bytes()

    def broken(*_):
        raise OSError("the disk is full")

    for step in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, step, broken)
            with pytest.raises(OSError, match="full"):
                Taxonomy.from_nested(["new"]).save(path)
        assert path.read_bytes() == before
        assert [entry.name for entry in tmp_path.iterdir()] == ["t.json"]


@pytest.mark.skipif(os.name != "posix", reason="permission bits")
def test_an_old_file_keeps_its_permissions_and_a_new_one_follows_the_umask(tmp_path):
    path = tmp_path / "t.json"
    umask = os.umask(0o027)
    try:
        Taxonomy.from_nested(["a"]).save(path)
    finally:
        os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.chmod(0o604)
    Taxonomy.from_nested(["b"]).save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o604


@pytest.mark.skipif(os.name != "posix", reason="symbolic links")
def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    Taxonomy.from_nested(["a"]).save(tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert Taxonomy.load(tmp_path / "real.json").classes == ("a",)
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(InputError, match="is not a regular file"):
        Taxonomy.from_nested(["a"]).save(tmp_path / "pipe.json")
