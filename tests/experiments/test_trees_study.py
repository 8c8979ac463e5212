"""The study of trees: its records, intervals and page, with made-up texts and the labels of Reuters-8."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_study import put_split
from trees_study import jobs
from trees_study.page import page, read_records
from trees_study.plan import FOLDS, STAGES

EXPERIMENT = Path(__file__).parents[2] / "experiments" / "trees"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    put_split(tmp_path, "train", 96)
    put_split(tmp_path, "test", 48, seed=1)
    monkeypatch.setenv("ARBORMAX_DATA", str(tmp_path))
    return tmp_path


def test_a_fold_is_trained_on_each_tree_once_and_measured_on_the_human_tree(data, capsys):
    out = data / "results"
    arms = [("flat", "flat"), ("human", "hierarchical"), ("shuffled", "hierarchical"), ("centroids", "blended")]
    for fold in (0, 1):
        jobs.run_fold("r8", fold, arms, out)
    records = read_records(out)["r8"]
    assert {name: len(rows) for name, rows in records.items()} == {f"{tree}-{head}": 2 for tree, head in arms}
    assert all(row["distance"] == 0 for row in records["human-hierarchical"])
    assert len({json.dumps([row["true"] for row in rows]) for rows in records.values()}) == 1
    capsys.readouterr()
    jobs.run_fold("r8", 0, arms, out)
    assert not capsys.readouterr().out  # nothing is trained again
    text = page({"r8": records}, out)
    assert "#### R8" in text
    assert "human − shuffled" in text
    assert page({"r8": records}, out) == text
    stored = json.loads((out / "r8" / "differences.json").read_text())
    assert "shuffled-hierarchical − human-hierarchical" in stored["differences"]


def test_folds_share_no_text(data):
    tree, examples = jobs.read("r8")
    folds = [jobs.split(tree, examples, fold) for fold in range(FOLDS)]
    tested = np.concatenate([np.flatnonzero(np.isin(examples.inputs, fold.test.inputs)) for fold in folds])
    assert len({*tested.tolist()}) == len(examples)
    for fold in folds:
        assert len(fold.train) + len(fold.test) == len(examples)


def test_the_results_on_the_page_are_those_of_the_records():
    """Without the data, the stored intervals must belong to the records."""
    command = [sys.executable, str(EXPERIMENT / "tables.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, f"run experiments/trees/tables.py: {result.stdout}{result.stderr}"


def test_every_stage_has_other_arms():
    arms = [arm for stage in STAGES for arm in stage]
    assert len({*arms}) == len(arms)
