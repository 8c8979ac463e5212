"""A training that is stopped, at whatever moment, ends with the very weights of one that never was."""

import hashlib
import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from arbormax import Taxonomy
from arbormax.data.examples import Examples
from arbormax.errors import InputError, OptionError
from arbormax.training import fit
from toy import TREE, examples, same_weights, settings

WORKER = Path(__file__).with_name("resume_worker.py")


@pytest.fixture(scope="module", params=["bag", pytest.param("bilstm", marks=pytest.mark.slow)])
def result(request, tmp_path_factory):
    """What became of every run that the worker stopped and resumed."""
    folder = tmp_path_factory.mktemp(request.param)
    done = subprocess.run(
        [sys.executable, WORKER, request.param, folder],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    return request.param, json.loads(done.stdout.splitlines()[-1])


def test_a_killed_training_resumes_to_the_same_weights(result):
    encoder, runs = result
    whole = runs.pop("never stopped")
    killed = {moment: run for moment, run in runs.items() if run[0] == "signal 9"}
    assert len(killed) == (15 if encoder == "bag" else 5)
    assert {moment: run[1] for moment, run in killed.items()} == dict.fromkeys(killed, whole)
    runs["never stopped"] = whole
    # of the two, the one stops early
    assert (whole[1] < 6) is (encoder == "bag")


def test_an_interrupted_training_saves_and_resumes_to_the_same_weights(result):
    encoder, runs = result
    asked = {
        moment: run
        for moment, run in runs.items()
        if str(run[0]).startswith("TrainingInterrupted: interrupted; the state is saved in")
    }
    assert len(asked) == (6 if encoder == "bag" else 2)
    assert {moment: run[1] for moment, run in asked.items()} == dict.fromkeys(asked, runs["never stopped"])


def test_a_training_can_be_interrupted_several_times(result):
    _, runs = result
    stops, resumed = runs["stopped three times"]
    assert stops[:2] == ["signal 9", "signal 9"]
    assert "TrainingInterrupted" in stops[2]
    assert resumed == runs["never stopped"]


def test_resuming_a_finished_training_returns_the_same_result(result):
    _, runs = result
    assert runs["resumed after the end"] == runs["never stopped"]


def test_a_second_interrupt_stops_at_once_and_the_run_can_be_resumed(result):
    _, runs = result
    stopped, resumed = runs["asked twice"]
    assert stopped.startswith(("SystemExit", "KeyboardInterrupt"))
    assert resumed == runs["never stopped"]


def test_without_a_folder_an_interrupt_ends_the_training(result):
    _, runs = result
    assert runs["without a folder"].startswith(("SystemExit", "KeyboardInterrupt"))


def test_without_a_folder_sigterm_ends_the_program_with_the_status_of_shells(result):
    _, runs = result
    assert runs["terminated without a folder"] == "SystemExit: 143"


@pytest.fixture
def finished(tmp_path):
    """The folder of a run, and how to call for it again with something else."""
    config, data = settings(epochs=2), examples(24)
    first = fit(config, TREE, data, folder=tmp_path)

    def again(config=config, tree=TREE, data=data, valid=None, resume=True):
        return fit(config, tree, data, valid, folder=tmp_path, resume=resume)

    return tmp_path / "checkpoints" / "last.ckpt", first, again


def test_a_second_run_does_not_overwrite_an_unfinished_one(finished):
    with pytest.raises(
        OptionError, match="contains an unfinished run; resume it or choose another folder; try resume=True"
    ):
        finished[2](resume=False)


def test_resume_without_a_checkpoint_starts_a_training(tmp_path):
    config, data = settings(epochs=2), examples(24)
    resumed = fit(config, TREE, data, folder=tmp_path / "new", resume=True)
    assert same_weights(resumed.model, fit(config, TREE, data).model)


def test_resuming_another_run_is_an_error_with_the_differences(finished):
    _, _, again = finished
    with pytest.raises(OptionError, match=r"epochs was 2, now 3; .*gamma was 0.0, now 1.0"):
        again(config=settings(epochs=3, gamma=1.0))
    with pytest.raises(OptionError, match=r"encoder_options was \{'dim': 8"):
        again(config=settings(epochs=2, encoder="bag", encoder_options={"dim": 9}))
    with pytest.raises(OptionError, match=r"another run.*: another taxonomy"):
        again(tree=Taxonomy.from_paths([TREE.path(leaf) for leaf in TREE.leaves[::-1]]), data=examples(24))
    with pytest.raises(OptionError, match=r"another run.*: other training examples"):
        again(data=examples(24, seed=1))
    with pytest.raises(OptionError, match=r"another run.*: other training examples"):
        again(data=Examples(examples(24).inputs, np.roll(examples(24).nodes, 1)))
    with pytest.raises(OptionError, match=r"another run.*: other validation examples"):
        again(valid=examples(6))


def test_texts_split_at_another_place_are_other_examples(tmp_path):
    nodes = TREE.leaves[:2]
    config = settings(epochs=1, validation=0)
    fit(config, TREE, Examples(["a\0b", "c"], nodes), folder=tmp_path)
    with pytest.raises(OptionError, match="other training examples"):
        fit(config, TREE, Examples(["a", "b\0c"], nodes), folder=tmp_path, resume=True)


@pytest.mark.parametrize("keep", [0, 1, 100, 0.5, -1])
def test_an_incomplete_checkpoint_is_an_error_with_a_hint(finished, keep):
    path, first, again = finished
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep) if isinstance(keep, float) else keep])
    result = f"{re.escape(str(path))} does not have the digest in last.sha256: it was changed or damaged; remove it"
    with pytest.raises(InputError, match=result):
        again()
    path.unlink()
    assert same_weights(again().model, first.model)


