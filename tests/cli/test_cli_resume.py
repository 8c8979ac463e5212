"""Training that is killed or stopped, and goes on."""

import shlex
import signal
import time

import pytest
from cli_tools import program, write_csv

# long enough to be stopped in the middle, whatever the machine
LONG = ["--epochs", "25", "--batch-size", "4", "-o", "dim=8", "--patience", "0", "--accelerator", "cpu"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("resume")
    write_csv(folder / "train.csv", 160)
    return folder


@pytest.fixture(scope="module")
def weights(folder):
    """Those of a training that was never stopped."""
    told = program("train", folder / "train.csv", "--out", folder / "whole", *LONG)
    assert told.returncode == 0, told.stderr
    return (folder / "whole" / "model.safetensors").read_bytes()


def stopped(words, out, sign):
    """A training that got this signal after its first states were saved."""
    process = program(*words, start=True)
    state = out / "checkpoints" / "last.ckpt"
    for _ in range(600):
        if state.exists() or process.poll() is not None:
            break
        time.sleep(0.05)
    time.sleep(0.3)
    assert process.poll() is None, process.communicate()
    process.send_signal(sign)
    output, errors = process.communicate(timeout=60)
    return process.returncode, output, errors


def test_a_training_killed_and_resumed_ends_with_the_weights_of_one_never_killed(folder, weights):
    out = folder / "killed"
    words = ["train", folder / "train.csv", "--out", out, "--snapshot-steps", "3", *LONG]
    code, _, _ = stopped(words, out, signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert not (out / "config.json").exists()
    told = program(*words, "--resume")
    assert told.returncode == 0, told.stderr
    assert (out / "model.safetensors").read_bytes() == weights
    assert not (out / "checkpoints").exists()


def test_ctrl_c_exits_130_and_says_how_to_go_on(folder, weights, run, refused):
    out = folder / "stopped"
    words = ["train", folder / "train.csv", "--out", out, "--snapshot-steps", "3", *LONG]
    code, output, errors = stopped(words, out, signal.SIGINT)
    assert code == 130, errors
    assert output == ""
    assert len(errors.splitlines()) == 1
    again = errors.strip().rpartition("go on with: ")[2]
    assert again.endswith("--resume")
    assert f"--out {out}" in again

    assert "--resume" in refused(*words)
    assert "unfinished" in refused("evaluate", out, folder / "train.csv")
    assert "seed was 0, now 5" in refused(*words, "--resume", "--seed", "5")

    told = run(*shlex.split(again.split("arbormax ", 1)[1]))
    assert told.code == 0, told.err
    assert (out / "model.safetensors").read_bytes() == weights
