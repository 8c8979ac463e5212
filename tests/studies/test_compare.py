"""Comparisons of heads, and the bootstrap that tells how sure their differences are."""

import json
from importlib import import_module

import numpy as np
import pytest
from sklearn.metrics import f1_score

import arbormax as am
from arbormax.data.examples import Examples
from arbormax.data.folds import hold_out
from arbormax.errors import InputError, OptionError
from arbormax.metrics.bootstrap import Interval, bootstrap, weighted_values
from arbormax.metrics.registry import compared_measures
from arbormax.metrics.sums import Items
from arbormax.model import TrainConfig
from arbormax.studies.compare import Difference, compare, table_columns

MODULE = import_module("arbormax.studies.crossval")  # the package has a function of this name
TAX = am.Taxonomy.from_nested({"a": ["x", "y", "v"], "b": ["z", "w"], "c": {"d": ["q"]}})
TINY = TrainConfig(encoder="bag", encoder_options={"dim": 8}, epochs=2, batch_size=8, validation=0.2)
MEASURES = compared_measures()
BOOTSTRAPPED = [name for name in am.metrics.MEASURES if am.metrics.MEASURES[name].can_bootstrap]
NO_ACCELERATOR = am.training.Hardware(accelerator="cpu")


def toy(count: int, seed: int = 0) -> Examples:
    rng = np.random.default_rng(seed)
    nodes = TAX.leaves[np.arange(count) % TAX.num_leaves]
    return Examples([f"{TAX.names[node]} said {rng.integers(5)} things" for node in nodes], nodes)


def noisy(true: np.ndarray, share: float, rng: np.random.Generator, tax: am.Taxonomy = TAX) -> np.ndarray:
    """Predictions of which this share is right."""
    return np.where(rng.random(true.shape) < share, true, rng.choice(tax.leaves, true.shape))


def weighted(true, predicted, weights):
    """The measures for each row of weights."""
    return dict(zip(BOOTSTRAPPED, weighted_values([Items(true, predicted, TAX)], BOOTSTRAPPED, weights), strict=True))


def paired_bootstrap(true_nodes, predicted, baseline, taxonomy, **options):
    """The intervals of `predicted` minus `baseline`."""
    sets = {"predicted": predicted, "baseline": baseline}
    return bootstrap(true_nodes, sets, taxonomy, baseline="baseline", **options).differences["predicted"]


# The bootstrap


@pytest.mark.parametrize("anything", ["leaves", "nodes"])
def test_unit_weights_give_the_measures_of_evaluate(anything):
    rng = np.random.default_rng(3)
    pool = TAX.leaves if anything == "leaves" else np.arange(1, TAX.num_nodes)
    for items in (1, 7, 200):
        true, predicted = rng.choice(pool, (2, items))
        expected = am.metrics.evaluate(true, predicted, TAX)
        values = weighted(true, predicted, np.ones((1, items), dtype=np.int64))
        for measure in BOOTSTRAPPED:
            assert values[measure][0, 0] == pytest.approx(expected[measure], abs=1e-12), measure


def test_a_resample_has_the_measures_of_the_items_drawn():
    rng = np.random.default_rng(4)
    true, predicted = rng.choice(TAX.leaves, (2, 12))  # so few that some resamples lack a class
    weights = rng.multinomial(12, np.full(12, 1 / 12), size=20)
    values = weighted(true, predicted, weights)
    for row, weight in enumerate(weights):
        drawn = np.repeat(np.arange(12), weight)
        expected = am.metrics.evaluate(true[drawn], predicted[drawn], TAX)
        for measure in BOOTSTRAPPED:
            assert values[measure][0, row] == pytest.approx(expected[measure], abs=1e-12), measure
        macro = f1_score(true[drawn], predicted[drawn], average="macro")
        assert values["macro_f1"][0, row] == pytest.approx(macro)


def test_identical_predictions_have_a_difference_of_zero():
    rng = np.random.default_rng(5)
    true = rng.choice(TAX.leaves, 50)
    predicted = np.stack([noisy(true, 0.7, rng) for _ in range(3)])
    found = paired_bootstrap(true, predicted, predicted.copy(), TAX, resamples=200)
    assert found == dict.fromkeys(MEASURES, Interval(0.0, 0.0, 0.0))


def test_the_mean_is_the_difference_of_the_measures():
    rng = np.random.default_rng(6)
    true = rng.choice(TAX.leaves, 300)
    good, bad = (np.stack([noisy(true, share, rng) for _ in range(3)]) for share in (0.9, 0.5))
    found, back = (paired_bootstrap(true, *sides, TAX, resamples=300) for sides in ((good, bad), (bad, good)))
    for measure in MEASURES:
        each = [[am.metrics.evaluate(true, row, TAX)[measure] for row in rows] for rows in (good, bad)]
        assert found[measure].mean == pytest.approx(np.mean(each[0]) - np.mean(each[1]))
        assert back[measure] == pytest.approx([-found[measure].mean, -found[measure].high, -found[measure].low])
    assert found["macro_f1"].low > 0
    assert found["tree_distance"].high < 0