@given(position=st.integers(min_value=0), bit=st.integers(0, 7))
@hypothesis_settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_flipped_bit_in_a_checkpoint_is_an_error(finished, position, bit):
    path, _, again = finished
    data = path.read_bytes()
    flipped = bytearray(data)
    flipped[position % len(data)] ^= 1 << bit
    path.write_bytes(flipped)
    try:
        with pytest.raises(InputError, match=r"last\.ckpt does not have the digest in last\.sha256"):
            again()
    finally:
        path.write_bytes(data)


def test_a_checkpoint_without_its_digest_is_an_error(finished):
    path, _, again = finished
    for content in (b"", b"\xff"):
        path.with_suffix(".sha256").write_bytes(content)
        with pytest.raises(InputError, match=r"does not have the digest in last\.sha256"):
            again()
    path.with_suffix(".sha256").unlink()
    with pytest.raises(InputError, match=r"does not have the digest in last\.sha256"):
        again()


@pytest.mark.parametrize("content", ["{", "[]", "null", "", "\udcff", None])
def test_a_damaged_record_of_the_run_is_an_error_with_a_hint(finished, content):
    path, _, again = finished
    record = path.with_name("run.json")
    record.unlink() if content is None else record.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=r"run\.json.*; remove .*checkpoints to train from the beginning"):
        again()


def test_a_second_process_cannot_train_in_the_same_folder(tmp_path):
    held = tmp_path / "checkpoints" / "lock"
    script = f"""
import pathlib, sys
from arbormax._locks import lock_folder
with lock_folder(pathlib.Path({str(held)!r})):
    print("locked", flush=True)
    sys.stdin.read()
"""
    holder = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ}
    )
    assert holder.stdout.readline() == b"locked\n"
    for resume in (False, True):
        with pytest.raises(OptionError, match=rf"is in use by process {holder.pid} on .* since .*another folder"):
            fit(settings(epochs=2), TREE, examples(24), folder=tmp_path, resume=resume)
    assert held.exists()
    holder.kill()  # its lock remains as a file, and is taken over
    holder.communicate()
    assert str(holder.pid) in held.read_text()
    fit(settings(epochs=2), TREE, examples(24), folder=tmp_path)
    assert str(os.getpid()) in held.read_text()


class Malice:
    def __init__(self, mark):
        self.mark = str(mark)

    def __reduce__(self):
        return os.mkdir, (self.mark,)


@pytest.mark.parametrize("form", ["torch", "pickle"])
def test_a_checkpoint_with_code_is_an_error(finished, form, tmp_path):
    path, _, again = finished
    mark = tmp_path / "was-here"
    state = torch.load(path, weights_only=True)
    state["callbacks"]["extra"] = Malice(mark)
    if form == "torch":
        torch.save(state, path)
    else:
        path.write_bytes(pickle.dumps(Malice(mark), protocol=2))
    path.with_suffix(".sha256").write_text(hashlib.sha256(path.read_bytes()).hexdigest())
    with pytest.raises(InputError, match="is not a complete checkpoint of arbormax"):
        again()
    assert not mark.exists()
    torch.load(path, weights_only=False) if form == "torch" else pickle.loads(path.read_bytes())
    assert mark.exists(), "the test itself is broken"


def test_the_time_of_a_finished_training_does_not_grow(finished):
    _, first, again = finished
    assert 0 < again().seconds <= first.seconds


def test_the_logs_of_all_starts_remain(finished):
    path, _, again = finished
    logs = path.parent.parent / "logs"
    before = (logs / "metrics.csv").read_text()
    again()
    assert (logs / "metrics-1.csv").read_text() == before


def test_only_the_checkpoint_and_its_record_remain(finished):
    path, _, _ = finished
    assert sorted(file.name for file in path.parent.iterdir()) == ["last.ckpt", "last.sha256", "lock", "run.json"]
