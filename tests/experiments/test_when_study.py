"""The study of when the tree helps: its trees and labels, its records, and its page."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_study import put_split
from when_study import summary, training
from when_study.page import page
from when_study.plan import Job, jobs
from when_study.summary import read_records, summarise
from when_study.trees import make_labels, make_tree

import arbormax as am
from arbormax.data.datasets import load_split, load_taxonomy

TAX = am.Taxonomy.from_nested({"a": {"b": ["x", "y"], "c": ["z"]}, "d": ["v", "w"]})
CLASSES = np.arange(40) % TAX.num_leaves


@pytest.mark.parametrize("kind", ["full", "shuffled", "levels2"])
def test_a_class_keeps_its_number_in_every_tree(kind):
    tree = make_tree(TAX, kind, seed=1)
    assert list(tree.classes) == [f"class {number}" for number in range(5)]


def test_a_shuffled_tree_has_the_same_shape():
    tree = make_tree(TAX, "shuffled", seed=3)
    assert sorted(len(tree.path(leaf)) for leaf in tree.leaves) == sorted(len(TAX.path(leaf)) for leaf in TAX.leaves)
    paths = {seed: [make_tree(TAX, "shuffled", seed).path(leaf) for leaf in range(1, 9)] for seed in range(5)}
    assert len({str(found) for found in paths.values()}) > 1


def test_levels_cut_the_tree():
    tree = make_tree(TAX, "levels2", seed=0)
    assert [tree.path(leaf)[0] for leaf in tree.leaves] == ["a", "a", "a", "d", "d"]
    assert tree.depth == 2


def test_larger_shares_contain_smaller_ones():
    known = {}
    for share in (0.1, 0.5, 1.0):
        places, labels = make_labels(TAX, CLASSES, share, "dropped", seed=2)
        assert len(places) == round(share * len(CLASSES))
        assert labels == [TAX.path(TAX.leaves[CLASSES[place]]) for place in places]
        known[share] = set(places.tolist())
    assert known[0.1] < known[0.5] < known[1.0]


def test_other_texts_have_coarse_labels():
    places, labels = make_labels(TAX, CLASSES, 0.5, "parent", seed=0)
    assert len(places) == len(CLASSES)
    assert {("a", "b"), ("a", "c"), ("d",)} < set(labels)
    places, labels = make_labels(TAX, CLASSES, 0.5, "grandparent", seed=0)
    assert 20 < len(places) < 40  # the grandparent of v and w is the root
    assert ("a",) in labels


def test_the_plan_has_no_training_twice():
    for dataset in ("trec", "soc2020"):
        for model in ("tfidf", "minilm"):
            files = [job.file for job in jobs(dataset, model, 2)]
            assert len(files) == len(set(files))
            assert not any(dataset == "trec" and "grandparent" in file for file in files)


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two seeds of four configurations on made-up texts with the labels of Reuters-8."""
    put_split(tmp_path, "train", 96)
    put_split(tmp_path, "test", 48, seed=1)
    monkeypatch.setenv("ARBORMAX_DATA", str(tmp_path))
    monkeypatch.setattr(summary, "DATASETS", ("r8",))
    training.read.cache_clear()
    one = Job("r8", "tfidf", "hierarchical")
    for job in (one, replace(one, head="flat"), replace(one, share=0.25, rest="parent"), replace(one, tree="shuffled")):
        for seed in range(2):
            found = training.run(replace(job, seed=seed), "")
            path = tmp_path / "results" / replace(job, seed=seed).file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(found))
    return tmp_path / "results"


def test_records_become_a_page(records, monkeypatch):
    [found] = summarise(read_records(records), records)
    key = ("tfidf", "hierarchical", "full")
    row = found.difference(key, ("tfidf", "flat", "full"), "accuracy")
    assert row.seeds == 2
    assert row.low <= row.mean <= row.high
    assert found.difference(key, ("tfidf", "hierarchical", "shuffled"), "macro_f1")
    assert found.seeds[("tfidf", "hierarchical", "0.25-parent")] == 2
    assert found.means[key]["accuracy"] > 0.5
    text = page([found._replace(name="trec")], "Use the tree.", "python tables.py", None)
    assert "Use the tree." in text
    assert "| TREC | TF-IDF, convex solver | hierarchical | tree − shuffled tree |" in text
    monkeypatch.setenv("ARBORMAX_DATA", str(records / "none"))
    [again] = summarise(read_records(records), records)
    assert again == found


def test_coarse_labels_are_used(records):
    """Three quarters of the training texts have a coarse label, and the classes are still told apart."""
    [record, _] = read_records(records)["r8"][("tfidf", "hierarchical", "0.25-parent")]
    assert record["examples"] == 96
    tax, test = load_taxonomy("r8"), load_split("r8", "test")
    assert record["accuracy"] > 1 / tax.num_leaves
    assert len(test.inputs) == 48
