"""The folds and the table of `benchmarks/defaults.py`."""

import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script():
    pytest.importorskip("sklearn")
    pytest.importorskip("simple_icd_10_cm")
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import defaults

        yield defaults
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


def test_titles_of_one_subcategory_are_in_one_fold_and_every_class_is_in_training(script):
    tax, train, _ = script.read("icd10cm", None, False)
    groups, folds = script.find_subcategories(tax, train), script.find_folds("icd10cm", tax, train, 3)
    pairs = {pair for pair in zip(groups.tolist(), folds.tolist(), strict=True) if pair[0] >= 0}
    assert len(pairs) == len(set(groups.tolist()) - {-1})
    assert (folds[groups < 0] == -1).all()
    for fold in range(3):
        assert 0.3 < (folds == fold).mean() < 0.36
        assert len(np.unique(train.nodes[folds != fold])) == tax.num_leaves


def test_the_table_shows_contenders_without_probabilities(script):
    row = {"dataset": "trec", "contender": "svc-words", "nll": "", "cpu_seconds": 2.0}
    row |= {"accuracy": 0.5, "macro_f1": 0.25, "hf": 1.0}
    assert script.table([row])[-1].endswith("| **50.00** | **25.00** | **100.00** |  | 2.0 |")


def test_a_tree_cut_at_a_level_keeps_its_names_and_texts(script):
    nested = {"animal": {"bird": ["owl", "hen"], "fish": ["cod"]}, "stone": []}
    tax = script.am.Taxonomy.from_nested(nested).with_texts({"bird": "has wings"})
    examples = script.Examples(["hoo", "blub", "grey"], tax.find_many(["owl", "cod", "stone"]))
    short = script.cut(script.Task("zoo", "0", tax, examples, examples), 2)
    assert short.name == "zoo-level2"
    assert sorted(short.tax.classes) == ["bird", "fish", "stone"]
    assert [short.tax.label(node) for node in short.train.nodes] == ["bird", "fish", "stone"]
    assert short.tax.texts[short.tax.find("bird")] == "has wings"
