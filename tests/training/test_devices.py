"""Training on two devices, here two processes of one CPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("devices_worker.py")


@pytest.fixture(scope="module", params=["lstm", "bag"])
def result(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    done = subprocess.run(
        [sys.executable, WORKER, request.param, folder],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_all_devices_have_the_weights_of_the_result(result):
    weights = [rank["weights"] for rank in result["ranks"]]
    assert weights == [result["run"]["weights"]] * 2
    assert result["run"]["finite"]


@pytest.mark.slow
def test_the_devices_share_an_epoch_in_equally_many_steps(result):
    # 70 texts are 9 batches of 8, of which each device takes 5; 6 epochs
    assert [rank["steps"] for rank in result["ranks"]] == [30, 30]


@pytest.mark.slow
def test_measures_are_over_the_texts_of_all_devices(result):
    first, second = (rank["scores"] for rank in result["ranks"])
    assert first == second
    best = max(score for score, _ in first)
    assert result["run"]["valid_macro_f1"] == pytest.approx(best)
    assert result["run"]["measured_macro_f1"] == pytest.approx(best)


@pytest.mark.slow
def test_each_text_counts_once_from_the_first_epoch_on(result):
    right = [31 * accuracy for _, accuracy in result["ranks"][0]["scores"]]
    assert right == pytest.approx([round(count) for count in right], abs=1e-3)


@pytest.mark.slow
def test_the_caller_receives_the_learning_curve(result):
    run = result["run"]
    scores = [score for score, _ in result["ranks"][0]["scores"]]
    assert run["epochs"] == len(scores) == 6
    assert run["best_epoch"] == scores.index(max(scores)) + 1
    assert run["seconds"] > 0


@pytest.mark.slow
def test_a_finished_run_is_resumed_to_the_same_weights(result):
    same = ("weights", "epochs", "best_epoch", "valid_macro_f1")
    assert [result["again"][name] for name in same] == [result["run"][name] for name in same]
