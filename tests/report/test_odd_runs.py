"""Reports of runs that are out of the ordinary: diverged, tiny, compared twice, or not as they should be."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from report_toy import CURVE, TREE, Page, write_run

from arbormax.data.examples import Examples
from arbormax.errors import InputError
from arbormax.report import report_html
from arbormax.studies.details import build_details

NAN, BEYOND = float("nan"), float("inf")
DIFFERENCE = {
    "head": "hierarchical",
    "baseline": "flat",
    "measure": "accuracy",
    "mean": 0.1,
    "low": 0.05,
    "high": 0.2,
    "level": 0.95,
}


@pytest.fixture(scope="module")
def metrics(tmp_path_factory) -> dict:
    return json.loads((write_run(tmp_path_factory.mktemp("run")) / "metrics.json").read_text("utf-8"))


def written(folder: Path, content: dict, name: str = "metrics.json") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(content), "utf-8")
    return folder


def comparison(folder: Path, **changed: object) -> Path:
    draw = np.random.default_rng(0)
    examples = Examples(["a text"] * 9, TREE.leaves[draw.integers(7, size=9)])
    own = build_details(examples, TREE.leaves[draw.integers(7, size=(2, 9))], TREE)
    heads = ("flat", "hierarchical")
    results = {
        "heads": heads,
        "table": {head: {"accuracy": {"mean": 0.5, "std": 0.01}} for head in heads},
        "differences": [DIFFERENCE],
        "details": dict.fromkeys(heads, own),
    }
    return written(folder, results | changed, "results.json")


def test_a_training_that_diverged_is_reported(metrics, tmp_path):
    curve = [{**CURVE[0], "loss": NAN}, {**CURVE[1], "loss": BEYOND}, {**CURVE[2], "loss": 10**400}]
    metrics = {name: part for name, part in metrics.items() if name != "calibration"}
    test = metrics["test"] | {"nll": BEYOND, "hf": NAN, "tree_distance": 10**400, "ece": NAN}
    odd = metrics | {"test": test, "training": metrics["training"] | {"curve": curve}}
    page = Page(report_html([written(tmp_path / "odd", odd)]))
    assert [list(row) for row in page.data["runs"][0]["curve"]] == [["macro_f1", "accuracy", "hf"]] * 3
    assert "Negative log-likelihood" not in page.words
    assert "nan" not in page.words


@pytest.mark.parametrize(
    ("part", "place", "value"),
    [
        ("calibration", [0, "count"], [1, 2]),
        ("calibration", [0, "right"], 3),
        ("calibration", [0, "count"], [[1]]),
        ("calibration", [0, "count", 0], NAN),
        ("calibration", [0, "confidence", 0], -1),
        ("answers", ["right", 0, 0], NAN),
        ("answers", ["answered", 0, 0], 1e300),
        ("answers", ["thresholds"], 5),
        ("tree", ["support", 0], 2**64),
    ],
)
def test_impossible_numbers_raise_an_error_with_a_reason(metrics, tmp_path, part, place, value):
    odd = json.loads(json.dumps(metrics))
    at = odd["details"][part]
    for step in place[:-1]:
        at = at[step]
    at[place[-1]] = value
    with pytest.raises(InputError, match="the details of the run are invalid: expected"):
        report_html([written(tmp_path / "odd", odd)])


@pytest.mark.parametrize(
    "given", [7, [3], [DIFFERENCE | {"low": "x"}], [DIFFERENCE | {"high": 1e308}], [DIFFERENCE | {"head": 5}]]
)
def test_unreadable_differences_are_left_out(tmp_path, given):
    assert Page(report_html([comparison(tmp_path, differences=given)])).data["differences"] == []


def test_each_difference_of_two_comparisons_names_its_own_runs(tmp_path):
    page = Page(report_html([comparison(tmp_path / "a"), comparison(tmp_path / "b")]))
    assert [run["name"] for run in page.data["runs"]] == ["flat", "hierarchical", "flat (2)", "hierarchical (2)"]
    labels = [row["label"] for row in page.data["differences"]]
    assert labels == ["hierarchical − flat", "hierarchical (2) − flat (2)"]


def test_one_text_has_no_intervals(tmp_path):
    right, wrong = write_run(tmp_path / "right", texts=1, skill=50), write_run(tmp_path / "wrong", texts=1, skill=-50)
    page = Page(report_html([right, wrong]))
    assert "100.0\u202f% of the test texts get exactly the right class" in page.words
    assert "interval" not in page.words.split("Runs compared")[0]
    assert page.data["differences"] == []
    same = Page(report_html([right, right]))
    assert {row["mean"] for row in same.data["differences"]} == {0}
