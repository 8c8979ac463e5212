"""The comparison of trees, and the refinement of one, on small tasks."""

import numpy as np
import pytest

import arbormax as am
from arbormax.data.examples import Examples
from arbormax.errors import InputError, LabelError, OptionError
from arbormax.induce import flatten, shuffle_classes
from arbormax.model import TrainConfig
from arbormax.studies.refine import refine
from arbormax.studies.trees import compare_trees

TREE = am.Taxonomy.from_nested({"animal": {"bird": ["owl", "hen"], "fish": ["cod", "eel"]}, "plant": ["oak", "rye"]})
FAST = TrainConfig.make(encoder="tfidf", head="hierarchical", validation=0.0, encoder_options={"char_ngrams": 0})


def examples(count: int = 90, noise: float = 0.2, seed: int = 0) -> Examples:
    """Texts of one word of the class, or of another class."""
    rng = np.random.default_rng(seed)
    classes = np.arange(count) % TREE.num_leaves
    words = np.where(rng.random(count) < noise, rng.integers(TREE.num_leaves, size=count), classes)
    texts = [f"{TREE.classes[word]} text number{number % 7}" for number, word in enumerate(words)]
    return Examples(texts, TREE.leaves[classes])


def confused(count: int = 240, seed: int = 0) -> tuple[am.Taxonomy, Examples]:
    """A tree with a class at a wrong place: a text shows the right group, and the class only below that."""
    tree = am.Taxonomy.from_nested({"a": ["a1", "a2", "a3", "b4"], "b": ["b1", "b2", "b3"]})
    rng = np.random.default_rng(seed)
    classes = np.arange(count) % tree.num_leaves
    texts = []
    for number in classes:
        label = tree.classes[number]
        own = f"{label[0]}{rng.integers(1, 5 if label[0] == 'b' else 4)}" if rng.random() < 0.5 else label
        texts.append(f"group{label[0]} {own} number{rng.integers(12)}")
    return tree, Examples(texts, tree.leaves[classes])


def test_trees_are_compared_on_the_same_folds_and_on_the_first_tree():
    other = am.Taxonomy.from_nested({"x": ["rye", "owl", "cod"], "y": ["eel", "hen", "oak"]})
    trees = {"human": TREE, "same": TREE, "other": other, "flat": flatten(TREE), "shuffled": shuffle_classes(TREE, 1)}
    data = examples()
    found = compare_trees(FAST, trees, data, folds=3, resamples=50)
    assert found.reference == "human"
    assert found.distance["human"] == found.distance["same"] == 0 < found.distance["other"]
    assert np.array_equal(found.predicted["human"], found.predicted["same"])
    assert {name: found.pooled["same"][name] for name in ("macro_f1", "nll", "hf")} == {
        name: found.pooled["human"][name] for name in ("macro_f1", "nll", "hf")
    }
    for name in trees:
        nodes = TREE.leaves[found.predicted[name]]
        expected = am.metrics.evaluate(data.nodes, nodes, TREE)
        assert found.pooled[name]["hf"] == pytest.approx(expected["hf"])
        assert found.pooled[name]["macro_f1"] == pytest.approx(expected["macro_f1"])
        assert [row["fold"] for row in found.folds if row["tree"] == name] == [0, 1, 2]
    assert {difference.head for difference in found.differences} == {*trees} - {"human"}
    same = [difference for difference in found.differences if difference.head == "same"]
    assert all((d.mean, d.low, d.high) == (0, 0, 0) for d in same)
    for difference in found.differences:
        values = [found.pooled[tree][difference.measure] for tree in (difference.head, "human")]
        assert difference.mean == pytest.approx(values[0] - values[1])
        assert difference.low <= difference.mean <= difference.high
    assert {difference.measure for difference in found.differences} == {"macro_f1", "accuracy", "hf", "nll"}
    assert found.to_dict()["pooled"]["flat"]["seconds"] >= 0


def test_a_comparison_resumes_from_its_folder(tmp_path, monkeypatch):
    trees = {"human": TREE, "flat": flatten(TREE)}
    first = compare_trees(FAST, trees, examples(), folds=2, resamples=10, folder=tmp_path)
    monkeypatch.setattr("arbormax.studies.trees.train_and_measure", None)
    again = compare_trees(FAST, trees, examples(), folds=2, resamples=10, folder=tmp_path)
    assert again.to_dict() == first.to_dict()


def test_what_cannot_be_compared_is_an_error():
    with pytest.raises(OptionError, match="trees: expected at least two trees, found 1"):
        compare_trees(FAST, {"human": TREE}, examples())
    other = am.Taxonomy.from_nested({"x": ["rye", "owl"]})
    with pytest.raises(LabelError, match="the trees have different classes"):
        compare_trees(FAST, {"human": TREE, "other": other}, examples(), folds=2)
    inner = Examples(["an owl", "a hen"] * 10, np.array([TREE.find("bird"), TREE.find("cod")] * 10))
    with pytest.raises(InputError, match="10 labels are inner nodes of human"):
        compare_trees(FAST, {"human": TREE, "flat": flatten(TREE)}, inner, folds=2)


def test_a_class_at_a_wrong_place_is_proposed_to_move():
    tree, data = confused(seed=1)
    found = refine(FAST, tree, data, folds=3, resamples=100, level=0.5)
    moves = {proposal.title: proposal for proposal in found.tested if proposal.kind == "move"}
    move = moves["move a/b4 to b"]
    assert "times with classes of b" in move.evidence
    assert move.low <= move.gain <= move.high
    assert any(proposal.gain != 0 for proposal in found.tested)
    assert found.found_on + found.tested_on == len(data)
    assert [p.gain for p in found.tested] == sorted((p.gain for p in found.tested), reverse=True)


def test_the_patch_has_the_proposals_that_help_and_no_others():
    tree, data = confused()
    found = refine(FAST, tree, data, folds=3, resamples=100, level=0.5)
    assert all(proposal.low > 0 for proposal in found.helpful)
    edits = [edit for proposal in found.helpful for edit in proposal.edits]
    assert all(edit in edits for edit in found.patch["edits"])
    edited = am.edit(tree).apply(found.patch).done() if found.patch["edits"] else None
    assert edited is None or sorted(edited.taxonomy.classes) == sorted(tree.classes)
    assert found.to_dict()["patch"] == found.patch


def test_nothing_is_proposed_where_nothing_is_confused():
    found = refine(FAST, TREE, examples(120, noise=0.0), folds=2, resamples=20)
    assert found.tested == ()
    assert found.together is None
    assert found.patch["edits"] == []


def test_the_examples_that_test_do_not_suggest(monkeypatch):
    tree, data = confused()
    seen = []
    real = __import__("arbormax.studies.refine", fromlist=["crossval"]).crossval

    def spy(config, taxonomy, examples, folds, **options):
        seen.append(len(examples))
        return real(config, taxonomy, examples, folds, **options)

    monkeypatch.setattr("arbormax.studies.refine.crossval", spy)
    found = refine(FAST, tree, data, folds=2, resamples=10, proposals=1)
    assert seen == [found.found_on]
    assert len(found.tested) <= 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"proposals": 0}, "proposals: expected at least 1"),
        ({"measure": "hf"}, "measure: expected a measure of classes"),
        ({"level": 2}, "level: expected a number between 0 and 1"),
    ],
)
def test_wrong_options_of_a_refinement_are_errors(options, message):
    with pytest.raises(OptionError, match=message):
        refine(FAST, TREE, examples(), **options)
