"""Datasets: trees, files and errors."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import arbormax as am
from arbormax.data import datasets
from arbormax.data.datasets import DATASETS, icd10cm, paper
from arbormax.data.datasets.base import SPLITS
from arbormax.data.datasets.icd10cm import ICD10CM
from arbormax.data.datasets.text_files import rows_digest
from arbormax.data.datasets.trees import tree
from arbormax.errors import InputError, MissingDependencyError, OptionError

PAPER = tuple(paper.SOURCES)
ROWS = {"trec": (5452, 500), "20ng": (11293, 7528), "r8": (5485, 2189), "r52": (6532, 2568)}
SHAPES = {
    "trec": [2, 22, 4, 4, 5, 13],
    "20ng": [4, 3, 4, 5, 3, 1],
    "r8": [2, 2, 2, 2],
    "r52": [2, 31, 13, 6],
}
REAL = Path(os.environ.get("ARBORMAX_DATA") or "no-such-folder")


def real(name):
    """The folder of the real data; skips the test if this dataset is missing."""
    if not all(paper.SOURCES[name].find(REAL, split) for split in SPLITS):
        pytest.skip(f"ARBORMAX_DATA names no folder with {name}")
    return REAL


def put(root, name, file, content):
    path = root / name / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


@pytest.fixture(scope="module")
def icd():
    return datasets.load("icd10cm")


@pytest.mark.parametrize("name", PAPER)
def test_a_tree_has_the_categories_of_the_paper(name):
    tax = tree(name)
    assert tax.num_children[tax.children(0)].tolist() == SHAPES[name]
    assert tax.depth == 2


@pytest.mark.parametrize("name", PAPER)
def test_a_built_in_tree_equals_the_file_beside_the_data(name):
    file = REAL / name / "taxonomy.json"
    if not file.is_file():
        pytest.skip("ARBORMAX_DATA names no folder with taxonomy.json")
    assert tree(name) == am.Taxonomy.load(file)


def test_the_same_fine_name_under_two_coarse_ones_stays_two_classes():
    tax = tree("trec")
    assert tax.path(tax.find("LOC:other")) == ("LOC", "LOC:other")
    assert tax.path(tax.find("NUM:other")) == ("NUM", "NUM:other")


@pytest.mark.parametrize("name", PAPER)
def test_the_real_files_have_the_published_rows_and_labels(name):
    dataset = datasets.load(name, real(name))
    assert (len(dataset.train), len(dataset.test)) == ROWS[name]
    assert set(dataset.train.nodes.tolist()) == set(dataset.taxonomy.leaves.tolist())
    assert all(text and text == text.rstrip() for text in dataset.train.inputs + dataset.test.inputs)


@pytest.mark.parametrize("name", PAPER)
def test_the_real_files_have_the_known_digests(name):
    for remote in paper.SOURCES[name].remote_files:
        path = paper.SOURCES[name].find(real(name), remote.split)
        assert rows_digest(remote.read_rows(path)) == remote.rows_sha256


def test_the_real_trec_rows_written_as_published_need_no_download(tmp_path):
    from arbormax.data import fetch

    remotes = paper.TREC.remote_files
    for remote in remotes:
        rows = remote.read_rows(paper.TREC.find(real("trec"), remote.split))
        written = "".join(f"{label} {text}\n" for label, text in rows).encode("iso-8859-1")
        put(tmp_path, "trec", remote.name, written)
    assert fetch("trec", tmp_path) == [tmp_path / "trec" / remote.name for remote in remotes]
    assert datasets.load("trec", tmp_path).train.inputs == datasets.load("trec", REAL).train.inputs


def test_the_status_counts_the_rows_of_the_real_files():
    for name in PAPER:
        real(name)
    statuses = {status.name: status for status in datasets.available(REAL)}
    assert {name: (statuses[name].train, statuses[name].test) for name in PAPER} == ROWS


def test_a_table_is_read_as_texts_and_the_nodes_of_their_labels(tmp_path):
    put(tmp_path, "r8", "train.tsv", "earn\tprofits rose\ncrude\toil fell\n")
    put(tmp_path, "r8", "test.tsv", "ship\tport closed\n")
    dataset = datasets.load("r8", tmp_path)
    assert dataset.train.inputs == ["profits rose", "oil fell"]
    paths = [dataset.taxonomy.path(node) for node in dataset.train.nodes]
    assert paths == [("corporate", "earn"), ("commodity", "crude")]
    assert (dataset.name, len(dataset.test)) == ("r8", 1)
    assert "Reuters" in dataset.licence


def test_the_published_trec_files_and_the_tables_have_equal_rows(tmp_path):
    rows = [("LOC:city", "Which city is the sisterðcity of Los Angeles ?"), ("ABBR:exp", "What is `` NASA '' ?")]
    original = "".join(f"{label} {text} \r\n" for label, text in rows).encode("iso-8859-1")
    table = "".join(f"{label}\t{text}\n" for label, text in rows)
    for file in ("train_5500.label", "TREC_10.label"):
        put(tmp_path / "original", "trec", file, original)
    for file in ("train.tsv", "test.tsv"):
        put(tmp_path / "table", "trec", file, table)
    one, other = datasets.load("trec", tmp_path / "original"), datasets.load("trec", tmp_path / "table")
    assert one.train.inputs == other.train.inputs == [text for _, text in rows]
    np.testing.assert_array_equal(one.test.nodes, other.test.nodes)
    train = paper.TREC.remote_files[0]
    found = [paper.TREC.find(tmp_path / kind, "train") for kind in ("original", "table")]
    digests = {rows_digest(train.read_rows(path)) for path in found}
    assert len(digests) == 1


@pytest.mark.parametrize("end", ["\n", "\r\n", " \n", " \t\r\n", ""])
def test_line_ends_and_trailing_blanks_are_ignored(tmp_path, end):
    put(tmp_path, "r8", "r8-train-all-terms.txt", f"earn\tprofits rose{end or chr(10)}acq\tbid made{end}")
    put(tmp_path, "r8", "test.tsv", "acq\tbid made\n\n\n")
    dataset = datasets.load("r8", tmp_path)
    assert dataset.train.inputs == ["profits rose", "bid made"]
    assert dataset.test.inputs == ["bid made"]


def test_a_published_file_is_preferred_to_a_table(tmp_path):
    put(tmp_path, "r8", "r8-train-all-terms.txt", "earn\tpublished\n")
    put(tmp_path, "r8", "train.tsv", "earn\ttable\n")
    put(tmp_path, "r8", "test.tsv", "earn\ttable\n")
    assert datasets.load("r8", tmp_path).train.inputs == ["published"]


def test_a_table_with_a_byte_order_mark_is_read(tmp_path):
    put(tmp_path, "r8", "train.tsv", "\ufeffearn\tone\n")
    put(tmp_path, "r8", "test.tsv", "earn\ttwo\n")
    assert datasets.load("r8", tmp_path).train.inputs == ["one"]


def test_only_line_feeds_end_a_line(tmp_path):
    put(tmp_path, "trec", "train_5500.label", b"NUM:date When\x85 was it ?\n")
    put(tmp_path, "trec", "test.tsv", "NUM:date\tWhen\u2028 was it ?\n")
    dataset = datasets.load("trec", tmp_path)
    assert (len(dataset.train), len(dataset.test)) == (1, 1)


def test_all_defects_of_both_files_are_reported_in_one_error_with_lines(tmp_path):
    put(tmp_path, "r8", "train.tsv", "earn\tfine\nearn\t \n\tno label\nernings\tx\n\nearn\tfine\nernings\ty\n")
    put(tmp_path, "r8", "test.tsv", "no tab here\n")
    with pytest.raises(InputError) as caught:
        datasets.load("r8", tmp_path)
    reported = str(caught.value)
    for part in ("train.tsv, line 2: no text", "line 3: no label", "no node 'ernings'", "(lines 4, 7)", "line 5: no"):
        assert part in reported
    assert "test.tsv, line 1: no text" in reported


def test_an_unknown_label_gets_a_suggestion(tmp_path):
    put(tmp_path, "r52", "train.tsv", "money-suply\tx\n")
    put(tmp_path, "r52", "test.tsv", "earn\tx\n")
    with pytest.raises(InputError, match="did you mean 'money-supply'"):
        datasets.load("r52", tmp_path)


def test_an_empty_file_is_an_error(tmp_path):
    put(tmp_path, "r8", "train.tsv", "")
    put(tmp_path, "r8", "test.tsv", "earn\tx\n")
    with pytest.raises(InputError, match=r"train\.tsv: no rows"):
        datasets.load("r8", tmp_path)


def test_the_error_about_another_encoding_names_the_line(tmp_path):
    put(tmp_path, "r8", "train.tsv", b"earn\tok\nearn\tcaf\xe9\n")
    put(tmp_path, "r8", "test.tsv", "earn\tx\n")
    with pytest.raises(InputError, match=r"train\.tsv, line 2: expected utf-8"):
        datasets.load("r8", tmp_path)


def test_a_long_list_of_defects_is_shortened(tmp_path):
    put(tmp_path, "r8", "train.tsv", "earn\n" * 50)
    put(tmp_path, "r8", "test.tsv", "earn\tx\n")
    with pytest.raises(InputError, match="and 30 more"):
        datasets.load("r8", tmp_path)


def test_the_error_about_a_missing_dataset_names_the_files_and_their_paths(tmp_path):
    put(tmp_path, "20ng", "train.tsv", "sci.med\tx\n")
    with pytest.raises(datasets.MissingDataError) as caught:
        datasets.load("20ng", tmp_path)
    reported = str(caught.value)
    assert str(tmp_path / "20ng" / "20ng-test-all-terms.txt") in reported
    assert "20ng-train-all-terms.txt" not in reported
    assert "arbormax data fetch 20ng" in reported
    assert isinstance(caught.value, FileNotFoundError)


@pytest.mark.parametrize(("split", "other"), [("train", "test"), ("test", "train")])
def test_a_split_is_read_without_the_other(tmp_path, monkeypatch, split, other):
    put(tmp_path, "r8", f"{split}.tsv", "crude\toil fell\nearn\tprofits rose\n")
    put(tmp_path, "r8", f"{other}.tsv", b"no table \xff at all")
    alone = datasets.load_split("r8", split, tmp_path)
    assert alone.inputs == ["oil fell", "profits rose"]
    assert [tree("r8").names[node] for node in alone.nodes] == ["crude", "earn"]
    (tmp_path / "r8" / f"{other}.tsv").unlink()
    monkeypatch.setenv("ARBORMAX_DATA", str(tmp_path))
    assert datasets.load_split("r8", split).inputs == alone.inputs
    with pytest.raises(datasets.MissingDataError) as caught:
        datasets.load_split("r8", other)
    assert str(tmp_path / "r8" / f"r8-{other}-all-terms.txt") in str(caught.value)
    assert f"r8-{split}" not in str(caught.value)


def test_both_splits_equal_those_of_the_whole_dataset(tmp_path):
    put(tmp_path, "r8", "train.tsv", "earn\tone\nacq\ttwo\n")
    put(tmp_path, "r8", "r8-test-all-terms.txt", "ship\tthree\n")
    whole = datasets.load("r8", tmp_path)
    for split in SPLITS:
        alone = datasets.load_split("r8", split, tmp_path)
        assert alone.digest() == getattr(whole, split).digest()


def test_a_split_of_an_unknown_dataset_is_an_error():
    with pytest.raises(OptionError, match="did you mean 'r52'"):
        datasets.load_split("r53", "train")


def test_a_defect_in_a_split_is_reported_with_its_line(tmp_path):
    put(tmp_path, "r8", "train.tsv", "earn\tfine\nernings\tx\n")
    with pytest.raises(InputError, match=r"train\.tsv: the taxonomy has no node 'ernings'.* \(line 2\)"):
        datasets.load_split("r8", "train", tmp_path)


def test_an_unknown_name_gets_a_suggestion():
    with pytest.raises(OptionError, match="did you mean 'icd10cm'"):
        datasets.load("icd-10-cm")


def test_the_status_lists_what_was_found_and_what_is_missing(tmp_path):
    put(tmp_path, "r8", "r8-train-all-terms.txt", "earn\tx\nearn\ty\r\n\n")
    put(tmp_path, "r8", "test.tsv", "earn\tx")
    statuses = {status.name: status for status in datasets.available(tmp_path)}
    assert tuple(statuses) == DATASETS.names
    r8, r52 = statuses["r8"], statuses["r52"]
    assert (r8.available, r8.train, r8.test, r8.missing) == (True, 2, 1, ())
    assert r8.found == (str(tmp_path / "r8" / "r8-train-all-terms.txt"), str(tmp_path / "r8" / "test.tsv"))
    assert (r52.available, r52.train, len(r52.missing)) == (False, None, 2)
    assert str(tmp_path / "r52" / "r52-train-all-terms.txt") in r52.missing[0]
    assert r52.hint == "arbormax data fetch r52"
    assert statuses["icd10cm"].available


def test_the_data_folder_is_that_of_the_environment_or_in_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ARBORMAX_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert datasets.data_root() == tmp_path / ".cache" / "arbormax"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert datasets.data_root() == tmp_path / ".cache" / "arbormax"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert datasets.data_root() == tmp_path / "xdg" / "arbormax"
    monkeypatch.setenv("ARBORMAX_DATA", "~/here")
    assert datasets.data_root() == tmp_path / "here"
    assert not (tmp_path / "here").exists()


def test_the_data_folder_follows_the_conventions_of_macos_and_windows(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("ARBORMAX_DATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "darwin")
    assert datasets.data_root() == tmp_path / "Library" / "Caches" / "arbormax"
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "Local"))
    assert datasets.data_root() == tmp_path / "Local" / "arbormax"


def test_load_reads_from_the_folder_of_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("ARBORMAX_DATA", str(tmp_path))
    for split in SPLITS:
        put(tmp_path, "r8", f"{split}.tsv", "earn\tx\n")
    assert len(datasets.load("r8").train) == 1


def test_icd10cm_has_a_class_for_every_category_and_a_title_for_every_class(icd):
    tax = icd.taxonomy
    assert 1_800 < tax.num_leaves < 2_100
    assert len(tax.children(0)) == 22
    assert set(icd.train.nodes.tolist()) == set(tax.leaves.tolist())
    assert set(icd.test.nodes.tolist()) <= set(tax.leaves.tolist())


def test_an_icd10cm_path_reads_from_chapter_through_blocks_to_category(icd):
    tax = icd.taxonomy
    assert tax.path(tax.find("E11 Type 2 diabetes mellitus")) == (
        "4 Endocrine, nutritional and metabolic diseases (E00-E89)",
        "E08-E13 Diabetes mellitus",
        "E11 Type 2 diabetes mellitus",
    )


def test_headings_are_parents_of_the_blocks_that_they_span(icd):
    tax = icd.taxonomy
    (lip,) = (node for node in tax.leaves.tolist() if tax.names[node].startswith("C00 "))
    assert [name.split()[0] for name in tax.path(lip)] == ["2", "C00-C96", "C00-C75", "C00-C14", "C00"]
    (tumour,) = (node for node in tax.leaves.tolist() if tax.names[node].startswith("C7A "))
    assert [name.split()[0] for name in tax.path(tumour)] == ["2", "C00-C96", "C7A", "C7A"]


def test_a_block_and_the_category_of_the_same_code_are_two_nodes(icd):
    tax = icd.taxonomy
    (hiv,) = (node for node in tax.leaves.tolist() if tax.names[node].startswith("B20 "))
    assert tax.names[tax.parent[hiv]] == tax.names[hiv]


def test_no_test_text_of_icd10cm_is_a_training_text(icd):
    titles = {title.casefold() for title in icd.train.inputs}
    assert not [term for term in icd.test.inputs if term.casefold() in titles]


def test_icd10cm_texts_are_whole_and_not_repeated_within_a_class(icd):
    for examples in (icd.train, icd.test):
        assert all(text == " ".join(text.split()) != "" for text in examples.inputs)
        rows = list(zip(examples.inputs, examples.nodes.tolist(), strict=True))
        assert len(rows) == len(set(rows))


def test_known_texts_of_icd10cm_have_their_category(icd):
    tax = icd.taxonomy
    train = dict(zip(icd.train.inputs, icd.train.nodes.tolist(), strict=True))
    test = dict(zip(icd.test.inputs, icd.test.nodes.tolist(), strict=True))
    assert tax.names[train["Cholera due to Vibrio cholerae 01, biovar eltor"]] == "A00 Cholera"
    assert tax.names[train["Type 2 diabetes mellitus"]] == "E11 Type 2 diabetes mellitus"
    assert tax.names[test["Classical cholera"]] == "A00 Cholera"


def test_the_status_of_icd10cm_has_the_row_counts_of_the_dataset(icd, monkeypatch):
    status = ICD10CM.status()
    assert (status.available, status.train, status.test) == (True, len(icd.train), len(icd.test))
    monkeypatch.setattr(icd10cm, "SIZES", {})
    assert ICD10CM.status() == status


def test_icd10cm_names_its_release(icd):
    assert icd.source.startswith("ICD-10-CM, release of ")
    assert icd.source.endswith(ICD10CM.status().found[0])


def test_the_error_about_a_missing_icd10cm_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "simple_icd_10_cm", None)
    with pytest.raises(MissingDependencyError, match=r"arbormax\[text\]"):
        datasets.load("icd10cm")
    status = ICD10CM.status()
    assert not status.available
    assert "simple-icd-10-cm" in status.missing[0]


def test_soc2020_reads_its_tree_from_the_folder(tmp_path):
    put(tmp_path, "soc2020", "train.tsv", "1111\tChief executive\n")
    put(tmp_path, "soc2020", "test.tsv", "1112\tSenator\n")
    with pytest.raises(datasets.MissingDataError, match=r"taxonomy\.json"):
        datasets.load("soc2020", tmp_path)
    put(tmp_path, "soc2020", "taxonomy.json", '{"1": {"11": {"111": ["1111", "1112"]}}}')
    dataset = datasets.load("soc2020", tmp_path)
    assert dataset.taxonomy.path(dataset.test.nodes[0]) == ("1", "11", "111", "1112")


def test_the_real_soc2020_has_four_levels():
    if not (REAL / "soc2020").is_dir():
        pytest.skip("ARBORMAX_DATA names no folder with soc2020")
    dataset = datasets.load("soc2020", REAL)
    assert (len(dataset.train), len(dataset.test)) == (25_676, 6_287)
    assert (dataset.taxonomy.num_leaves, dataset.taxonomy.depth) == (412, 4)


def test_the_registry_of_datasets_needs_no_torch():
    code = (
        "import sys; sys.modules['torch'] = None; from arbormax.data.datasets import available; print(len(available()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == len(DATASETS)


def test_the_table_in_the_documentation_lists_every_dataset():
    page = (Path(__file__).parents[2] / "docs" / "data.md").read_text("utf-8")
    table = page.split("## Datasets")[1].split("\n\n")[1]
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == list(DATASETS)


def test_an_unknown_split_is_an_error():
    with pytest.raises(OptionError, match="split: expected 'train' or 'test', found 'valid'"):
        datasets.load_split("trec", "valid")
