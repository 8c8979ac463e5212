"""Errors of the library as the command line prints them: arguments become options, user data stays as it is."""

import pytest
import typer

from arbormax.cli.app import app
from arbormax.cli.errors import error_message
from arbormax.errors import LabelError, OptionError, TableError, TaxonomyError

PROGRAM = typer.main.get_command(app)
TRAIN, PREDICT = PROGRAM.commands["train"], PROGRAM.commands["predict"]
SHOW, CROSSVAL = PROGRAM.commands["taxonomy"].commands["show"], PROGRAM.commands["crossval"]


@pytest.mark.parametrize(
    ("error", "command", "message"),
    [
        (OptionError("expected a number", argument="tau"), PREDICT, "--tau: expected a number"),
        (OptionError("must be positive", argument="batch_size"), TRAIN, "--batch-size: must be positive"),
        (OptionError("must be positive", argument="encoder_options.dim"), TRAIN, "--option dim: must be positive"),
        (OptionError("unknown format 'x'", argument="format"), TRAIN, "--input-format: unknown format 'x'"),
        (OptionError("not a model", argument="model"), PREDICT, "MODEL: not a model"),
        (OptionError("cannot import 'x'", argument="imports"), PREDICT, "--import: cannot import 'x'"),
        (OptionError("must be a tensor", argument="logits"), PREDICT, "logits: must be a tensor"),
        (TableError("row 3 is bad", fix={"on_bad_rows": "skip"}), TRAIN, "row 3 is bad; try --skip-bad-rows"),
        (TableError("no header", fix={"header": False}), TRAIN, "no header; try --no-header"),
        (TaxonomyError("no header", fix={"header": False}), SHOW, "no header; try --no-header"),
        (TaxonomyError("a header", fix={"header": True}), SHOW, "a header; try --header"),
        (TableError("a quote", fix={"quoting": False}), TRAIN, "a quote; try --no-quoting"),
        (TableError("one column", fix={"delimiter": ";"}), TRAIN, "one column; try --delimiter ';'"),
        (TaxonomyError("one level", fix={"sep": " > "}), SHOW, "one level; try --separator ' > '"),
        (OptionError("no stopping", fix={"epochs_from": "inner"}), CROSSVAL, "no stopping; try --epochs-from inner"),
        (OptionError("no groups", fix={"head": ("a", "b")}), TRAIN, "no groups; try --head a or --head b"),
        (
            TableError("2 columns", fix={"text": "A", "header": False, "label": "A"}, together=("text", "label")),
            TRAIN,
            "2 columns; try --text A and --label A, or --no-header",
        ),
        (OptionError("too large", fix={"dtype": "float32"}), TRAIN, "too large; try dtype='float32'"),
    ],
    ids=lambda value: str(value) if isinstance(value, Exception) else "",
)
def test_arguments_and_fixes_are_spelled_as_options_of_the_command(error, command, message):
    assert error_message(error, command) == message


def test_several_wrong_arguments_are_listed_one_per_line():
    error = OptionError(parts=[OptionError("too small", argument="epochs"), OptionError("too large", argument="seed")])
    assert str(error) == "epochs: too small\nseed: too large"
    assert error_message(error, TRAIN) == "--epochs: too small\n--seed: too large"


@pytest.mark.parametrize("label", ["head=abc", "header=False", "encoding=latin-1", "format=, one of", "taxonomy=x"])
def test_user_data_in_a_message_is_never_rewritten(refused, tmp_path, label):
    assert error_message(LabelError(f"unknown label {label!r}"), TRAIN) == f"unknown label {label!r}"
    (tmp_path / "tree.txt").write_text("a\nb\n")
    (tmp_path / "texts.csv").write_text(f'text,label\none,"{label}"\n')
    message = refused("train", tmp_path / "texts.csv", "--taxonomy", tmp_path / "tree.txt", lines=None)
    assert repr(label) in message


def test_a_fix_stands_before_the_list_of_problems():
    error = TableError("2 rows are bad", ["line 1", "line 2"], fix={"on_bad_rows": "skip"})
    assert str(error) == "2 rows are bad; try on_bad_rows='skip'\n  - line 1\n  - line 2"


def test_an_operating_system_error_names_the_file():
    error = FileNotFoundError(2, "No such file or directory", "x.csv")
    assert error_message(error, TRAIN) == "x.csv: no such file or directory"
