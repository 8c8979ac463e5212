"""Several processes train as one would with the joint batch, and one that is lost leaves a state to go on from."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import ddp_worker
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arbormax.data import Examples
from arbormax.data.batching import Batches, Shares
from arbormax.data.ragged import Ragged
from arbormax.errors import OptionError
from arbormax.model import TrainConfig
from arbormax.training import Hardware, fit
from toy import TREE

WORKER = Path(__file__).with_name("ddp_worker.py")


def ran(mode, folder):
    environment = {name: value for name, value in os.environ.items() if "RANK" not in name}
    return subprocess.run(
        [sys.executable, WORKER, mode, folder],
        capture_output=True,
        text=True,
        env={**environment, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=400,
    )


@pytest.mark.slow
def test_two_processes_have_the_loss_curve_of_one_with_the_joint_batch(tmp_path):
    done = ran("curves", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    result = json.loads(done.stdout)
    assert list(result) == list(ddp_worker.CASES)
    for case, (two, one) in result.items():
        assert len(one["losses"]) == 3 * 7, case
        assert two["losses"] == pytest.approx(one["losses"], abs=1e-5), case
        assert two["valid"] == pytest.approx(one["valid"], abs=1e-5), case
        assert two["weights"] == pytest.approx(one["weights"], abs=1e-4), case
        assert one["valid"][-1] < one["valid"][0], case


@pytest.mark.slow
def test_two_machines_train_as_two_devices_of_one(tmp_path):
    rows = [f"{label} word{i % 7},{label}" for i, label in enumerate(["a/x", "a/y", "b/z", "b/w"] * 30)]
    (tmp_path / "data.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "arbormax", "train", "data.csv", "--text", "text", "--label", "label"]
    command += ["--encoder", "bag", "--epochs", "2", "--accelerator", "cpu", "--strategy", "ddp"]
    usual = {name: value for name, value in os.environ.items() if "RANK" not in name} | {"OMP_NUM_THREADS": "1"}
    machines = [
        subprocess.Popen(
            [*command, "--num-nodes", "2", "--devices", "1", "--out", "machines"],
            cwd=tmp_path,
            env={**usual, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NODE_RANK": str(rank)},
        )
        for rank in range(2)
    ]
    assert [machine.wait(300) for machine in machines] == [0, 0]
    subprocess.run([*command, "--devices", "2", "--out", "devices"], cwd=tmp_path, env=usual, check=True, timeout=300)
    one, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("machines", "devices"))
    assert one == two


@pytest.mark.slow
def test_a_lost_process_stops_the_others_and_one_device_resumes(tmp_path):
    done = ran("killed", tmp_path)
    assert done.returncode == 1
    result = done.stderr.strip().splitlines()[-1]
    assert "WorkerLostError: one of 2 processes ended unexpectedly, and the others stopped; " in result
    last = tmp_path / "checkpoints" / "last.ckpt"
    assert result.endswith(f"the last saved state is {last}; try resume=True")
    assert torch.load(last, weights_only=True)["global_step"] == 8
    data = ddp_worker.data(53)
    with pytest.raises(OptionError, match="examples per step on all devices together was 8, now 4"):
        fit(ddp_worker.config(4), TREE, *data, folder=tmp_path, resume=True)
    resumed = fit(ddp_worker.config(8), TREE, *data, folder=tmp_path, resume=True)
    whole = fit(ddp_worker.config(8), TREE, *data)
    for mine, theirs in zip(resumed.model.parameters(), whole.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=0)


LENGTHS = st.lists(st.integers(0, 9), min_size=1, max_size=30)


@given(LENGTHS, st.integers(1, 6), st.integers(2, 4), st.booleans(), st.integers(0, 2))
def test_the_shares_of_a_step_are_the_batch_that_one_device_has(lengths, size, ranks, sort, epoch):
    rows = Ragged.from_lengths(np.ones(sum(lengths), dtype=np.int64), np.array(lengths))
    given = (rows, np.arange(len(rows)), lambda part: (torch.from_numpy(part.pad(0)),), size)
    options = {"shuffle": True, "sort": sort}
    courses = [Shares(*given, share=rank, shares=ranks, **options) for rank in range(ranks)]
    whole = Batches(*given, **options)
    for course in (*courses, whole):
        course.set_epoch(epoch)
    assert {len(course) for course in courses} == {len(whole)}
    for (_, batch), *shares in zip(whole, *courses, strict=True):
        items = [target for _, target, weight in shares if weight]
        assert sorted(torch.cat(items).tolist()) == sorted(batch.tolist())
        assert max(map(len, items)) - min(map(len, items)) <= 1
        mean = sum(weight * target.double().mean() for _, target, weight in shares) / ranks
        assert mean == pytest.approx(batch.double().mean())
        # what stands in for no items at all is of the batch, so that no other row gets a gradient
        assert all(set(target.tolist()) <= set(batch.tolist()) for _, target, _ in shares)


def test_devices_are_counted_over_all_machines():
    assert [Hardware("cpu", devices).ranks for devices in (1, "1", 2, "0,1", "3,", "0,2,5")] == [1, 1, 2, 2, 1, 3]
    assert Hardware("cpu", 2, num_nodes=3).ranks == 6
    assert Hardware("cpu", 1, num_nodes=2).several
    assert not Hardware("cpu", 1, "ddp").several


def test_one_process_starts_on_the_gpu_that_it_trains_on(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert [Hardware(name).first_device.type for name in ("auto", "gpu", "cuda", "cpu")] == ["cuda"] * 3 + ["cpu"]
    assert Hardware("cuda", 2).first_device.type == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert Hardware("auto").first_device.type == "cpu"


@pytest.mark.parametrize("devices", ["0,1", "-1", -1, "0", 0])
def test_invalid_cpu_devices_are_an_error_before_anything_is_written(devices, tmp_path):
    examples = Examples(["text"] * TREE.num_leaves, TREE.leaves)
    with pytest.raises(OptionError, match="devices: on a CPU, expected a positive number of processes"):
        fit(TrainConfig(), TREE, examples, folder=tmp_path / "run", hardware=Hardware("cpu", devices))
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_an_error():
    with pytest.raises(OptionError, match="accelerator: torch finds no GPU on this machine"):
        Hardware("gpu", 1).check()


def test_an_invalid_strategy_is_an_error():
    with pytest.raises(
        OptionError, match=r"strategy: expected 'auto', 'ddp' or 'ddp_spawn', found 'dpp'; did you mean 'ddp'"
    ):
        Hardware("cpu", 2, "dpp")
    with pytest.raises(
        OptionError, match="ddp_spawn starts processes on one machine, found num_nodes=2; try strategy='ddp'"
    ):
        Hardware("cpu", 2, "ddp_spawn", 2)
    with pytest.raises(OptionError, match="num_nodes: expected at least one machine, found 0"):
        Hardware("cpu", 2, num_nodes=0)
