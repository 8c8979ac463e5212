"""The study of uncertainty: its splits and measures against plain loops, and its tables are up to date."""

import importlib
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from arbormax.metrics import evaluate
from toy import TREE, examples

FOLDER = Path(__file__).parents[2] / "experiments" / "probabilities"


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    yield importlib.import_module("uncertainty")
    for name in ("uncertainty", "uncertainty_tables", "tables"):
        sys.modules.pop(name, None)


def test_unknown_branches_are_in_no_training_text(study, monkeypatch):
    train, test = examples(120), examples(60, seed=1)
    monkeypatch.setattr(study, "load", lambda _: SimpleNamespace(taxonomy=TREE, train=train, test=test))
    monkeypatch.setattr(study, "UNKNOWN", (0.1, 0.4))
    split = study.make_split("bag:toy", 0)
    assert split.branches == ("plant",)
    assert set(split.tax.classes) == {"owl", "hen", "cod", "eel"}
    texts = [*split.train.inputs, *split.valid.inputs, *split.known.inputs]
    assert not any("oakish" in text or "ryeish" in text for text in texts)
    assert all("oakish" in text or "ryeish" in text for text in split.unknown.inputs)
    assert len(split.known) + len(split.unknown) == len(test)
    for text, node in zip(split.known.inputs, split.known.nodes, strict=True):
        assert f"{split.tax.names[node]}ish" in text


def test_the_measures_are_those_of_plain_loops(study):
    torch.manual_seed(0)
    import arbormax as am

    logp = am.functional.node_log_probs(2 * torch.randn(60, TREE.num_nodes - 1), TREE)
    epistemic = np.random.default_rng(0).random(60)
    known, unknown = (study.Scores(logp[part], epistemic[part]) for part in (slice(40), slice(40, 60)))
    truth = examples(40).nodes
    split = SimpleNamespace(tax=TREE, known=SimpleNamespace(nodes=truth))
    found = study.measure(known, unknown, split)
    p = logp[:, TREE.leaves.copy()].exp().numpy()
    predicted = TREE.leaves[p[:40].argmax(1)]
    assert found["accuracy"] == evaluate(truth, predicted, TREE)["accuracy"]
    assert found["nll"] == pytest.approx(-logp[np.arange(40), truth].mean().item(), abs=1e-5)
    surest = np.argsort(-p[:40].max(1))[:32]
    assert found["accuracy_80"]["max_probability"] == pytest.approx((predicted == truth)[surest].mean())
    wins = [(one < other) + 0.5 * (one == other) for one in epistemic[:40] for other in epistemic[40:]]
    assert found["auroc"]["epistemic"] == pytest.approx(np.mean(wins))
    np.testing.assert_allclose(known.total(TREE), -(p[:40] * np.log(p[:40])).sum(1), rtol=1e-4)


def test_the_tables_are_up_to_date():
    command = [sys.executable, FOLDER / "uncertainty_tables.py", "--check"]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
