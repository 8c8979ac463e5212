"""Trains in two processes that both run this script, as `--strategy ddp` does; run by test_distributed.

`curves` compares them with one process that has the joint batch, `killed` ends the second process in the middle.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytorch_lightning as pl
import torch

from arbormax.training import Hardware, fit
from arbormax.training.distributed import is_first_process
from toy import TREE, examples, settings

TWO = Hardware("cpu", 2, "ddp")
PLAIN = {"encoder_options": {"dropout": 0.0}, "epochs": 3, "schedule": "linear", "adam_epsilon": 1e-4}
# what is trained, and on how many texts: with 53 the last step has 5 of 8, with 49 one, and the second process none
CASES = {
    "bag, dense head": (53, {"encoder": "bag"}),
    "bag, sparse head": (49, {"encoder": "bag", "sparse_head": True}),
    "lstm, dense head": (49, {"encoder": "lstm", "clip": 0.1}),
    "bilstm, sparse head": (53, {"encoder": "bilstm", "sparse_head": True, "inner": 0.3, "class_weight": "balanced"}),
}


class Curve(pl.Callback):
    """The loss of every step as it is logged."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def on_train_start(self, trainer, _):
        trainer.log_every_n_steps = 1

    def on_train_batch_end(self, trainer, *_):
        self.losses.append(float(trainer.logged_metrics["train/loss"]))


class Killed(pl.Callback):
    """Ends the second process in one of its steps."""

    def on_train_batch_start(self, trainer, *_):
        if trainer.global_rank == 1 and trainer.global_step == 9:
            os.kill(os.getpid(), signal.SIGKILL)


def data(count, inner=0.0):
    return examples(count, inner=inner), examples(13, seed=5)


def config(batch_size, **given):
    given.pop("inner", None)
    return settings(batch_size=batch_size, **{**PLAIN, **given})


def trained(name, batch_size, hardware):
    count, given = CASES[name]
    curve = Curve()
    run = fit(
        config(batch_size, **given), TREE, *data(count, given.get("inner", 0.0)), hardware=hardware, callbacks=[curve]
    )
    weights = torch.cat([value.flatten().double() for value in run.model.state_dict().values()]).tolist()
    return {"losses": curve.losses, "weights": weights, "valid": [epoch["loss"] for epoch in run.curve]}


def main(mode: str, folder: Path) -> None:
    torch.set_num_threads(1)
    if mode == "killed":
        fit(config(4), TREE, *data(53), folder=folder, hardware=TWO, callbacks=[Killed()], every_steps=4)
        return
    result = {name: [trained(name, 4, TWO)] for name in CASES}
    if is_first_process():
        for name, runs in result.items():
            runs.append(trained(name, 8, Hardware("cpu")))
        print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
