"""The program as a whole: help, version, errors, start-up."""

import subprocess
import sys

import pytest
import typer
from cli_tools import program

from arbormax.cli.app import app


def all_commands(command=None, words=()):
    """The words of every command, such as ("taxonomy", "show")."""
    command = command or typer.main.get_command(app)
    for name, child in getattr(command, "commands", {}).items():
        yield (*words, name)
        yield from all_commands(child, (*words, name))


COMMANDS = list(all_commands())


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example(run, command):
    result = run(*command, "--help")
    assert result.code == 0
    assert f"arbormax {' '.join(command)}" in " ".join(result.out.split())
    assert "Example: arbormax" in " ".join(result.out.split())


def test_the_program_without_a_command_shows_help(run):
    result = run()
    assert result.code == 0
    assert "Usage: arbormax" in result.out
    for command in COMMANDS:
        assert command[0] in result.out


def test_the_commands_of_the_design_exist():
    names = "demo train evaluate predict compare crossval search explain reproduce export report serve"
    expected = {(name,) for name in names.split()}
    expected |= {("taxonomy", name) for name in ("show", "check", "convert", "edit")}
    assert expected | {("data", "list"), ("data", "fetch")} <= set(COMMANDS)


def test_the_version_is_printed(run):
    import arbormax

    assert run("--version").out == f"arbormax {arbormax.__version__}\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["trian"], "Did you mean 'train'"),
        (["--bogus"], "--bogus"),
        (["train"], "Missing argument 'DATA'"),
        (["train", "x.csv", "--epohcs", "3"], "--epohcs"),
        (["train", "x.csv", "--epochs", "three"], "--epochs"),
        (["predict"], "MODEL"),
        (["taxonomy", "shwo"], "shwo"),
        (["data", "fetch"], "NAME"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_in_the_command_is_one_line_that_names_it(refused, words, expected):
    message = refused(*words)
    assert expected in message
    assert "--help" in message


def test_debug_raises_the_error_wherever_it_stands(run):
    for words in (["--debug", "train", "nothing"], ["train", "nothing", "--debug"]):
        result = run(*words)
        assert result.code == 1
        assert type(result.exception).__name__ == "InputError"


def test_debug_can_be_set_by_the_environment(run, monkeypatch):
    monkeypatch.setenv("ARBORMAX_DEBUG", "1")
    result = run("train", "nothing")
    assert result.code == 1
    assert type(result.exception).__name__ == "InputError"


def test_debug_behind_two_dashes_is_an_argument(refused):
    assert "--debug" in refused("train", "--", "--debug")


def test_an_unexpected_error_is_one_line_and_exit_code_1(run, monkeypatch):
    def broken(*_):
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("arbormax.cli.train.read_labelled", broken)
    result = run("train", "trec")
    assert result.code == 1
    assert result.err.splitlines() == [
        "arbormax: RuntimeError: two lines (unexpected error: see --debug, and please report it)"
    ]


def test_ctrl_c_is_exit_code_130(run, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("arbormax.cli.train.read_labelled", interrupted)
    result = run("train", "trec")
    assert result.code == 130
    assert result.err == "arbormax: stopped\n"


def test_ctrl_c_in_lightning_is_exit_code_130(run, monkeypatch):
    def interrupted(*_):
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            sys.exit(1)

    monkeypatch.setattr("arbormax.cli.train.read_labelled", interrupted)
    assert run("train", "trec").code == 130


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_a_missing_package_is_an_error_with_the_install_command(package):
    script = f"import sys; sys.modules[{package!r}] = None\nfrom arbormax.cli import main\nmain()"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert result.returncode == 2
    assert result.stderr.splitlines() == [
        f"arbormax: the command line needs the package {package}: pip install 'arbormax[train]'"
    ]


def test_the_help_of_every_command_imports_nothing_heavy():
    script = (
        "import sys, arbormax; before = set(sys.modules)\n"
        "from typer.testing import CliRunner\n"
        "from arbormax.cli.app import app\n"
        f"for words in {COMMANDS}:\n"
        "    assert CliRunner().invoke(app, [*words, '--help']).exit_code == 0\n"
        "print(sorted({name.split('.')[0] for name in set(sys.modules) - before}))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    for heavy in ("torch", "pytorch_lightning", "sklearn", "pyarrow", "optuna", "transformers", "fastapi", "ray"):
        assert f"'{heavy}'" not in result.stdout


def test_the_module_runs_as_a_program():
    result = program("taxonomy", "show", "none.json", "--debug")
    assert result.returncode == 1
    assert "Traceback" in result.stderr
    assert "FileNotFoundError" in result.stderr


def test_characters_that_the_terminal_lacks_are_escaped():
    import os

    result = program("--help", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert result.returncode == 0, result.stderr


def test_a_closed_pipe_ends_the_program_quietly(model, texts):
    process = program("predict", model, texts / "train.csv", "--keep", start=True)
    process.stdout.readline()
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    process.wait(60)
    assert "Traceback" not in errors
