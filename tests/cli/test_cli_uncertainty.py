"""Uncertainty on the command line."""

import json

import pytest
from typer.testing import CliRunner

from arbormax.cli.app import app
from arbormax.model import load_model
from toy import TREE, examples

FAST = ["--encoder", "bag", "--option", "dim=8", "--option", "dropout=0.2", "--epochs", "2", "--validation", "0"]


def run(*words, code=0):
    result = CliRunner().invoke(app, [str(word) for word in words], prog_name="arbormax", env={"COLUMNS": "200"})
    assert result.exit_code == code, (result.output, result.exception)
    return result


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    path = tmp_path_factory.mktemp("uncertainty") / "texts.csv"
    data = examples()
    rows = [f"{text},{' > '.join(TREE.path(node))}" for text, node in zip(data.inputs, data.nodes, strict=True)]
    path.write_text("\n".join(["text,label", *rows]))
    return path


@pytest.mark.parametrize(
    ("method", "option"),
    [("laplace", "draws=5"), ("dropout", "draws=5"), ("bbb", "draws=5"), ("ensemble", "members=2")],
)
def test_a_model_is_trained_with_uncertainty(method, option, texts, tmp_path):
    run("train", texts, "--out", tmp_path / "model", "--uncertainty", method, "--uncertainty-option", option, *FAST)
    posterior = load_model(tmp_path / "model").posterior
    assert posterior.draws == int(option[-1])
    assert json.loads((tmp_path / "model" / "uncertainty.json").read_text())["method"] == method


def test_errors_name_the_options(texts, tmp_path):
    words = ["train", texts, "--out", tmp_path / "model"]
    found = run(*words, "--uncertainty", "laplac", code=2).stderr
    assert "--uncertainty" in found
    assert "did you mean 'laplace'" in found
    found = run(*words, "--uncertainty", "laplace", "--uncertainty-option", "draw=3", code=2).stderr
    assert "--uncertainty-option" in found
    assert "did you mean 'draws'" in found
