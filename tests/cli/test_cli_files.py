"""Files as people have them, on the command line."""

import csv
import subprocess
import sys

import openpyxl
import pytest
import torch

from arbormax.cli import threads
from arbormax.data.tables import open_source

ROWS = [
    ["Wolle; warm", "Schal für den Winter", "Müller", "Kleider/Schals"],
    ["Filz", "Hut", "Groß", "Kleider/Hüte"],
    ["Leder", "Ball", "Groß", "Sport/Bälle"],
] * 8
HEADER = ["stoff", "name", "marke", "gruppe"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    with open(folder / "train.csv", "w", encoding="cp1252", newline="") as file:
        csv.writer(file, delimiter=";").writerows([HEADER, *ROWS, ["", "", "", ""]])
    with open(folder / "bom.csv", "w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file, delimiter=";").writerows([HEADER, *ROWS[:3]])
    book = openpyxl.Workbook()
    for row in [HEADER, *ROWS[:3]]:
        book.active.append(row)
    book.save(folder / "new.xlsx")
    return folder


@pytest.fixture(scope="module")
def trained(folder):
    words = ["train", folder / "train.csv", "--text", "name", "--text", "stoff", "--also", "marke", "--label", "gruppe"]
    command = [sys.executable, "-m", "arbormax", *map(str, words), "--out", str(folder / "m")]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "train.csv: semicolon, Windows-1252, header" in result.stderr
    assert "24 texts, 3 classes in a tree of depth 2" in result.stdout
    return folder / "m"


def test_a_table_is_predicted_in_its_own_dialect(run, folder, trained, tmp_path):
    assert run("predict", trained, folder / "bom.csv", "--keep", "--out", tmp_path / "out.csv").code == 0
    before, after = open_source(folder / "bom.csv").dialect, open_source(tmp_path / "out.csv").dialect
    assert (after, after.newline) == (before, before.newline)
    with open(tmp_path / "out.csv", encoding="utf-8-sig", newline="") as file:
        assert [row["path"] for row in csv.DictReader(file, delimiter=";")] == [row[3] for row in ROWS[:3]]


def test_a_workbook_is_evaluated_and_predicted_to_a_workbook(run, folder, trained, tmp_path):
    result = run("evaluate", trained, folder / "new.xlsx", "--label", "gruppe", "--json")
    assert '"accuracy": 1.0' in result.out
    assert run("predict", trained, folder / "new.xlsx", "--out", tmp_path / "out.xlsx").code == 0
    header, *rows = openpyxl.load_workbook(tmp_path / "out.xlsx").active.iter_rows(values_only=True)
    assert header[:3] == ("line", "label", "path")
    assert [row[2] for row in rows] == [row[3] for row in ROWS[:3]]


def test_the_columns_of_one_message_are_json(run, trained):
    result = run("predict", trained, "-m", '{"name": "Ball", "marke": "Groß"}', "--json")
    assert '"text": "Ball • marke: Groß"' in result.out
    assert "no column 'marken'; did you mean 'marke'?" in run("predict", trained, "-m", '{"marken": "x"}').err
    assert "marke: Groß" in run("explain", trained, '{"name": "Ball", "marke": "Groß"}').out


def test_predict_imports_neither_scikit_learn_nor_lightning_nor_pandas(trained):
    script = (
        "import sys; from arbormax.cli import main; sys.argv[1:] = sys.argv[1:]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(sorted({'sklearn', 'pytorch_lightning', 'pandas', 'openpyxl', 'optuna'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", script, "predict", str(trained), "-m", "Hut"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


def test_help_does_not_import_torch():
    script = "import sys; from arbormax.cli import main; sys.argv[1:] = ['predict', '--help']\n"
    script += "try:\n    main()\nexcept SystemExit:\n    print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "False"


@pytest.mark.parametrize(("load", "expected"), [(0.0, 4), (2.6, 1), (30.0, 1), (1.2, 3)])
def test_threads_are_those_of_the_idle_cores(monkeypatch, load, expected):
    chosen = []
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    monkeypatch.setattr(threads, "usable_cores", lambda: 4)
    monkeypatch.setattr(threads.os, "cpu_count", lambda: 4)
    monkeypatch.setattr(threads.os, "getloadavg", lambda: (load, load, load), raising=False)
    described = threads.set_threads(None)
    assert chosen == [expected]
    assert ("of 4, because other programs are running" in described) == (expected < 4)
    assert threads.set_threads(3) == "3 threads"
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert threads.set_threads(None) == "4 threads"
    assert chosen == [expected, 3]
