"""Modules and classifiers after edits."""

import pytest
from many_heads import D
from torch import nn

import arbormax as am
from arbormax.errors import InputError, TaxonomyError

TREE = am.Taxonomy.from_nested({"mammal": ["cat", "cow"], "bird": [], "fish": ["trout", "carp", "cod"]})


def test_the_head_of_a_module_is_replaced_in_place():
    head = am.HierarchicalSoftmax(D, TREE)
    model = nn.ModuleDict({"body": nn.Linear(3, D), "head": head, "again": head})
    edited = am.edit(model).add("dog", under="mammal").done()
    assert edited.model is model
    assert model["head"] is model["again"] is edited.head
    assert model["head"].out_features == 7


def test_an_impossible_edit_changes_nothing():
    model = nn.Sequential(nn.Linear(3, D), am.FlatSoftmax(D, TREE))
    head = model[1]
    with pytest.raises(TaxonomyError):
        am.edit(model).add("dog", under="mammal").remove("no such").done()
    assert model[1] is head


def test_a_module_must_contain_one_known_head():
    with pytest.raises(InputError, match="found none"):
        am.edit(nn.Linear(2, 2))
    with pytest.raises(InputError, match="found 2: '0', '1'; edit one of the heads"):
        am.edit(nn.Sequential(am.FlatSoftmax(D, TREE), am.FlatSoftmax(D, TREE)))

    class Mine(am.FlatSoftmax):
        pass

    with pytest.raises(InputError, match="Mine cannot be edited"):
        am.edit(Mine(D, TREE))
    with pytest.raises(InputError, match="one that is not fitted"):
        am.edit(am.TextClassifier())
    with pytest.raises(InputError, match=f"expected {D} finite numbers"):
        am.edit(am.FlatSoftmax(D, TREE)).done(at=[1.0])


def test_a_text_classifier_works_with_the_edited_tree(tmp_path):
    texts, labels = ["a ball", "a goal", "rain", "snow"] * 5, ["sport", "sport", "weather", "weather"] * 5
    clf = am.TextClassifier({"news": ["sport", "weather"]}, encoder="bag", encoder_options={"dim": 8}).fit(
        texts, labels
    )
    before = clf.node_proba(["a ball"])[0]
    edited = am.edit(clf).split("weather", ["wet", "dry"]).add("art", under=(), share=0.1).done()
    assert edited.model is clf
    assert clf.classes_.tolist() == ["sport", "wet", "dry", "art"]
    assert clf.predict(["a ball and a goal"]).tolist() == ["sport"]
    after = clf.node_proba(["a ball"])[0]
    news, was = clf.taxonomy_.find("news"), 1
    assert after[clf.taxonomy_.find("sport")] / after[news] == pytest.approx(before[2] / before[was], rel=1e-5)
    again = am.TextClassifier.load(clf.save(tmp_path / "model"))
    assert again.taxonomy_ == clf.taxonomy_
    assert again.predict_proba(["snow"]).tolist() == clf.predict_proba(["snow"]).tolist()
