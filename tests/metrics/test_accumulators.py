"""The accumulators: however the items are split over batches, objects and processes, the functions' own result."""

import json
import pickle
import subprocess
import sys
from itertools import pairwise

import gloo_worker
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchmetrics import MetricCollection

from arbormax import Taxonomy, metrics
from arbormax.errors import InputError, OptionError
from scored import examples, judged_trees, log_probs

TREE = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z", "w"]})  # 0 root, 1 a, 2 b, 3 x, 4 y, 5 z, 6 w
TRUE = torch.tensor([3, 4, 5, 1, 0, 6, 3])
PRED = torch.tensor([3, 3, 2, 4, 5, 6, 0])
TOPK = torch.tensor([[0, 1, 2], [0, 1, 3], [3, 2, 1], [1, 0, 2], [2, 3, 0], [3, 2, 0], [2, 0, 1]])
LEAF = torch.randn(7, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).softmax(-1)
LOGP = torch.stack([torch.tensor(TREE.sum_up(row)) for row in LEAF.numpy()]).log()
TAUS = (0.0, 0.3, 0.5, 0.7)


def batches(draw, count):
    cuts = sorted(draw(st.lists(st.integers(0, count), max_size=4)))
    return [slice(start, stop) for start, stop in pairwise([0, *cuts, count])]


def flat(values):
    """Numbers that may be compared exactly, from a dict, a list, a curve or a tensor."""
    return values.tolist() if isinstance(values, torch.Tensor) else values


def every_kind():
    """Each accumulator, a batch maker, and what the functions say of all items."""
    return [
        (metrics.NodeMetrics(TREE), lambda s: (TRUE[s], PRED[s]), metrics.evaluate(TRUE, PRED, TREE)),
        (
            metrics.NodeMetric(TREE, "macro_f1"),
            lambda s: (TRUE[s], PRED[s]),
            torch.tensor(metrics.evaluate(TRUE, PRED, TREE)["macro_f1"]).item(),
        ),
        (
            metrics.HierarchicalDistanceAtK(TREE, k=2),
            lambda s: (TRUE[s], TOPK[s]),
            torch.tensor(metrics.hierarchical_distance_at_k(TRUE, TOPK[:, :2], TREE)).item(),
        ),
        (
            metrics.OperatingCurve(TREE, TAUS),
            lambda s: (LOGP[s], TRUE[s]),
            metrics.operating_curve(LOGP, TRUE, TREE, TAUS),
        ),
        (
            metrics.LevelCalibrationError(TREE, bins=5),
            lambda s: (LOGP[s], TRUE[s]),
            metrics.level_calibration_error(LOGP, TRUE, TREE, bins=5),
        ),
    ]


EVERY_KIND = pytest.mark.parametrize("kind", range(len(every_kind())))


@examples
@given(st.data())
def test_any_split_into_batches_gives_the_result_of_one_call(data):
    tax, true, pred = data.draw(judged_trees())
    logp = data.draw(log_probs(tax, len(true)))
    nodes, curve = metrics.NodeMetrics(tax), metrics.OperatingCurve(tax, TAUS)
    calibration = metrics.LevelCalibrationError(tax, bins=4)
    for part in batches(data.draw, len(true)):
        nodes.update(true[part], pred[part])
        curve.update(logp[part], true[part])
        calibration.update(logp[part], true[part])
    assert nodes.compute() == metrics.evaluate(true, pred, tax)
    assert curve.compute() == metrics.operating_curve(logp, true, tax, TAUS)
    assert calibration.compute() == metrics.level_calibration_error(logp, true, tax, bins=4)


@EVERY_KIND
def test_order_does_not_matter(kind):
    metric, batch, expected = every_kind()[kind]
    for part in ([6, 2], [0], [], [5, 1, 3, 4]):
        metric.update(*batch(part))
    assert flat(metric.compute()) == expected


