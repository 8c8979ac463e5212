"""Optimisers that step as one, and clipping over dense and sparse gradients."""

import copy
import io

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from arbormax.errors import OptionError
from arbormax.training.optim import JointOptimizer, clip_gradients


def network():
    torch.manual_seed(0)
    return nn.Embedding(9, 3, sparse=True), nn.Linear(3, 2)


def parts(rows, dense):
    groups = [{"params": [dense.weight], "lr": 0.1}, {"params": [dense.bias], "lr": 0.2}]
    return torch.optim.AdamW(groups, weight_decay=0.01), torch.optim.SparseAdam(list(rows.parameters()), lr=0.3)


def backward(rows, dense, step):
    ids = torch.tensor([step % 9, (3 * step) % 9, step % 9])
    dense(rows(ids)).pow(2).sum().backward()


def train(rows, dense, optimisers, steps, schedules=()):
    for step in steps:
        for optimiser in optimisers:
            optimiser.zero_grad()
        backward(rows, dense, step)
        for one in (*optimisers, *schedules):
            one.step()


def weights(*modules):
    return [parameter.detach().clone() for module in modules for parameter in module.parameters()]


def equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_a_joint_step_equals_separate_steps():
    apart, joined = network(), network()
    train(*apart, parts(*apart), range(6))
    train(*joined, [JointOptimizer(*parts(*joined))], range(6))
    assert equal(weights(*apart), weights(*joined))


def test_a_schedule_acts_on_every_group_of_every_part():
    modules = network()
    inner = parts(*modules)
    optimiser = JointOptimizer(*inner)
    schedule = LambdaLR(optimiser, lambda step: 0.5**step)
    train(*modules, [optimiser], range(2), [schedule])
    assert [group["lr"] for part in inner for group in part.param_groups] == pytest.approx([0.025, 0.05, 0.075])
    apart = network()
    separate = parts(*apart)
    train(*apart, separate, range(2), [LambdaLR(part, lambda step: 0.5**step) for part in separate])
    assert equal(weights(*apart), weights(*modules))


def test_a_joint_optimiser_resumes_from_its_state():
    whole = network()
    optimiser = JointOptimizer(*parts(*whole))
    schedule = LambdaLR(optimiser, lambda step: 1 / (1 + step))
    train(*whole, [optimiser], range(3), [schedule])
    buffer = io.BytesIO()
    torch.save([optimiser.state_dict(), schedule.state_dict(), [m.state_dict() for m in whole]], buffer)
    train(*whole, [optimiser], range(3, 6), [schedule])

    buffer.seek(0)
    state, rates, modules = torch.load(buffer, weights_only=True)
    resumed = network()
    for module, values in zip(resumed, modules, strict=True):
        module.load_state_dict(values)
    again = JointOptimizer(*parts(*resumed))
    schedule = LambdaLR(again, lambda step: 1 / (1 + step))
    again.load_state_dict(state)
    schedule.load_state_dict(rates)
    train(*resumed, [again], range(3, 6), [schedule])
    assert equal(weights(*resumed), weights(*whole))


def test_a_closure_is_run_once_with_gradients():
    modules = network()
    optimiser, calls = JointOptimizer(*parts(*modules)), []

    def closure():
        calls.append(torch.is_grad_enabled())
        backward(*modules, 1)
        return 3.0

    assert optimiser.step(closure) == 3.0
    assert calls == [True]


@pytest.mark.parametrize("largest", [0.01, 1.0, 1e6])
def test_clipping_dense_gradients_equals_torch(largest):
    _, dense = network()
    dense(torch.randn(4, 3)).pow(2).sum().backward()
    other = copy.deepcopy(dense)
    for mine, theirs in zip(dense.parameters(), other.parameters(), strict=True):
        theirs.grad = mine.grad.clone()
    norm = clip_gradients(dense.parameters(), largest)
    torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(other.parameters(), largest))
    for mine, theirs in zip(dense.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


@pytest.mark.parametrize("largest", [0.05, 1e6])
def test_clipping_sparse_gradients_with_repeated_rows_equals_dense(largest):
    (rows, dense), (dense_rows, other) = network(), network()
    dense_rows.sparse = False
    for step in (1, 2):
        backward(rows, dense, step)
        backward(dense_rows, other, step)
    mine, theirs = [*rows.parameters(), *dense.parameters()], [*dense_rows.parameters(), *other.parameters()]
    norm = clip_gradients(mine, largest)
    torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(theirs, largest))
    for one, two in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one.grad.to_dense(), two.grad)


def test_a_single_parameter_can_be_clipped_and_the_norm_is_checked():
    rows, dense = network()
    backward(rows, dense, 1)
    before = clip_gradients(rows.weight, 1e-3)
    assert before > 1e-2
    assert rows.weight.grad.to_dense().norm() <= 1.001e-3
    for wrong in (-1.0, float("nan")):
        with pytest.raises(OptionError, match="max_norm: expected a number of at least 0"):
            clip_gradients(rows.weight, wrong)


def test_clipping_ignores_parameters_without_gradients():
    _, dense = network()
    assert clip_gradients(dense.parameters(), 1.0) == 0
    assert dense.weight.grad is None
