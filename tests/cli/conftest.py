"""Fixtures: the program in this process, tiny texts, and a model trained on them once."""

import pytest
from cli_tools import SMALL, Result, write_csv
from typer.testing import CliRunner


@pytest.fixture
def run(monkeypatch):
    """Runs a command in this process."""
    monkeypatch.delenv("ARBORMAX_DEBUG", raising=False)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words, input=None):
        from arbormax.cli.app import app

        return Result(CliRunner().invoke(app, [str(word) for word in words], input=input, prog_name="arbormax"))

    return run


@pytest.fixture
def refused(run):
    """Runs a command that must fail: exit code 2, one line on stderr, nothing on stdout, no traceback."""

    def refused(*words, input=None, lines=1):
        result = run(*words, input=input)
        assert result.code == 2, (result.code, result.err, result.exception)
        assert result.out == ""
        assert result.err.startswith("arbormax: ")
        assert "Traceback" not in result.err
        if lines is not None:
            assert len(result.err.splitlines()) == lines, result.err
        return result.err

    return refused


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    """A folder with train.csv and test.csv."""
    folder = tmp_path_factory.mktemp("texts")
    write_csv(folder / "train.csv", 120)
    write_csv(folder / "test.csv", 30, seed=1)
    return folder


@pytest.fixture(scope="session")
def model(texts):
    """A trained model."""
    from arbormax.cli.app import app

    folder = texts / "model"
    words = [
        "train",
        texts / "train.csv",
        "--test",
        texts / "test.csv",
        "--out",
        folder,
        *SMALL,
        "--head",
        "hierarchical",
    ]
    words += ["--epochs", "10", "--learning-rate", "0.05"]
    result = CliRunner().invoke(app, [str(word) for word in words], prog_name="arbormax")
    assert result.exit_code == 0, (result.output, result.exception)
    return folder