@EVERY_KIND
def test_reset_clears_the_state(kind):
    metric, batch, expected = every_kind()[kind]
    metric.update(*batch(slice(2, 5)))
    metric.reset()
    metric.update(*batch(slice(None)))
    assert flat(metric.compute()) == expected


@EVERY_KIND
def test_forward_returns_the_value_of_the_batch_and_accumulates(kind):
    metric, batch, expected = every_kind()[kind]
    alone = every_kind()[kind][0]
    metric.update(*batch(slice(0, 3)))
    alone.update(*batch(slice(3, None)))
    assert flat(metric(*batch(slice(3, None)))) == flat(alone.compute())
    assert flat(metric.compute()) == expected


@EVERY_KIND
def test_a_clone_and_a_pickle_are_independent(kind):
    metric, batch, expected = every_kind()[kind]
    metric.update(*batch(slice(0, 3)))
    copies = [metric.clone(), pickle.loads(pickle.dumps(metric))]
    metric.update(*batch(slice(0, 2)))
    for copy in copies:
        copy.update(*batch(slice(3, None)))
        assert flat(copy.compute()) == expected


@EVERY_KIND
def test_states_merge(kind):
    (one, batch, expected), (other, _, _) = every_kind()[kind], every_kind()[kind]
    one.update(*batch(slice(0, 3)))
    other.update(*batch(slice(3, None)))
    one.merge_state(other)
    assert flat(one.compute()) == expected


@EVERY_KIND
def test_states_stay_whole_numbers(kind):
    metric, batch, expected = every_kind()[kind]
    metric.half().to("cpu").double()
    metric.update(*batch(slice(None)))
    assert {getattr(metric, name).dtype for name in metric._defaults} == {torch.int64}
    assert flat(metric.compute()) == expected


@EVERY_KIND
def test_a_metric_reset_in_inference_mode_works_outside_of_it(kind):
    metric, batch, expected = every_kind()[kind]
    with torch.inference_mode():
        metric.update(*batch(slice(0, 2)))
        metric.reset()
    metric.update(*batch(slice(None)))
    assert flat(metric.compute()) == expected


def test_each_measure_is_available_as_a_scalar():
    values = metrics.evaluate(TRUE, PRED, TREE)
    levels = values.pop("level_accuracy")
    values |= {f"level_accuracy@{level}": value for level, value in enumerate(levels, start=1)}
    for measure, value in values.items():
        metric = metrics.NodeMetric(TREE, measure)
        metric.update(TRUE, PRED)
        assert metric.compute().shape == ()
        assert metric.compute().item() == pytest.approx(value, rel=1e-6)


def test_a_level_that_no_truth_reaches_is_nan_as_a_scalar():
    metric = metrics.NodeMetric(TREE, "level_accuracy@2")
    metric.update([1, 2], [3, 2])
    assert metric.compute().isnan()


def test_a_collection_updates_all_metrics_by_keyword():
    collection = MetricCollection(
        {
            "all": metrics.NodeMetrics(TREE),
            "one": metrics.NodeMetric(TREE, "hf"),
            "near": metrics.HierarchicalDistanceAtK(TREE, k=1),
            "nearest": metrics.HierarchicalDistanceAtK(TREE, k=3),
            "curve": metrics.OperatingCurve(TREE, TAUS),
        }
    )
    for part in (slice(0, 3), slice(3, 5), slice(5, None)):
        collection.update(true_nodes=TRUE[part], pred_nodes=PRED[part], topk_classes=TOPK[part], log_probs=LOGP[part])
    found, expected = collection.compute(), metrics.evaluate(TRUE, PRED, TREE)
    assert found["one"].item() == pytest.approx(expected["hf"], rel=1e-6)
    assert found["macro_recall"] == expected["macro_recall"]
    for name, k in (("near", 1), ("nearest", 3)):
        distance = metrics.hierarchical_distance_at_k(TRUE, TOPK[:, :k], TREE)
        assert found[name].item() == pytest.approx(distance, rel=1e-6)
    assert found["curve"] == metrics.operating_curve(LOGP, TRUE, TREE, TAUS)


