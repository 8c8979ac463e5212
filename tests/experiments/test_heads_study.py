"""The study of heads: its records, intervals and page, with made-up texts and the labels of Reuters-8."""

import json
from pathlib import Path

import numpy as np
import pytest
from heads_study import jobs
from heads_study.page import arm_title, default_differences, page
from heads_study.plan import Arm, Job, arms
from heads_study.summary import read_records, summarise
from small_study import LABELS, put_split

from arbormax.errors import InputError

CPU = jobs.Machine({}, "cpu")
COMMAND = "python tables.py"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    put_split(tmp_path, "train", 96)
    put_split(tmp_path, "test", 48, seed=1)
    monkeypatch.setenv("ARBORMAX_DATA", str(tmp_path))
    jobs.read.cache_clear()
    return tmp_path


def put(results: Path, arm: str, seed: int, right: float) -> None:
    """A record whose predictions are right for a share of the test texts."""
    truth = np.arange(48) % len(LABELS)
    wrong = np.random.default_rng(seed).random(48) >= right
    predicted = np.where(wrong, (truth + 1) % len(LABELS), truth)
    record = {"dataset": "r8", "name": arm, "seed": seed, "accuracy": float(np.mean(predicted == truth))}
    record |= {"macro_f1": 0.5, "hf": 0.5, "nll": 1.0, "predicted": jobs.pack(predicted)}
    path = results / "r8" / "test" / f"{arm}-seed{seed}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))


@pytest.mark.parametrize("arm", [Arm("bag", "shared", names=True, path=0.3), Arm("tfidf", "blended"), Arm("svc-words")])
def test_a_training_becomes_a_record_with_its_predictions(data, tmp_path, arm):
    job = Job("r8", arm)
    jobs.write(jobs.run(job, CPU), job, tmp_path / "results")
    [record] = read_records(tmp_path / "results")["r8"][arm.name]
    predicted, truth = jobs.unpack(record["predicted"]), np.arange(48) % len(LABELS)
    assert np.mean(predicted == truth) == pytest.approx(record["accuracy"], abs=1e-6)
    assert record["accuracy"] > 0.5
    assert record["versions"]["torch"]
    assert record["settings"]["seed"] == 0


def test_choices_are_made_without_test_texts(data):
    for name in ("train", "test"):
        assert jobs.read("r8", "valid")[1:] != jobs.read("r8", name)[1:]
    _, inside, outside = jobs.read("r8", "valid")
    train = jobs.read("r8", "test")[1]
    assert sorted([*inside.inputs, *outside.inputs]) == sorted(train.inputs)


def test_an_arm_is_better_only_if_its_interval_excludes_zero(data, tmp_path):
    results = tmp_path / "results"
    for seed in range(2):
        put(results, "bag-flat", seed, 0.5)
        put(results, "bag-shared", seed, 1.0)
    put(results, "svc-words", 0, 1.0)
    [found] = summarise(read_records(results), results)
    row = found.difference("bag-shared", "bag-flat", "accuracy")
    assert row.verdict == "better"
    flat = found.arms["bag-flat"]["accuracy"][0]
    assert row.mean == pytest.approx(1 - flat, abs=1e-6)
    assert default_differences(found)["bag"]["accuracy"] == row
    assert found.difference("bag-shared", "svc-words", "accuracy")[3:] == (0, 0, 0)
    assert found.arms["bag-shared"]["top_accuracy"][0] == 1
    text = page([found], COMMAND, None)
    assert "| bag of words, shared | 2 | 100.0 ± 0.0 |" in text
    assert "bag of words, 1 dataset: accuracy better on 1 and worse on 0" in text.replace("Bag", "bag")


def test_stored_intervals_serve_without_the_texts(data, tmp_path, monkeypatch):
    results = tmp_path / "results"
    put(results, "bag-flat", 0, 0.5)
    put(results, "bag-shared", 0, 0.9)
    [first] = summarise(read_records(results), results)
    monkeypatch.setenv("ARBORMAX_DATA", str(tmp_path / "none"))
    [again] = summarise(read_records(results), results)
    assert again.current
    assert again.differences == first.differences
    put(results, "bag-shared", 1, 0.9)
    [old] = summarise(read_records(results), results)
    assert not old.current


def test_records_of_other_texts_and_damaged_records_are_refused(data, tmp_path):
    results = tmp_path / "results"
    put(results, "bag-flat", 0, 0.5)
    put(results, "bag-shared", 0, 0.9)
    put_split(data, "test", 40, seed=1)
    with pytest.raises(InputError, match="other test texts"):
        summarise(read_records(results), results)
    (results / "r8" / "test" / "bag-flat-seed0.json").write_text("{")
    with pytest.raises(InputError, match="not a record"):
        read_records(results)


def test_every_arm_has_a_title():
    names = [arm.name for model in ("minilm", "tfidf", "knn") for arm in arms(model)]
    assert len({arm_title(name) for name in names}) == len(names)
    assert arm_title("minilm-flat-names-path") == "MiniLM-L6, flat, texts of nodes, path loss"
