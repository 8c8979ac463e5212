"""`arbormax reproduce` executes the run.py of a study folder."""

from pathlib import Path

import pytest

PAPER = Path(__file__).parents[2] / "experiments" / "paper"
RUNNER = """
import sys
from pathlib import Path

from arbormax.errors import OptionError

if __name__ == "__main__":
    if "--wrong" in sys.argv:
        raise OptionError("expected a colour", argument="tree_colour")
    print(Path(sys.argv[0]).parent.name, sys.argv[1:])
    sys.exit(3 if "--fail" in sys.argv else 0)
"""


@pytest.fixture
def study(tmp_path):
    folder = tmp_path / "my-study"
    folder.mkdir()
    (folder / "run.py").write_text(RUNNER, "utf-8")
    return folder


def test_the_study_receives_the_options_behind_its_folder(run, study):
    result = run("reproduce", study, "--quick", "--dataset", "trec", "--help")
    assert result.code == 0, (result.err, result.exception)
    assert result.out == "my-study ['--quick', '--dataset', 'trec', '--help']\n"
    assert result.err == f"running {study / 'run.py'}\n"


def test_the_exit_status_is_that_of_the_study(run, study):
    assert run("reproduce", study, "--fail").code == 3


def test_an_error_of_the_study_is_one_line(run, study):
    result = run("reproduce", study, "--wrong")
    assert result.code == 2
    assert "expected a colour" in result.err
    assert "Traceback" not in result.err


def test_a_folder_without_a_runner_is_an_error(refused, tmp_path):
    assert f"{tmp_path} contains no run.py: expected the folder of a study" in refused("reproduce", tmp_path)
    assert "none does not exist" in refused("reproduce", tmp_path / "none")


def test_the_study_of_the_paper_lists_its_own_options(run):
    result = run("reproduce", PAPER, "--help")
    assert result.code == 0, (result.err, result.exception)
    for option in ("--quick", "--arms", "--dataset", "--workers"):
        assert option in result.out


def test_the_help_has_an_example(run):
    result = run("reproduce", "--help")
    assert result.code == 0
    assert "arbormax reproduce experiments/paper --dataset trec --quick" in result.out
