"""Saving and loading models, and errors for damaged folders."""

import hashlib
import json
import os
import pickle
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from arbormax import Taxonomy
from arbormax.errors import InputError, OptionError
from arbormax.model import Model, ModelFolderError, load_model, read_metrics, save_model
from toy import TREE, examples, settings

TEXTS = ["owlish in the old", "", "?!", "codish", "dodo", "owlish owlish very old \x00 \ud800", "😀"]
FIRST = Path(__file__).with_name("model_v1")


def untrained(encoder="bag", head="hierarchical", tree=TREE, **given):
    return Model.new(examples(30).inputs, tree, settings(encoder, head=head, **given).resolved())


def log_probs(model):
    return torch.cat(list(model.node_log_probs(TEXTS)))


@pytest.fixture
def folder(tmp_path):
    return save_model(untrained(), tmp_path / "model", {"test": {"accuracy": 0.5, "items": 3}})


def read_config(folder):
    return json.loads((folder / "config.json").read_text())


def rewrite(folder, **changes):
    """Change the config and update the digests of the files."""
    record = {**read_config(folder), **changes}
    if "files" not in changes:
        names = [name for name in record["files"] if (folder / name).exists()]
        record["files"] = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
    (folder / "config.json").write_text(json.dumps(record))


@pytest.mark.parametrize("head", ["hierarchical", "flat", "shared"])
@pytest.mark.parametrize("encoder", ["bag", "lstm", "bilstm"])
@pytest.mark.parametrize("tokens", ["words", "whitespace"])
def test_a_loaded_model_predicts_like_the_saved_one(tmp_path, encoder, head, tokens):
    model = untrained(encoder, head, encoder_options={"tokens": tokens})
    loaded = load_model(save_model(model, tmp_path / "model"))
    assert torch.equal(log_probs(loaded), log_probs(model))
    assert loaded.config == model.config
    assert loaded.encoder.options == model.encoder.options
    assert loaded.taxonomy.fingerprint == TREE.fingerprint
    assert not loaded.training


def test_words_with_unusual_characters_are_restored(tmp_path):
    texts = ["owl\ud800 a\x00b 😀 \u0301x", "İstanbul ß \ufeff"]
    for tokens in ("words", "whitespace"):
        config = settings("bilstm", encoder_options={"tokens": tokens}).resolved()
        model = Model.new(texts, TREE, config)
        loaded = load_model(save_model(model, tmp_path / tokens))
        assert loaded.encoder.vocabulary.words == model.encoder.vocabulary.words


def test_a_taxonomy_with_unusual_names_is_restored(tmp_path):
    tree = Taxonomy.from_paths([("a/b", "it's"), ("a/b", "```"), ("日本", "x|y"), ("日本", "a\nb")])
    loaded = load_model(save_model(untrained(tree=tree), tmp_path / "model"))
    assert loaded.taxonomy.fingerprint == tree.fingerprint
    assert loaded.taxonomy.classes == tree.classes


def test_a_model_saved_over_another_replaces_it(folder):
    model = untrained("bilstm", seed=3)
    save_model(model, folder)
    assert torch.equal(log_probs(load_model(folder)), log_probs(model))
    assert read_metrics(folder) == {}


def test_a_model_can_be_loaded_from_a_moved_folder(folder, tmp_path):
    before = log_probs(load_model(folder))
    shutil.move(folder, tmp_path / "elsewhere")
    assert torch.equal(log_probs(load_model(tmp_path / "elsewhere")), before)


def test_a_folder_contains_no_pickle_and_no_hidden_file(folder):
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
    wanted = ["README.md", "config.json", "metrics.json", "model.safetensors", "ngrams.npz", "taxonomy.json"]
    assert names == sorted([*wanted, "characters.txt", "vocabulary.txt"])
    with zipfile.ZipFile(folder / "ngrams.npz") as archive:
        assert all(name.endswith(".npy") for name in archive.namelist())
    for name in names:
        with pytest.raises((pickle.UnpicklingError, ValueError, EOFError, KeyError, IndexError, AttributeError)):
            pickle.loads((folder / name).read_bytes())