def test_a_collection_does_not_merge_metrics_that_agree_on_the_first_batch_only():
    collection = MetricCollection(
        {"low": metrics.OperatingCurve(TREE, [0.1]), "high": metrics.OperatingCurve(TREE, [0.9])}
    )
    sure = torch.tensor([[1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0]]).log()
    unsure = torch.tensor([[1.0, 0.5, 0.5, 0.5, 0.0, 0.5, 0.0]]).log()
    collection.update(log_probs=sure, true_nodes=[3])
    collection.update(log_probs=unsure, true_nodes=[3])
    found = collection.compute()
    assert (found["low"].specificity, found["high"].specificity) == ([1.0], [0.5])


def test_two_processes_with_unequal_shares_agree_on_the_result(tmp_path):
    items = (TRUE, PRED, TOPK, LOGP)
    torch.multiprocessing.spawn(gloo_worker.work, (2, str(tmp_path), TREE, *items), nprocs=2)
    expected = {
        "nodes": metrics.evaluate(TRUE, PRED, TREE),
        "distance": torch.tensor(metrics.hierarchical_distance_at_k(TRUE, TOPK[:, :2], TREE)).item(),
        "curve": list(metrics.operating_curve(LOGP, TRUE, TREE)),
        "calibration": metrics.level_calibration_error(LOGP, TRUE, TREE),
    }
    for rank, own in ((0, 1), (1, 6)):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        assert found.pop("own_count") == own
        assert found == expected


def test_without_torchmetrics_the_functions_work_and_the_accumulators_name_the_extra():
    code = """
import sys
sys.modules["torchmetrics"] = None
from arbormax import Taxonomy, metrics
tax = Taxonomy.from_parents([-1, 0, 0])
assert metrics.evaluate([1, 2], [1, 1], tax)["accuracy"] == 0.5
try:
    metrics.NodeMetrics
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().startswith(
        "accumulating over batches needs the package torchmetrics: pip install 'torchmetrics', "
        "or pip install 'arbormax[train]'"
    )


def test_an_unknown_name_of_the_module_is_an_attribute_error():
    with pytest.raises(AttributeError, match="NodeMetricks"):
        _ = metrics.NodeMetricks


def test_invalid_options_raise_an_error():
    with pytest.raises(OptionError, match="did you mean 'macro_f1'"):
        metrics.NodeMetric(TREE, "macrof1")
    with pytest.raises(OptionError, match="level_accuracy@1 to level_accuracy@2"):
        metrics.NodeMetric(TREE, "level_accuracy@3")
    with pytest.raises(OptionError, match="k: expected at most 4, the number of classes"):
        metrics.HierarchicalDistanceAtK(TREE, k=5)
    with pytest.raises(OptionError, match="k: expected a whole number of at least 1"):
        metrics.HierarchicalDistanceAtK(TREE, k=0)
    with pytest.raises(InputError, match="at least 2 columns, found 1"):
        metrics.HierarchicalDistanceAtK(TREE, k=2).update(TRUE, TOPK[:, :1])


def test_an_invalid_batch_does_not_change_the_state():
    metric = metrics.NodeMetrics(TREE)
    metric.update(TRUE, PRED)
    with pytest.raises(InputError):
        metric.update([3, 4], [3, -1])
    assert metric.compute() == metrics.evaluate(TRUE, PRED, TREE)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@EVERY_KIND
def test_states_on_a_gpu_give_the_same_result(kind):
    metric, batch, expected = every_kind()[kind]
    metric.to("cuda")
    for part in (slice(0, 3), slice(3, None)):
        metric.update(*(items.cuda() for items in batch(part)))
    assert all(getattr(metric, name).is_cuda for name in metric._defaults)
    assert flat(metric.compute()) == expected
