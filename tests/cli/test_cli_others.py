"""`arbormax taxonomy`, `data`, `crossval`, `compare`, `search` and `demo`."""

import json
import urllib.request

import pytest
from cli_tools import SMALL

from arbormax import Taxonomy
from arbormax.data.datasets import DATASETS
from arbormax.data.datasets.text_files import TextFiles

TREE = "news/sport\nnews/weather\nshop/shoes\n"
FAST = [*SMALL, "--epochs", "1"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ARBORMAX_DATA", str(tmp_path / "data"))
    (tmp_path / "tree.txt").write_text(TREE)
    return tmp_path


# ------------------------------------------------------------------------------------------------------------ taxonomy


def test_a_tree_is_drawn(run, here):
    result = run("taxonomy", "show", "tree.txt")
    assert result.code == 0
    assert result.out.splitlines()[0].endswith("(3 classes, 6 nodes, depth 2)")
    assert "├── news (2 classes)" in result.out
    assert "sport" in result.out
    (here / "one.txt").write_text("only/one\n")
    assert run("taxonomy", "show", "one.txt").out.splitlines()[0].endswith("(1 class, 3 nodes, depth 2)")


def test_a_table_that_is_not_a_tree_is_an_error_with_options_to_try(run, here):
    (here / "products.csv").write_text("title,category\na pan,home\n")
    result = run("taxonomy", "show", "products.csv")
    assert result.code == 2
    assert "try --layout paths or --no-header" in result.err


def test_depth_and_children_fold_the_tree(run, here):
    assert "sport" not in run("taxonomy", "show", "tree.txt", "--depth", "1").out
    (here / "wide.txt").write_text("".join(f"a/{i}\n" for i in range(50)))
    result = run("taxonomy", "show", "wide.txt", "--max-children", "3").out
    assert "… 47 more" in result
    assert len(result.splitlines()) == 6
    assert len(run("taxonomy", "show", "wide.txt", "--max-lines", "10").out.splitlines()) < 13


def test_the_trees_of_datasets_and_models_are_drawn_too(run, here, model):
    assert "NUM:date" in run("taxonomy", "show", "trec").out
    assert "weather" in run("taxonomy", "show", model).out


def test_a_tree_as_json_is_read_again(run, here):
    from arbormax import Taxonomy

    result = json.loads(run("taxonomy", "show", "tree.txt", "--json").out)
    assert result["classes"] == 3
    assert Taxonomy.from_nested(result["tree"]) == Taxonomy.load("tree.txt")


def test_control_characters_in_names_are_escaped(run, here):
    (here / "odd.json").write_text(json.dumps({"a\u001b[31m": ["x[bold]", "y"]}))
    result = run("taxonomy", "show", "odd.json").out
    assert "\u001b" not in result
    assert "x[bold]" in result


def test_a_valid_file_is_summarised(run, here):
    result = run("taxonomy", "check", "tree.txt")
    assert result.code == 0
    assert "No defects." in result.out
    found = json.loads(run("taxonomy", "check", "tree.txt", "--json").out)
    assert (found["ok"], found["classes"], found["only_children"]) == (True, 3, 1)


def test_every_defect_is_reported_and_the_exit_code_is_2(run, here):
    edges = "parent,child\n" + "".join(f"a{i},x{i}\nb{i},x{i}\n" for i in range(30))
    (here / "bad.csv").write_text(edges)
    result = run("taxonomy", "check", "bad.csv")
    assert result.code == 2
    assert result.out == ""
    assert "Traceback" not in result.err
    assert all(f"'x{i}'" in result.err for i in range(30))
    found = json.loads(run("taxonomy", "check", "bad.csv", "--json").out)
    assert not found["ok"]
    assert len(found["problems"]) >= 30


def test_a_file_is_converted(run, here):
    from arbormax import Taxonomy

    result = run("taxonomy", "convert", "tree.txt", "tree.json")
    assert result.code == 0
    assert Taxonomy.load("tree.json") == Taxonomy.load("tree.txt")
    assert run("taxonomy", "convert", "trec", "trec.yaml").code == 0


def test_options_of_the_file_are_passed_on(run, refused, here):
    (here / "odd.txt").write_text("news|sport\nnews\n")
    assert "--inner-classes stop" in refused("taxonomy", "check", "odd.txt", "--separator", "|", lines=None)
    result = run("taxonomy", "check", "odd.txt", "--separator", "|", "--inner-classes", "stop", "--json")
    assert json.loads(result.out)["classes"] == 2
    (here / "two.txt").write_text("news > sport/games\n")
    assert "try --separator ' > '" in refused("taxonomy", "check", "two.txt", lines=None)


@pytest.mark.parametrize(
    "words",
    [
        ["show", "none.json"],
        ["show", "icd10"],
        ["show", "."],
        ["show", "tree.txt", "--depth", "0"],
        ["show", "tree.txt", "--input-format", "xls"],
        ["show", "tree.txt", "--delimiter", ";"],
        ["show", "tree.txt", "--inner-classes", "maybe"],
        ["show", "trec", "--layout", "paths"],
        ["check", "none.csv"],
        ["convert", "tree.txt", "tree.xls"],
        ["convert", "tree.txt", "none/tree.json"],
        ["convert", "tree.txt", "."],
        ["convert", "tree.txt"],
        ["convert", "twice.txt", "twice.taxonomy"],
    ],
    ids=" ".join,
)
def test_a_tree_that_cannot_be_read_is_an_error_of_one_line(refused, here, words):
    (here / "twice.txt").write_text("a/x\nb/x\n")
    refused("taxonomy", *words)


# ---------------------------------------------------------------------------------------------------------------- data


def test_the_datasets_are_listed(run, here):
    result = run("data", "list")
    assert result.code == 0
    assert "icd10cm" in result.out
    assert "arbormax data fetch trec" in result.out
    found = json.loads(run("data", "list", "--json").out)
    assert found["folder"] == str(here / "data")
    assert [status["name"] for status in found["datasets"]] == list(DATASETS)


def test_a_registered_dataset_is_listed_and_loaded(run, here):
    source = TextFiles("toy", "two toys", "none", "this test", lambda: Taxonomy.from_nested({"toy": ["ball", "kite"]}))
    (here / "data" / "toy").mkdir(parents=True)
    for split in ("train", "test"):
        (here / "data" / "toy" / f"{split}.tsv").write_text("ball\tround\nkite\tflies\n")
    DATASETS.add("toy", source, "two toys")
    try:
        assert "two toys" in run("data", "list").out
        status = json.loads(run("data", "list", "--json").out)["datasets"][-1]
        assert (status["name"], status["available"], status["train"]) == ("toy", True, 2)
        assert "kite" in run("taxonomy", "show", "toy").out
        assert "'toy' has no download" in run("data", "fetch", "toy").err
    finally:
        DATASETS.remove("toy")


@pytest.fixture
def offline(monkeypatch):
    def no_network(*_, **__):
        raise urllib.error.URLError(ConnectionRefusedError("no network in tests"))

    monkeypatch.setattr(urllib.request.OpenerDirector, "open", no_network)


def test_without_a_network_the_error_names_each_file_and_its_path(run, here, offline):
    result = run("data", "fetch", "trec", "r8")
    assert result.code == 2
    assert "Traceback" not in result.err
    for name in ("trec/train_5500.label", "trec/TREC_10.label", "r8/r8-train-all-terms.txt"):
        assert str(here / "data" / name) in result.err


def test_fetch_all_downloads_every_dataset(run, here, offline):
    failed = json.loads(run("data", "fetch", "all", "--json").out)["failed"]
    assert set(failed) == {"trec", "20ng", "r8", "r52"}


def test_downloaded_files_are_printed(run, here, monkeypatch):
    def fetched(name, progress):
        progress(5, 10)
        progress(10, None)
        return [here / name]

    monkeypatch.setattr("arbormax.data.fetch", fetched)
    assert run("data", "fetch", "trec").out == f"trec: {here / 'trec'}\n"


def test_a_wrong_name_is_refused_before_any_download(refused, here):
    assert "did you mean 'trec'" in refused("data", "fetch", "r8", "trce")
    assert "pip install" in refused("data", "fetch", "icd10cm")


# ------------------------------------------------------------------------------------------------------------- studies


def test_cross_validation_shows_every_fold_and_resumes(run, texts, here):
    words = ["crossval", texts / "train.csv", "--folds", "2", "--out", here / "cv", *FAST]
    result = run(*words)
    assert result.code == 0, result.err
    assert "fold 2" in result.out
    assert "±" in result.out
    result = json.loads(run(*words, "--json").out)
    assert len(result["folds"]) == 2
    assert json.loads((here / "cv" / "results.json").read_text())["mean"] == result["mean"]


def test_epochs_may_be_chosen_by_the_fold_itself(run, refused, texts, here):
    words = ["--folds", "2", "--json", *FAST]
    assert json.loads(run("crossval", texts / "train.csv", *words).out)["epochs_from"] == "inner"
    result = run("crossval", texts / "train.csv", "--epochs-from", "fold", *words)
    assert json.loads(result.out)["epochs_from"] == "fold"
    one = ["compare", texts / "train.csv", "--heads", "flat", "--seeds", "0", "--resamples", "20", "--out", here / "c"]
    result = run(*one, "--epochs-from", "fold", *words)
    assert result.code == 0, result.err
    assert json.loads((here / "c" / "identity.json").read_text())["epochs_from"] == "fold"
    assert "--validation 0" in refused("crossval", texts / "train.csv", "--epochs-from", "fold", "--validation", "0")
    assert "did you mean 'inner'" in refused("crossval", texts / "train.csv", "--epochs-from", "iner")


def test_a_comparison_prints_differences_with_intervals(run, texts, here):
    words = ["--heads", "flat,hierarchical", "--seeds", "0,1", "--resamples", "50", "--test", texts / "test.csv"]
    result = run("compare", texts / "train.csv", *words, "--out", here / "c", *FAST)
    assert result.code == 0, result.err
    assert "hierarchical − flat, macro-F1" in result.out
    result = json.loads(run("compare", texts / "train.csv", *words, "--out", here / "c", "--json", *FAST).out)
    assert result["measured_on"] == "test"
    assert set(result["table"]) == {"flat", "hierarchical"}


def test_a_comparison_uses_folds_unless_test_texts_are_requested(run, here, monkeypatch):
    folder = here / "data" / "r8"
    folder.mkdir(parents=True)
    for split, count in (("train", 12), ("test", 3)):
        (folder / f"{split}.tsv").write_text("earn\tprofit rose again\nacq\tfirm buys firm\n" * count)
    words = ["compare", "r8", "--heads", "flat", "--seeds", "0", "--resamples", "20", "--folds", "2", "--json", *FAST]
    assert json.loads(run(*words).out)["measured_on"] == "folds"
    assert json.loads(run(*words, "--on-test").out)["measured_on"] == "test"


def test_a_search_prints_the_best_settings_and_the_command_to_train_them(run, texts, here):
    words = ["search", texts / "train.csv", "--trials", "2", "--storage", here / "s.db", "--encoder", "bag", *FAST]
    result = run(*words, "--head", "flat", "--separator", " > ")
    assert result.code == 0, result.err
    assert "2 complete" in result.out
    command = result.out[result.out.index("arbormax train") :].split("\n")[0]
    import shlex

    again = run(*shlex.split(command)[1:], "--out", here / "m")
    assert again.code == 0, again.err
    result = json.loads(run(*words, "--head", "flat", "--separator", " > ", "--json").out)
    assert result["complete"] == 2
    assert result["config"]["head"] == "flat"


def test_a_search_space_is_read_from_a_file(run, refused, texts, here):
    (here / "space.json").write_text('{"encoders": ["bag"], "heads": ["flat"], "width": [4, 5], "dropout": [0, 0.1]}')
    (here / "odd.json").write_text('{"width": [5, 4], "colour": 1}')
    (here / "list.json").write_text("[]")
    (here / "broken.json").write_text("{")
    words = ["search", texts / "train.csv", "--trials", "1", "--epochs", "1", "--json"]
    result = json.loads(run(*words, "--space", "space.json").out)
    assert result["config"]["encoder_options"]["dim"] in (4, 5)
    for name in ("odd.json", "list.json", "broken.json", "none.json"):
        refused("search", texts / "train.csv", "--space", name, lines=None)


@pytest.mark.parametrize(
    "words",
    [
        ["crossval", "train.csv", "--folds", "1"],
        ["crossval", "train.csv", "--folds", "100000"],
        ["crossval", "none.csv"],
        ["crossval", "train.csv", "--out", "train.csv"],
        ["compare", "train.csv", "--heads", "flat,wide"],
        ["compare", "train.csv", "--heads", ""],
        ["compare", "train.csv", "--heads", "flat,flat"],
        ["compare", "train.csv", "--seeds", "one"],
        ["compare", "train.csv", "--seeds", ""],
        ["compare", "train.csv", "--head", "flat"],
        ["compare", "train.csv", "--seed", "1"],
        ["compare", "train.csv", "--gamma", "1"],
        ["compare", "train.csv", "--level", "95"],
        ["compare", "train.csv", "--on-test"],
        ["compare", "trec", "--on-test", "--test", "train.csv"],
        ["compare", "train.csv", "--epochs-from", "outer"],
        ["compare", "train.csv", "--epochs-from", "fold", "--test", "train.csv"],
        ["search", "train.csv", "--trials", "0"],
        ["search", "train.csv", "--storage", "."],
        ["search", "train.csv", "--storage", "none/search.db"],
        ["search", "train.csv", "--validation", "0"],
        ["search", "train.csv", "--encoder", "bga"],
    ],
    ids=" ".join,
)
def test_wrong_options_of_a_study_are_an_error_of_one_line(refused, texts, here, words):
    (here / "train.csv").write_text((texts / "train.csv").read_text())
    refused(*words)


# ---------------------------------------------------------------------------------------------------------------- demo


def test_the_demo_compares_three_classifiers_and_shows_three_texts(run, here, monkeypatch):
    from arbormax.data import Dataset, Examples
    from arbormax.data.datasets.trees import tree

    tax = tree("r8")
    pairs = [(f"word{c} word{i}", tax.leaves[c]) for i in range(10) for c in range(tax.num_leaves)]
    examples = Examples([text for text, _ in pairs], [node for _, node in pairs])
    monkeypatch.setattr("arbormax.data.load", lambda _: Dataset("r8", tax, examples, examples, "", "", "eight topics"))
    result = run("demo", "--quick")
    assert result.code == 0, result.err
    assert "hierarchical" in result.out
    assert "macro-F1" in result.out
    assert result.out.count("word") >= 3
    assert "Next: arbormax train" in result.out
    result = json.loads(run("demo", "--quick", "--json").out)
    assert set(result["classifiers"]) == {"bag of words, flat", "bag of words, hierarchical", "default"}
    assert len(result["texts"]) == 3


@pytest.mark.slow
def test_the_demo_runs_on_its_own_data(run, here):
    result = json.loads(run("demo", "--quick", "--json").out)
    assert result["dataset"] == "icd10cm"
