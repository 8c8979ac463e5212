"""`arbormax taxonomy edit`, of files and of models."""

import json

import pytest

TREE = "news/sport\nnews/weather\nshop/shoes\nshop/hats\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tree.txt").write_text(TREE)
    return tmp_path


EDITS = ["--add", "news/culture", "--add", "games", "--split", "sport=golf,chess", "--move", "hats=news"]
EDITS += ["--remove", "shoes", "--rename", "weather=sky", "--emptied", "remove"]


def test_a_file_is_edited_into_another(run, here):
    from arbormax import Taxonomy

    result = run("taxonomy", "edit", "tree.txt", *EDITS, "--out", "new.json")
    assert result.code == 0, result.err
    assert "split 'news/sport' into 'golf', 'chess'" in result.out
    assert "written: new.json" in result.err
    tax = Taxonomy.load("new.json")
    assert tax.classes == ("sky", "hats", "culture", "games", "golf", "chess")
    assert (here / "tree.txt").read_text() == TREE


def test_a_file_is_replaced_only_with_overwrite(run, refused, here):
    words = ["taxonomy", "edit", "tree.txt", "--add", "news/culture", "--out", "tree.txt"]
    assert "--overwrite" in refused(*words)
    assert run(*words, "--overwrite", "--lossy").code == 0
    assert "news/culture" in (here / "tree.txt").read_text()


def test_json_output(run, here):
    result = json.loads(run("taxonomy", "edit", "tree.txt", *EDITS, "--out", "new.json", "--json").out)
    assert result["classes_gone"] == ["sport", "shoes"]
    assert result["classes_new"] == ["culture", "games", "golf", "chess"]
    assert result["classes"] == 6


def test_all_defects_are_reported_and_nothing_is_written(refused, here):
    words = ["--remove", "hts", "--remove", "shop", "--add", "news/sport", "--split", "news=a,b"]
    result = refused("taxonomy", "edit", "tree.txt", *words, "--out", "new.json", lines=None)
    assert "3 defects" in result
    assert "did you mean 'hats'" in result
    assert "'news' already has a child 'sport'" in result
    assert "'news' is an inner node" in result
    assert not (here / "new.json").exists()


def test_the_error_of_an_emptied_parent_names_the_option(refused, here):
    result = refused("taxonomy", "edit", "tree.txt", "--remove", "shoes", "--remove", "hats", "--out", "new.json")
    assert "--emptied class" in result


def test_edits_that_cannot_be_parsed_are_errors(refused, here):
    assert "no edits" in refused("taxonomy", "edit", "tree.txt", "--out", "new.json")
    assert "expected NODE=PARENT" in refused("taxonomy", "edit", "tree.txt", "--move", "hats", "--out", "new.json")
    assert "the folder does not exist" in refused(
        "taxonomy", "edit", "tree.txt", "--remove", "hats", "--out", "no/new.json"
    )


def test_an_equals_sign_inside_a_name_is_escaped(run, here):
    from arbormax import Taxonomy

    (here / "odd.txt").write_text("a=b\nc/d\n")
    result = run("taxonomy", "edit", "odd.txt", "--move", r"a\=b=c", "--add", "c/x,y", "--out", "new.json")
    assert result.code == 0, result.err
    assert Taxonomy.load("new.json").to_nested() == {"c": {"a=b": {}, "d": {}, "x,y": {}}}


def test_a_model_predicts_with_the_new_tree(run, model, tmp_path):
    import numpy as np

    import arbormax as am

    out = tmp_path / "edited"
    result = run("taxonomy", "edit", model, "--add", "shop/bags", "--split", "sport=golf,chess", "--out", out)
    assert result.code == 0, (result.err, result.exception)
    assert "copied bit for bit" in result.out
    old, new = am.TextClassifier.load(model), am.TextClassifier.load(out)
    assert set(new.classes_) == {"weather", "shoes", "hats", "bags", "golf", "chess"}
    texts = ["goal match team", "rain and wind", "a felt brim"]
    before, after = old.node_proba(texts), new.node_proba(texts)
    for label in ("news", "shop", "news/sport", "weather"):
        at = old.taxonomy_.find(label), new.taxonomy_.find(label)
        np.testing.assert_allclose(after[:, at[1]], before[:, at[0]], rtol=1e-5)
    metrics = json.loads((out / "metrics.json").read_text())
    assert "test" not in metrics  # measured on another tree
    assert "added 'shop/bags'" in "\n".join(metrics["edited"]["changed"])
    predicted = run("predict", out, "--message", "rain and wind", "--json")
    assert predicted.code == 0
    assert "weather" in predicted.out


def test_texts_show_which_predictions_a_moved_class_keeps(run, refused, model, texts, tmp_path):
    words = ["taxonomy", "edit", model, "--move", "hats=news", "--merge", "sport=weather", "--json"]
    without = json.loads(run(*words, "--out", tmp_path / "without").out)
    assert without["kept"] == {}
    assert any("'news/hats', 'news/weather' stay the same is not known" in line for line in without["changed"])
    result = json.loads(run(*words, "--unlabelled", texts / "train.csv", "--out", tmp_path / "with").out)
    assert set(result["kept"]) == {"news/hats", "news/weather"}
    assert result["classes_gone"] == ["sport"]
    assert "--unlabelled: " in refused(
        "taxonomy", "edit", "trec", "--merge", "NUM:code=NUM:count", "--unlabelled", "x.csv", "--out", "new.json"
    )


def test_a_model_is_replaced_only_with_overwrite(run, refused, model, tmp_path):
    import shutil

    mine = shutil.copytree(model, tmp_path / "mine")
    words = ["taxonomy", "edit", mine, "--rename", "hats=caps", "--out", mine]
    assert "--overwrite" in refused(*words)
    assert run(*words, "--overwrite").code == 0
    assert "caps" in run("taxonomy", "show", mine).out
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    assert "contains other files and no model" in refused(*words[:-1], tmp_path / "full", "--overwrite")
    assert "are for files" in refused(*words, "--layout", "paths")


def test_help_has_an_example(run):
    result = run("taxonomy", "edit", "--help")
    assert "Example: arbormax taxonomy edit" in " ".join(result.out.split())
