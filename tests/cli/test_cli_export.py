"""`arbormax export`: a model for onnxruntime and torch.export."""

import json
import sys

import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


def test_help_has_an_example(run):
    told = run("export", "--help")
    assert told.code == 0
    assert "Example: arbormax export" in " ".join(told.out.split())
    for option in ("--format", "--out", "--force", "--no-check", "--json"):
        assert option in told.out


def test_a_model_is_exported_and_the_agreement_with_torch_is_told(run, refused, model, tmp_path):
    told = run("export", model, "--format", "onnx", "--out", tmp_path / "x")
    assert told.code == 0, told.err
    assert "model.onnx" in told.out
    assert "input input_ids: (batch, length) int64" in told.out
    assert "outputs leaf_log_probs (batch, classes) and node_log_probs (batch, nodes)" in told.out
    assert "Agrees with torch on 6 texts of different lengths" in told.out
    assert told.err == f"written: {tmp_path / 'x'}\n"
    assert (tmp_path / "x" / "model.onnx").is_file()
    assert "--force" in refused("export", model, "--out", tmp_path / "x")


def test_json_tells_files_inputs_and_the_difference(run, model, tmp_path):
    words = ["export", model, "--format", "torch-export", "--out", tmp_path / "x", "--json"]
    told = json.loads(run(*words).out)
    assert told["format"] == "torch-export"
    assert told["folder"] == str(tmp_path / "x")
    assert told["files"]["model.pt2"] == (tmp_path / "x" / "model.pt2").stat().st_size
    assert list(told["inputs"]) == ["input_ids"]
    assert told["difference"] <= told["tolerance"] == 1e-5
    unchecked = json.loads(run(*words, "--force", "--no-check").out)
    assert (unchecked["difference"], unchecked["texts"], unchecked["tolerance"]) == (None, 0, None)


def test_the_folder_lies_beside_the_model_unless_told_otherwise(run, model):
    told = run("export", model, "--format", "torch-export", "--no-check")
    assert told.code == 0, told.err
    assert "Not checked" in told.out
    assert (model.parent / "model-torch-export" / "model.pt2").is_file()


def test_an_export_that_cannot_be_had_is_refused_in_one_line(refused, model, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").touch()
    onnx = ["--format", "onnx", "--out"]
    assert "not a model: no such folder" in refused("export", tmp_path / "none", *onnx, tmp_path / "x")
    assert "it has no config.json" in refused("export", tmp_path / "mine", *onnx, tmp_path / "x")
    assert "did you mean 'onnx'?" in refused("export", model, "--format", "onx", "--out", tmp_path / "x")
    assert "is a file" in refused("export", model, *onnx, tmp_path / "file")
    assert "other files" in refused("export", model, *onnx, tmp_path / "mine", "--force")
    assert "MODEL" in refused("export")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    assert "pip install 'onnxscript', or pip install 'arbormax[onnx]'" in refused(
        "export", model, *onnx, tmp_path / "x"
    )
    assert not (tmp_path / "x").exists()
