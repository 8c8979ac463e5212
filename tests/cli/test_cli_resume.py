"""Training that is killed or stopped, and goes on."""

import os
import shlex
import signal
import time
from pathlib import Path

import pytest
from cli_tools import program, write_csv

# long enough to be stopped in the middle, whatever the machine
LONG = [
    "--epochs",
    "25",
    "--batch-size",
    "4",
    "--encoder",
    "bag",
    "-o",
    "dim=8",
    "--patience",
    "0",
    "--accelerator",
    "cpu",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("resume")
    write_csv(folder / "train.csv", 160)
    return folder


@pytest.fixture(scope="module")
def weights(folder):
    """Those of a training that was never stopped."""
    result = program("train", folder / "train.csv", "--out", folder / "whole", *LONG)
    assert result.returncode == 0, result.stderr
    return (folder / "whole" / "model.safetensors").read_bytes()


def stopped(words, out, sign, whom=lambda pid: pid):
    """A training that got this signal, or a process of `whom` it did, after its first states were saved."""
    process = program(*words, start=True)
    state = out / "checkpoints" / "last.ckpt"
    for _ in range(600):
        if state.exists() or process.poll() is not None:
            break
        time.sleep(0.05)
    time.sleep(0.3)
    assert process.poll() is None, process.communicate()
    os.kill(whom(process.pid), sign)
    output, errors = process.communicate(timeout=60)
    return process.returncode, output, errors


@pytest.mark.slow
def test_a_killed_and_resumed_training_has_the_same_weights(folder, weights):
    out = folder / "killed"
    words = ["train", folder / "train.csv", "--out", out, "--snapshot-steps", "3", *LONG]
    code, _, _ = stopped(words, out, signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert not (out / "config.json").exists()
    result = program(*words, "--resume")
    assert result.returncode == 0, result.stderr
    assert (out / "model.safetensors").read_bytes() == weights
    assert not (out / "checkpoints").exists()


def test_ctrl_c_exits_130_and_prints_the_command_to_resume(folder, weights, run, refused):
    out = folder / "stopped"
    words = ["train", folder / "train.csv", "--out", out, "--snapshot-steps", "3", *LONG]
    code, output, errors = stopped(words, out, signal.SIGINT)
    assert code == 130, errors
    assert output == ""
    assert all(line.startswith("epoch ") for line in errors.splitlines()[:-1])
    again = errors.strip().rpartition("resume with: ")[2]
    assert again.endswith("--resume")
    assert f"--out {out}" in again

    assert "--resume" in refused(*words)
    assert "unfinished" in refused("evaluate", out, folder / "train.csv")
    assert "seed was 0, now 5" in refused(*words, "--resume", "--seed", "5")

    result = run(*shlex.split(again.split("arbormax ", 1)[1]))
    assert result.code == 0, result.err
    assert (out / "model.safetensors").read_bytes() == weights


TWO = ["--devices", "2", "--strategy", "ddp"]


def second(pid):
    """The process that the first one started."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


@pytest.fixture(scope="module")
def weights_of_two(folder):
    result = program("train", folder / "train.csv", "--out", folder / "two", *LONG, *TWO)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert result.stdout.count("The model is in") == 1
    return (folder / "two" / "model.safetensors").read_bytes()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are found in /proc")
@pytest.mark.parametrize("lost", ["first", "second"])
def test_a_killed_worker_stops_the_training_which_can_be_resumed(folder, weights_of_two, lost):
    out = folder / f"{lost}-killed"
    words = ["train", folder / "train.csv", "--out", out, "--snapshot-steps", "3", *LONG, *TWO]
    code, output, errors = stopped(words, out, signal.SIGKILL, second if lost == "second" else lambda pid: pid)
    assert code == (1 if lost == "second" else -signal.SIGKILL)
    assert output == ""
    assert errors.startswith("arbormax: one of 2 processes ended unexpectedly, and the others stopped; ")
    assert len(errors.splitlines()) == 1
    if lost == "second":
        assert errors.strip().endswith("--resume")
    result = program(*words, "--resume")
    assert result.returncode == 0, result.stderr
    assert (out / "model.safetensors").read_bytes() == weights_of_two


@pytest.mark.slow
def test_ctrl_c_stops_both_processes_with_one_line(folder, weights_of_two):
    out = folder / "two-stopped"
    words = ["train", folder / "train.csv", "--out", out, "--snapshot-steps", "3", *LONG, *TWO]
    code, output, errors = stopped(words, out, signal.SIGINT)
    assert (code, output, len(errors.splitlines())) == (130, "", 1)
    result = program(*words, "--resume")
    assert result.returncode == 0, result.stderr
    assert (out / "model.safetensors").read_bytes() == weights_of_two


def test_a_data_file_that_has_changed_cannot_be_resumed(folder, refused, tmp_path):
    data = tmp_path / "train.csv"
    data.write_bytes((folder / "train.csv").read_bytes())
    out = tmp_path / "model"
    words = ["train", data, "--out", out, "--snapshot-steps", "3", *LONG]
    code, _, errors = stopped(words, out, signal.SIGKILL)
    assert code == -signal.SIGKILL, errors
    content = data.read_bytes()
    data.write_bytes(content.replace(b"owl", b"0wl", 1) if b"owl" in content else content[:-2] + b"x\n")
    assert "other training examples" in refused(*words, "--resume")