def test_resamples_depend_on_the_seed_and_not_on_the_chunk_size(monkeypatch):
    rng = np.random.default_rng(7)
    true = rng.choice(TAX.leaves, 40)
    sides = [np.stack([noisy(true, share, rng) for _ in range(2)]) for share in (0.8, 0.6)]
    first = paired_bootstrap(true, *sides, TAX, resamples=101)
    monkeypatch.setattr("arbormax.metrics.bootstrap._CELLS", 123)
    assert paired_bootstrap(true, *sides, TAX, resamples=101) == first
    assert paired_bootstrap(true, *sides, TAX, resamples=101, seed=1) != first


def test_the_interval_has_its_nominal_coverage():
    rng = np.random.default_rng(8)
    covered = 0
    for _ in range(200):
        true = rng.choice(TAX.leaves, 150)
        # a wrong prediction is right by chance one time in C, so the accuracies differ by 0.2 * (1 - 1 / C)
        found = paired_bootstrap(
            true, noisy(true, 0.8, rng), noisy(true, 0.6, rng), TAX, measures=["accuracy"], resamples=200, level=0.9
        )["accuracy"]
        covered += found.low <= 0.2 * (1 - 1 / TAX.num_leaves) <= found.high
    assert 0.83 <= covered / 200 <= 0.96


def test_seeds_that_disagree_widen_the_interval():
    rng = np.random.default_rng(9)
    true = rng.choice(TAX.leaves, 400)
    base = np.stack([noisy(true, 0.6, rng)] * 3)
    steady = np.stack([noisy(true, 0.7, rng)] * 3)
    moody = np.stack([noisy(true, share, rng) for share in (0.4, 0.7, 1.0)])
    widths = [
        np.diff(paired_bootstrap(true, side, base, TAX, resamples=400)["accuracy"][1:]) for side in (steady, moody)
    ]
    assert widths[1] > 2 * widths[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"baseline": np.array([[3]])}, "paired"),
        ({"true_nodes": np.array([], int)}, "true nodes"),
        ({"predicted": np.full(4, -1)}, "nodes lie between"),
        ({"measures": ["acuracy"]}, "did you mean 'accuracy'"),
        ({"level": 95}, "level"),
        ({"resamples": 0}, "resamples"),
    ],
)
def test_invalid_arguments_of_the_bootstrap_are_an_error(change, message):
    nodes = TAX.leaves[:4]
    with pytest.raises((InputError, OptionError), match=message):
        paired_bootstrap(**{"true_nodes": nodes, "predicted": nodes, "baseline": nodes, "taxonomy": TAX, **change})


# The comparison


def test_every_head_and_seed_is_measured_on_the_test_examples():
    test, calls = toy(18, seed=1), []
    found = compare(
        TINY,
        TAX,
        toy(48),
        test,
        seeds=(0, 1),
        hardware=NO_ACCELERATOR,
        progress=lambda *call: calls.append(call),
        resamples=50,
    )
    assert [(r["head"], r["seed"]) for r in found.records] == [
        (head, seed) for seed in (0, 1) for head in ("flat", "hierarchical", "shared", "blended")
    ]
    for head in found.heads:
        for row, seed in enumerate(found.seeds):
            record = next(r for r in found.records if (r["head"], r["seed"]) == (head, seed))
            expected = am.metrics.evaluate(test.nodes, found.predicted[head][row], TAX)
            assert record["macro_f1"] == expected["macro_f1"]
    table = found.table()
    assert list(table) == ["flat", "hierarchical", "shared", "blended"]
    assert set(table["flat"]) == set(table_columns())
    scores = [record["accuracy"] for record in found.records if record["head"] == "shared"]
    assert table["shared"]["accuracy"] == pytest.approx({"mean": np.mean(scores), "std": np.std(scores, ddof=1)})
    assert {(d.head, d.baseline) for d in found.differences} == {
        (h, "flat") for h in ("hierarchical", "shared", "blended")
    }
    assert {d.measure for d in found.differences} == set(MEASURES)
    assert calls[0] == ("flat, seed 0", 0, 8)
    assert calls[-1][1:] == (8, 8)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["measured_on"] == "test"


def test_only_the_head_differs_between_trainings(monkeypatch):
    seen = {}

    def spy(config, taxonomy, train, valid=None, **options):
        part = hold_out(train, config.validation, config.seed)[1]
        seen.setdefault(config.seed, []).append((config.model_dump(exclude={"head"}), train.inputs, part.inputs))
        return real(config, taxonomy, train, valid, **options)

    real = am.training.fit
    monkeypatch.setattr(MODULE, "fit", spy)
    compare(TINY, TAX, toy(36), seeds=(0, 5), folds=2, heads=("flat", "hierarchical"), resamples=5)
    assert set(seen) == {0, 5}
    for trainings in seen.values():  # two folds of the first head, then two of the second
        assert len(trainings) == 4
        assert trainings[:2] == trainings[2:]
    assert seen[0][0][1] != seen[5][0][1]


