import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import arbormax as am
from arbormax import Taxonomy
from arbormax.functional import best
from arbormax.functional.best import best_leaves, top_classes
from arbormax.heads.base import TreeHead
from strategies import taxonomies


def large() -> Taxonomy:
    return Taxonomy.from_parents([-1, *(node // 17 for node in range(17 + 17**2 + 17**3))])


@given(tax=taxonomies(max_nodes=40), seed=st.integers(0, 2**16), scale=st.sampled_from([0.0, 1.0, 20.0]))
def test_the_best_leaves_equal_the_first_of_all_leaves_sorted(tax, seed, scale):
    torch.manual_seed(seed)
    head = am.HierarchicalSoftmax(3, tax, init="torch").double()
    with torch.no_grad():
        head.weight.mul_(scale)
    h = torch.randn(4, 3, dtype=torch.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(best, "_SHARE", float("inf"))
        patch.setattr(best, "_CELLS", 1)  # an item at a time
        for k in {1, min(3, tax.num_leaves), tax.num_leaves}:
            logp, classes, is_open = best_leaves(h, head.weight, head.bias, tax, k)
            assert not is_open.any()
            expected_logp, expected = TreeHead.topk(head, h, k)
            torch.testing.assert_close(logp, expected_logp)
            clear = (expected_logp.diff(dim=1).abs() > 1e-9).all(1)
            assert torch.equal(classes[clear], expected[clear])


def test_ties_are_in_class_order():
    tax = large()
    head = am.HierarchicalSoftmax(3, tax, init="zeros")
    with torch.no_grad():  # one subtree is more probable, and its leaves are equally probable
        head.weight[0], head.weight[17] = 9.0, 9.0
    logp, classes = head.topk(torch.ones(2, 3), 4)
    assert torch.equal(classes, torch.arange(4).expand(2, 4))
    assert (logp == logp[0, 0]).all()


def test_a_confident_head_is_searched_and_all_leaves_of_a_uniform_one_are_scored(monkeypatch):
    tax = large()
    head = am.HierarchicalSoftmax(8, tax, init="torch")
    h = torch.randn(5, 8)
    uniform = head.topk(h, 5)
    with torch.no_grad():
        head.weight.mul_(50)
    assert not best_leaves(h, head.weight, head.bias, tax, 5)[2].any()
    expected = TreeHead.topk(head, h, 5)
    monkeypatch.setattr(type(head), "forward", None)  # scores all leaves
    logp, classes = head.topk(h, 5)
    torch.testing.assert_close(logp, expected[0], rtol=1e-4, atol=1e-4)
    assert torch.equal(classes, expected[1])
    assert torch.equal(head.predict(h), expected[1][:, 0])
    assert uniform[0].shape == (5, 5)


def test_shapes_and_invalid_arguments():
    tax = large()
    head = am.HierarchicalSoftmax(8, tax)
    logp, classes = head.topk(torch.randn(2, 3, 8), 2)
    assert logp.shape == classes.shape == (2, 3, 2)
    assert head.topk(torch.randn(0, 8), 2)[1].shape == (0, 2)
    assert head.predict(torch.randn(8)).shape == ()
    with pytest.raises(am.errors.OptionError, match="k: expected 1 to"):
        head.topk(torch.randn(1, 8), 0)
    given = torch.tensor(3)
    assert head.topk(torch.randn(4, 8), given)[1].shape == (4, 3)
    assert given == 3
    for wrong in (1.5, "3", None):
        with pytest.raises(am.errors.OptionError, match="k: expected an integer"):
            head.topk(torch.randn(1, 8), wrong)
    with pytest.raises(am.errors.InputError, match="expected a tensor, found list"):
        head.predict([0.0])


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_nan_weights_give_a_class(value):
    tax = large()
    head, h = am.HierarchicalSoftmax(8, tax), torch.randn(3, 8)
    with torch.no_grad():
        head.bias[3] = value
    assert torch.equal(head.predict(h), head(h).argmax(-1))
    assert head.topk(h, 2)[0].isnan().all()


def test_a_failed_search_ends_before_it_scores_too_much(monkeypatch):
    tax = large()
    head, scores = am.HierarchicalSoftmax(8, tax, init="zeros"), []
    scored = best.path_torch.group_log_probs
    monkeypatch.setattr(
        best.path_torch, "group_log_probs", lambda *given: scores.append(int(given[-1].sum())) or scored(*given)
    )
    assert best_leaves(torch.randn(3, 8), head.weight, head.bias, tax, 1)[2].tolist() == [True] * 3
    assert sum(scores) <= best._SHARE * 3 * tax.num_nodes


def test_the_kernel_searches_more_items_together(monkeypatch):
    head, h = am.HierarchicalSoftmax(3, large()), torch.randn(300, 3)
    sizes = []

    class Kernel:
        @staticmethod
        def best_leaves(h, *_):
            sizes.append(len(h))
            return torch.zeros(len(h), 5), torch.zeros(len(h), 5), torch.zeros(len(h), dtype=torch.bool)

    for kernel in (None, Kernel):
        monkeypatch.setattr(best.kernels, "search_kernel", lambda *_, kernel=kernel: kernel)
        monkeypatch.setattr(best, "_search", lambda h, *_: sizes.append(len(h)))
        best_leaves(h, head.weight, head.bias, head.taxonomy, 5)
    assert sizes == [256, 44, 300]


def test_a_tie_that_is_found_late_is_in_class_order(monkeypatch):
    monkeypatch.setattr(best, "_SHARE", float("inf"))
    tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z", "w"]}, classes=["z", "w", "x", "y"])  # b comes after a
    head = am.HierarchicalSoftmax(3, tax, init="zeros")
    for k in (1, 2):
        _, classes, _ = best_leaves(torch.ones(1, 3), head.weight, head.bias, tax, k)
        assert classes.tolist() == [list(range(k))]


@given(st.lists(st.sampled_from([-3.0, -1.0, -0.5, -torch.inf]), min_size=1, max_size=9), st.integers(1, 9))
def test_the_top_classes_are_a_stable_sort(logp, k):
    logp, k = torch.tensor([logp, logp[::-1]]), min(k, len(logp))
    values, classes = top_classes(logp, k)
    expected = logp.sort(dim=-1, descending=True, stable=True)
    assert torch.equal(values, expected.values[:, :k])
    assert torch.equal(classes, expected.indices[:, :k])


def test_the_prediction_is_the_first_of_the_best_also_if_all_are_equal():
    from arbormax.model import TrainConfig
    from arbormax.model.network import Model
    from arbormax.model.predict import predict

    tax = Taxonomy.from_parents([-1, *(0 for _ in range(40))])
    model = Model.new(["some words"], tax, TrainConfig.make(encoder="bag"))
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.zero_()
    (found,) = predict(model, ["words"], top_k=3)
    assert found.label == found.alternatives[0][0]
