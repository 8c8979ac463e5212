"""Trains on two devices and tells what each of them and the caller came to; run by test_devices as a script."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import pytorch_lightning as pl
import torch

from arbormax.studies import evaluate
from arbormax.training import Hardware, fit
from toy import TREE, examples, settings


def digest(model) -> str:
    data = b"".join(value.cpu().numpy().tobytes() for _, value in sorted(model.state_dict().items()))
    return hashlib.sha256(data).hexdigest()


class Tell(pl.Callback):
    """Each rank's validation measures and final weights, in a file of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.scores, self.steps = folder, [], 0

    def on_train_batch_end(self, *_):
        self.steps += 1

    def on_validation_end(self, trainer, module):
        self.scores.append([float(trainer.callback_metrics[f"valid/{name}"]) for name in ("macro_f1", "accuracy")])

    def teardown(self, trainer, module, stage):
        result = {"scores": self.scores, "steps": self.steps, "weights": digest(module.model)}
        (self.folder / f"rank{trainer.global_rank}.json").write_text(json.dumps(result))


def result(run, valid) -> dict[str, object]:
    return {
        "weights": digest(run.model),
        "finite": all(bool(parameter.isfinite().all()) for parameter in run.model.parameters()),
        "epochs": run.epochs,
        "best_epoch": run.best_epoch,
        "valid_macro_f1": run.valid_macro_f1,
        "seconds": run.seconds,
        "measured_macro_f1": evaluate(run.model, valid).metrics["macro_f1"],
    }


def main(encoder: str, folder: Path) -> None:
    torch.set_num_threads(1)
    config, train, valid = settings(encoder, epochs=6, schedule="linear"), examples(70), examples(31, seed=5)
    two = {"folder": folder / "run", "hardware": Hardware("cpu", 2)}
    run = fit(config, TREE, train, valid, callbacks=[Tell(folder)], **two)
    ranks = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]
    again = fit(config, TREE, train, valid, resume=True, **two)
    print(json.dumps({"run": result(run, valid), "again": result(again, valid), "ranks": ranks}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