def test_all_files_have_the_same_permissions(folder):
    assert len({path.stat().st_mode for path in folder.iterdir()}) == 1


def test_the_folder_contains_measures_and_a_model_card(folder):
    assert read_metrics(folder) == {"test": {"accuracy": 0.5, "items": 3}}
    card = (folder / "README.md").read_text()
    assert "| test | 3 | 0.5000 |" in card
    assert "owl" in card


def test_a_folder_without_a_model_is_an_error(tmp_path):
    with pytest.raises(ModelFolderError, match="nowhere is not a model: no such folder"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(ModelFolderError, match=r"is not a model: it has no config\.json"):
        load_model(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(ModelFolderError, match="an unfinished training, which can be resumed"):
        load_model(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelFolderError, match="is not a model"):
        load_model(tmp_path / "file")
    with pytest.raises(OptionError, match="is a file; a model is saved in a folder"):
        save_model(untrained(), tmp_path / "file")


NAMES = ["taxonomy.json", "model.safetensors", "vocabulary.txt", "ngrams.npz"]


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_file_is_reported(folder, name):
    (folder / name).unlink()
    with pytest.raises(ModelFolderError, match=f"is incomplete: {name} is missing"):
        load_model(folder)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", ["cut", "empty", "longer", "changed"])
def test_a_changed_file_is_reported(folder, name, how):
    data = (folder / name).read_bytes()
    wrong = {"cut": data[:-1], "empty": b"", "longer": data + b"\n", "changed": data[:9] + b"~" + data[10:]}[how]
    (folder / name).write_bytes(wrong)
    with pytest.raises(ModelFolderError, match=f"{name} is not the file that was saved with this model"):
        load_model(folder)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", ["cut", "empty", "removed"])
def test_a_damaged_file_is_reported_even_if_its_digest_matches(folder, name, how):
    path = folder / name
    data = path.read_bytes()
    path.unlink() if how == "removed" else path.write_bytes(data[: len(data) // 2 if how == "cut" else 0])
    rewrite(folder)
    with pytest.raises(ModelFolderError):
        load_model(folder)


def test_files_of_another_model_are_reported(folder, tmp_path):
    others = save_model(
        untrained(
            tree=Taxonomy.from_paths([TREE.path(leaf) for leaf in TREE.leaves[::-1]]),
            encoder="bag",
            encoder_options={"dim": 9},
        ),
        tmp_path / "other",
    )
    for name in ("taxonomy.json", "model.safetensors"):
        broken = shutil.copytree(folder, tmp_path / f"with-{name}")
        shutil.copy(others / name, broken / name)
        with pytest.raises(ModelFolderError, match="of another model"):
            load_model(broken)
        rewrite(broken)
        with pytest.raises(ModelFolderError, match="do not match its config"):
            load_model(broken)


def test_missing_and_additional_weights_are_reported(folder):
    path = folder / "model.safetensors"
    weights = load_file(path)
    for changed in ({k: v for k, v in weights.items() if k != "head.bias"}, {**weights, "more": torch.zeros(1)}):
        save_file(changed, path)
        rewrite(folder)
        with pytest.raises(ModelFolderError, match="do not match its config"):
            load_model(folder)


@pytest.mark.parametrize("content", ["", "{", "[]", "3", "null", '{"format": "other"}', "\udcff"])
def test_an_invalid_config_is_reported(folder, content):
    (folder / "config.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(ModelFolderError, match=r"config\.json"):
        load_model(folder)


PARTS = ["format", "format_version", "config", "encoder_options", "files"]
# settings that are all left at their defaults are settings
WRONG = [(key, value) for key in PARTS for value in (None, [], "x", {}) if (key, value) != ("config", {})]


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_a_config_entry_of_the_wrong_type_is_reported(folder, key, value):
    rewrite(folder, **{key: value})
    with pytest.raises(ModelFolderError, match=r"config\.json"):
        load_model(folder)


def test_a_newer_format_is_an_error_with_advice(folder):
    rewrite(folder, format_version=3, arbormax="9.0")
    with pytest.raises(ModelFolderError, match=r"has format 3, written by arbormax 9\.0; .*upgrade arbormax"):
        load_model(folder)


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "a/../../outside"])
def test_a_file_outside_of_the_folder_is_an_error(folder, name):
    (folder.parent / "outside").write_text("x")
    digest = hashlib.sha256(b"x").hexdigest()
    rewrite(folder, files={**read_config(folder)["files"], name: digest})
    with pytest.raises(ModelFolderError, match="which is not in the folder"):
        load_model(folder)


@pytest.mark.parametrize(
    ("where", "change", "message"),
    [
        ("config", {"encoder": "bagg"}, "did you mean 'bag'"),
        ("config", {"head": "tree"}, "head"),
        ("config", {"wings": 2}, "wings"),
        ("encoder_options", {"dim": -1}, "dim"),
        ("encoder_options", {"wings": 2}, "wings"),
        ("encoder_options", {"dim": 3}, "do not match"),
    ],
)
def test_unknown_settings_are_errors(folder, where, change, message):
    rewrite(folder, **{where: {**read_config(folder)[where], **change}})
    with pytest.raises(ModelFolderError, match=message):
        load_model(folder)


def test_broken_measures_are_an_error(folder):
    for content in ("{", "[]"):
        (folder / "metrics.json").write_text(content)
        with pytest.raises(ModelFolderError, match=r"metrics\.json"):
            read_metrics(folder)
    load_model(folder)


def test_a_failed_save_keeps_the_old_model(folder, monkeypatch):
    before = log_probs(load_model(folder))
    model = untrained("bilstm", seed=3)
    monkeypatch.setattr(type(model.encoder), "save", lambda self, folder: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        save_model(model, folder)
    assert torch.equal(log_probs(load_model(folder)), before)
    assert not [name for name in os.listdir(folder) if name.startswith(".")]


def test_a_folder_of_format_1_loads_and_predicts_the_same():
    model = load_model(FIRST)
    stored = json.loads((FIRST / "answers.json").read_text())
    found = torch.cat(list(model.node_log_probs(stored["texts"]))).numpy()
    np.testing.assert_allclose(found, stored["node_log_probs"], rtol=1e-4, atol=1e-5)
    assert model.taxonomy.classes == tuple(stored["classes"])
    assert (model.config.encoder, model.config.head) == ("bag", "hierarchical")
    assert read_metrics(FIRST)["test"]["accuracy"] > 0.9


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_finite_are_neither_loaded_nor_saved(folder, value):
    path = folder / "model.safetensors"
    weights = load_file(path)
    weights["head.weight"][1, 2] = value
    save_file(weights, path)
    rewrite(folder)
    with pytest.raises(
        ModelFolderError, match=r"head\.weight has 1 of \d+ values that are not finite; .* save .*again"
    ):
        load_model(folder)
    model = untrained()
    with torch.no_grad():
        model.head.bias[0] = value
    with pytest.raises(InputError, match=r"head\.bias has 1 of \d+ values that are not finite; .* train it again"):
        save_model(model, folder.parent / "new")
    assert not (folder.parent / "new" / "config.json").exists()


@pytest.mark.parametrize("name", ["x" * 300, "a\0b", "x/" * 3000])
def test_a_listed_file_with_an_impossible_name_is_an_error(folder, name):
    rewrite(folder, files={**read_config(folder)["files"], name: "0"})
    with pytest.raises(ModelFolderError, match=r"lists the file|is incomplete"):
        load_model(folder)