def test_without_test_examples_the_folds_are_pooled():
    nodes = np.concatenate([toy(30).nodes, [TAX.find("a")]])  # the only example of its label
    examples = Examples([*toy(30).inputs, "alone"], nodes)
    found = compare(TINY, TAX, examples, seeds=(3,), folds=3, heads=("shared", "hierarchical"), resamples=20)
    assert found.measured_on == "folds"
    assert found.table()["shared"]["macro_f1"]["std"] is None
    for record in found.records:
        predicted = found.predicted[record["head"]][0]
        assert predicted[-1] == -1
        assert (predicted[:-1] >= 0).all()
        assert record["items"] == 30
        assert record["never_validated"] == 1
        assert record["accuracy"] == (predicted[:-1] == nodes[:-1]).mean()
    assert {difference.baseline for difference in found.differences} == {"shared"}
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize("with_test", [True, False])
def test_a_restart_runs_only_the_missing_trainings(tmp_path, monkeypatch, with_test):
    given = (TINY, TAX, toy(36), toy(12) if with_test else None)
    options = {"folds": 2, "heads": ("flat", "hierarchical"), "folder": tmp_path / "kept", "resamples": 20}
    first = compare(*given, seeds=(0,), **options)
    count, real = [], am.training.fit
    monkeypatch.setattr(MODULE, "fit", lambda *a, **k: count.append(a[0].seed) or real(*a, **k))
    again = compare(*given, seeds=(0,), **options)
    assert count == []
    assert again.to_dict() == first.to_dict()
    more = compare(*given, seeds=(0, 1), **options)
    assert count == [1] * (2 if with_test else 4)
    assert [r for r in more.records if r["seed"] == 0] == list(first.records)
    with pytest.raises(OptionError, match="epochs was 2, now 3"):
        compare(TINY.model_copy(update={"epochs": 3}), *given[1:], **options)


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        (
            {"gamma": 1.0, "hxe_alpha": 0.0},
            {},
            "gamma: .* not available in flat, shared, blended; compare without it\nhxe_alpha: acts on sibling groups",
        ),
        (
            {"logit_adjustment": 1.0},
            {"heads": ("flat", "hierarchical")},
            "logit_adjustment: acts on sibling groups, not available in flat; compare",
        ),
        ({"path_weight": 0.5}, {}, "path_weight: acts on sums over leaves, not available in hierarchical; compare"),
        ({}, {"heads": ("flat", "hierarchic")}, "did you mean 'hierarchical'"),
        ({}, {"heads": ("flat", "flat")}, "heads: expected at least one, each once"),
        ({}, {"seeds": ()}, "seeds: expected at least one"),
        ({}, {"seeds": (-1,)}, "seeds: expected integers from 0"),
        ({}, {"level": 1.5}, "level"),
        ({"encoder": "bagg"}, {}, "did you mean 'bag'"),
    ],
)
def test_invalid_comparisons_are_an_error_before_training(config, options, message, monkeypatch):
    monkeypatch.setattr(MODULE, "fit", None)
    with pytest.raises(OptionError, match=message):
        compare(TINY.model_copy(update=config), TAX, toy(24), **options)


def test_a_difference_has_a_sentence():
    def result(measure, mean, low, high):
        return Difference("shared", "flat", measure, mean, low, high, 0.95).sentence

    assert (
        result("macro_f1", 0.0121, 0.0034, 0.0262) == "shared − flat, macro-F1: +1.2 points [+0.3, +2.6] (95 %): better"
    )
    assert result("accuracy", -0.02, -0.03, -0.01).endswith("−2.0 points [−3.0, −1.0] (95 %): worse")
    assert result("mistake_severity", -0.5, -0.75, -0.25) == (
        "shared − flat, mistake severity: −0.50 [−0.75, −0.25] (95 %): better"
    )
    assert result("tree_distance", 0.5, 0.25, 0.75).endswith("worse")
    assert result("hf", 0.0, 0.0, 0.0).endswith("hierarchical F: 0.0 points [0.0, 0.0] (95 %): no clear difference")
    assert {name for name in MEASURES if am.metrics.MEASURES[name].better == "lower"} == {
        "mistake_severity",
        "tree_distance",
    }


def test_the_heads_of_a_comparison_are_those_that_the_solver_can_train():
    config = TrainConfig.make(encoder="tfidf", encoder_options={"char_ngrams": 0}, validation=0)
    found = compare(config, TAX, toy(18), toy(18, seed=1), resamples=5, hardware=NO_ACCELERATOR)
    assert found.heads == ("flat", "hierarchical", "blended")
