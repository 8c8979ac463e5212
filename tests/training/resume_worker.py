"""Kills trainings at many moments and resumes them; run by test_resume as a script, which prints what became of each.

Every run is a fork of this process, so that the libraries load once.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import traceback
from pathlib import Path

import pytorch_lightning as pl
import torch

from arbormax.training import TrainingInterrupted, fit, state
from toy import TREE, examples, settings

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets its background jobs ignore Ctrl-C
EPOCHS, STEPS = 6, 5  # of every run, and of each epoch


class At(pl.Callback):
    """Does something at the given call of one of Lightning's hooks."""

    def __init__(self, hook, count, act):
        self.calls = 0

        def called(*args, **kwargs):
            self.calls += 1
            if self.calls == count:
                act()

        setattr(self, hook, called)


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def kill_in_write(where):
    """At the next write of a state, die with half of the file written, or just before or after it gets its name."""

    def act():
        if where == "half":
            write = state._HashingWriter.write
            state._HashingWriter.write = lambda self, data: (write(self, bytes(data)[: len(data) // 2]), kill())
        elif where == "before":  # the digests have their name already
            replace = os.replace
            os.replace = lambda source, target: kill() if str(target).endswith(".ckpt") else replace(source, target)
        else:
            replace = os.replace
            os.replace = lambda source, target: (replace(source, target), str(target).endswith(".ckpt") and kill())

    return act


def ask(sign, times=1):
    def act():
        for _ in range(times):
            os.kill(os.getpid(), sign)

    return act


def config(encoder, **given):
    # the one stops early, the other does not
    rate, patience = (0.2, 1) if encoder == "bag" else (0.03, EPOCHS)
    options = {"encoder_options": {"dropout": 0.3}, "schedule": "linear", "learning_rate": rate, "patience": patience}
    options["monitor"] = "macro_f1"
    return settings(encoder, epochs=EPOCHS, **{**options, **given})


def train(encoder, folder, callbacks=(), resume=False, **given):
    data, valid = examples(8 * STEPS), examples(18, seed=5)
    run = fit(
        config(encoder, **given), TREE, data, valid, folder=folder, resume=resume, callbacks=callbacks, every_steps=2
    )
    digest = hashlib.sha256()
    for _, value in sorted(run.model.state_dict().items()):
        digest.update(value.numpy().tobytes())
    return [digest.hexdigest(), run.epochs, run.best_epoch, run.valid_macro_f1]


def forked(work):
    """What `work` gives back or raises in a process of its own, or the signal that ended it."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        try:
            found = work()
        except BaseException as error:
            found = f"{type(error).__name__}: {error}"
            if not isinstance(error, (TrainingInterrupted, KeyboardInterrupt, SystemExit)):
                traceback.print_exc()
        os.write(write, json.dumps(found).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else json.loads(text)


STEP, EPOCH = "on_train_batch_end", "on_train_epoch_end"
MOMENTS = {
    "in the first step": [At("on_train_batch_start", 1, kill)],
    "after the first step": [At(STEP, 1, kill)],
    "in the middle of the first epoch": [At(STEP, 3, kill)],
    "at the last step of an epoch": [At(STEP, STEPS, kill)],
    "as validation starts": [At("on_validation_start", 2, kill)],
    "as validation ends": [At("on_validation_end", 2, kill)],
    "before the state of an epoch is saved": [At(EPOCH, 2, kill)],
    "as an epoch starts": [At("on_train_epoch_start", 3, kill)],
    "in the middle of a later epoch": [At(STEP, 2 * STEPS + 3, kill)],
    "halfway through the first write": [At(STEP, 1, kill_in_write("half"))],
    "halfway through a later write": [At(STEP, STEPS + 3, kill_in_write("half"))],
    "before a written state is put in place": [At(STEP, STEPS + 3, kill_in_write("before"))],
    "after a written state is put in place": [At(STEP, STEPS + 3, kill_in_write("after"))],
    "as training ends": [At("on_train_end", 1, kill)],
    "at the very end": [At("teardown", 1, kill)],
}
ASKED = {
    "interrupted in a step": [At(STEP, 3, ask(signal.SIGINT))],
    "terminated in a step": [At(STEP, 3, ask(signal.SIGTERM))],
    "interrupted at the last step of an epoch": [At(STEP, STEPS, ask(signal.SIGINT))],
    "interrupted during validation": [At("on_validation_start", 2, ask(signal.SIGINT))],
    "terminated during validation": [At("on_validation_start", 2, ask(signal.SIGTERM))],
    "interrupted as the last epoch ends": [At(EPOCH, 3, ask(signal.SIGINT))],
}


def main(encoder: str, root: Path) -> None:
    torch.set_num_threads(1)
    result = {"never stopped": forked(lambda: train(encoder, root / "whole"))}
    every = 1 if encoder == "bag" else 3  # the others are slower, and what differs is in their weights only
    for number, (moment, callbacks) in enumerate([*MOMENTS.items(), *ASKED.items()][::every]):
        folder = root / str(number)
        stopped = forked(lambda folder=folder, callbacks=callbacks: train(encoder, folder, callbacks))
        resumed = forked(lambda folder=folder: train(encoder, folder, resume=True))
        result[moment] = [stopped, resumed]
    folder = root / "often"
    stops = [
        forked(lambda: train(encoder, folder, [At(STEP, 4, kill)], resume=True)),
        forked(lambda: train(encoder, folder, [At("on_validation_end", 1, kill)], resume=True)),
        forked(lambda: train(encoder, folder, [At(STEP, 3, ask(signal.SIGINT))], resume=True)),
    ]
    result["stopped three times"] = [stops, forked(lambda: train(encoder, folder, resume=True))]
    result["resumed after the end"] = forked(lambda: train(encoder, root / "whole", resume=True))
    twice = [At("on_train_batch_start", 4, ask(signal.SIGINT, times=2))]
    result["asked twice"] = [
        forked(lambda: train(encoder, root / "twice", twice)),
        forked(lambda: train(encoder, root / "twice", resume=True)),
    ]
    result["without a folder"] = forked(lambda: train(encoder, None, [At(STEP, 3, ask(signal.SIGINT))]))
    result["terminated without a folder"] = forked(lambda: train(encoder, None, [At(STEP, 3, ask(signal.SIGTERM))]))
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
