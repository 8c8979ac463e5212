"""`arbormax export`: a model for onnxruntime and torch.export."""

import json
import sys

import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


def test_help_has_an_example(run):
    result = run("export", "--help")
    assert result.code == 0
    assert "Example: arbormax export" in " ".join(result.out.split())
    for option in ("--format", "--out", "--force", "--no-check", "--json"):
        assert option in result.out


def test_an_export_prints_its_agreement_with_torch(run, refused, model, tmp_path):
    result = run("export", model, "--format", "onnx", "--out", tmp_path / "x")
    assert result.code == 0, result.err
    assert "model.onnx" in result.out
    assert "input input_ids: (batch, length) int64" in result.out
    assert "outputs leaf_log_probs (batch, classes) and node_log_probs (batch, nodes)" in result.out
    assert "Agrees with torch on 6 texts of different lengths" in result.out
    assert result.err == f"written: {tmp_path / 'x'}\n"
    assert (tmp_path / "x" / "model.onnx").is_file()
    assert "--force" in refused("export", model, "--out", tmp_path / "x")


def test_json_contains_files_inputs_and_the_difference(run, model, tmp_path):
    words = ["export", model, "--format", "torch-export", "--out", tmp_path / "x", "--json"]
    result = json.loads(run(*words).out)
    assert result["format"] == "torch-export"
    assert result["folder"] == str(tmp_path / "x")
    assert result["files"]["model.pt2"] == (tmp_path / "x" / "model.pt2").stat().st_size
    assert list(result["inputs"]) == ["input_ids"]
    assert result["difference"] <= result["tolerance"] == 1e-5
    unchecked = json.loads(run(*words, "--force", "--no-check").out)
    assert (unchecked["difference"], unchecked["texts"], unchecked["tolerance"]) == (None, 0, None)


def test_the_default_folder_is_next_to_the_model(run, model):
    result = run("export", model, "--format", "torch-export", "--no-check")
    assert result.code == 0, result.err
    assert "Not checked" in result.out
    assert (model.parent / "model-torch-export" / "model.pt2").is_file()


def test_a_failed_export_is_an_error_of_one_line(refused, model, tmp_path, monkeypatch):
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
