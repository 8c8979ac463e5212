"""Patches: edits in a file, applied to a tree, a head or a model."""

import json

import pytest

import arbormax as am
from arbormax.errors import InputError, TaxonomyError
from arbormax.taxonomy.edits import TaxonomyEdits
from arbormax.taxonomy.edits.patch import make_patch, write_patch

TREE = am.Taxonomy.from_nested({"mammal": ["cat", "owl"], "bird": ["hen"], "fish": ["cod"]})
EDITS = [
    {"kind": "move", "node": ["mammal", "owl"], "under": ["bird"]},
    {"kind": "add", "name": "dog", "under": ["mammal"], "text": "a pet"},
    {"kind": "split", "leaf": ["fish", "cod"], "names": ["young", "old"]},
    {"kind": "rename", "node": "bird", "name": "birds"},
    {"kind": "merge", "node": "old", "into": ["fish", "cod", "young"]},
    {"kind": "remove", "node": "hen"},
]


def test_a_patch_makes_the_same_tree_as_the_calls(tmp_path):
    calls = (
        am.edit(TREE)
        .move("owl", under="bird")
        .add("dog", under="mammal", text="a pet")
        .split("cod", ["young", "old"])
        .rename("bird", "birds")
        .merge("old", into="young")
        .remove("hen")
    )
    patch = make_patch(TREE, EDITS)
    write_patch(tmp_path / "patch.json", patch)
    expected = calls.done().taxonomy
    assert am.edit(TREE).apply(patch).done().taxonomy == expected
    assert TaxonomyEdits(TREE).apply(tmp_path / "patch.json").done().taxonomy == expected


def test_a_patch_edits_a_head_and_keeps_other_rows():
    head = am.HierarchicalSoftmax(4, TREE)
    edited = am.edit(head).apply(make_patch(TREE, EDITS[:1])).done()
    assert edited.taxonomy.path(edited.taxonomy.find("owl")) == ("bird", "owl")
    old, new = TREE.find("fish"), edited.taxonomy.find("fish")  # the rows on the paths of a move are fitted
    assert edited.head.weight[new - 1].equal(head.weight[old - 1])


def test_a_patch_for_another_tree_is_refused():
    other = am.Taxonomy.from_nested({"mammal": ["cat", "owl"], "bird": ["hen"]})
    patch = make_patch(TREE, EDITS[:1])
    with pytest.raises(TaxonomyError, match="was made for another taxonomy than this one, of 3 classes"):
        am.edit(other).apply(patch)
    del patch["taxonomy"]
    assert am.edit(other).apply(patch).done().taxonomy.path(other.find("owl")) != ("mammal", "owl")


def test_an_impossible_edit_of_a_patch_is_named():
    edits = [EDITS[0], {"kind": "remove", "node": "dodo"}]
    with pytest.raises(TaxonomyError, match=r"edit 1 of the patch, remove\('dodo'\): .*no node 'dodo'"):
        am.edit(TREE).apply(make_patch(TREE, edits)).done()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "is not a patch: expected an object with format"),
        ({"format": "arbormax taxonomy patch 1", "edits": {}}, "is not a patch"),
        (make_patch(TREE, [{"kind": "mov"}]), r"edit 0: expected an object with a kind \(add, remove, .* found"),
        (make_patch(TREE, [{"kind": "move", "node": "owl"}]), "edit 0: move needs 'under'"),
        (make_patch(TREE, [{**EDITS[0], "shar": 1}]), "edit 0: move has no 'shar'; did you mean 'share'?"),
        (make_patch(TREE, [{"kind": "add"}, {"kind": "rename"}]), "has defects"),
    ],
)
def test_a_defect_of_a_patch_is_an_error(content, message, tmp_path):
    with pytest.raises(TaxonomyError, match=message):
        am.edit(TREE).apply(content)
    (tmp_path / "patch.json").write_text(json.dumps(content))
    with pytest.raises(TaxonomyError, match=message):
        am.edit(TREE).apply(tmp_path / "patch.json")


def test_a_file_that_is_no_json_is_an_error(tmp_path):
    (tmp_path / "patch.json").write_text("move owl")
    with pytest.raises((TaxonomyError, InputError), match="is not valid JSON"):
        am.edit(TREE).apply(tmp_path / "patch.json")
