"""What `benchmarks/needs.py` computes, against trees and batches that are there."""

import dataclasses
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

import arbormax as am
from arbormax.functional.index import tree_index

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "benchmarks" / "needs.py"))


def needs(branching=22, depth=3, features=8, batch=256, width=4, states=2, devices=1):
    return SCRIPT["Needs"](branching, depth, features, batch, width, states, devices)


def tree(branching, depth):
    inner = sum(branching**level for level in range(depth))
    return am.Taxonomy.from_parents(np.append(-1, np.repeat(np.arange(inner), branching)))


def rows_on_paths(tax, classes):
    """How many rows the paths of these classes have beside them, themselves included."""
    nodes, parents = tax.leaves[classes], set()
    while nodes.any():
        nodes = tax.parent[nodes]
        parents |= set(nodes.tolist())
    return int(tax.num_children[list(parents)].sum())


@pytest.mark.parametrize(("branching", "depth", "batch"), [(22, 3, 256), (22, 3, 1), (6, 4, 1000), (40, 2, 64)])
def test_the_expected_rows_are_those_of_drawn_batches(branching, depth, batch):
    tax, draw = tree(branching, depth), np.random.default_rng(0)
    counted = [rows_on_paths(tax, draw.integers(tax.num_leaves, size=batch)) for _ in range(60)]
    assert needs(branching, depth, batch=batch).touched(1, depth) == pytest.approx(np.mean(counted), rel=0.01)


def test_the_sparse_gradient_and_the_state_have_the_size_that_is_told():
    tax, expected = tree(22, 3), needs()
    head = am.HierarchicalSoftmax(8, tax, sparse=True)
    classes = torch.randint(tax.num_leaves, (256,), generator=torch.Generator().manual_seed(0))
    optimiser = torch.optim.SparseAdam(list(head.parameters()), lr=0.1)
    head.loss(torch.randn(256, 8), classes).backward()
    optimiser.step()
    assert head.weight.grad._nnz() == rows_on_paths(tax, classes.numpy())
    assert head.weight.grad._nnz() == pytest.approx(expected.touched(1, 3), rel=0.05)
    assert (expected.rows, expected.parameters) == (len(head.weight), sum(p.numel() for p in head.parameters()))
    states = [v for p in head.parameters() for v in optimiser.state[p].values() if isinstance(v, torch.Tensor)]
    assert expected.state == sum(state.nbytes for state in states)
    assert expected.weights == sum(p.nbytes for p in head.parameters())


def size_of(value, seen):
    if isinstance(value, torch.Tensor):
        storage = value.untyped_storage()
        new = storage.data_ptr() not in seen
        seen.add(storage.data_ptr())
        return storage.nbytes() if new else 0
    if dataclasses.is_dataclass(value):
        value = [getattr(value, field.name) for field in dataclasses.fields(value)]
    return sum(size_of(part, seen) for part in value) if isinstance(value, tuple | list) else 0


@pytest.mark.parametrize(("branching", "depth"), [(22, 3), (12, 4), (120, 2)])
def test_the_computed_size_of_the_index_is_correct(branching, depth):
    found = size_of(tree_index(tree(branching, depth), torch.device("cpu")), set())
    assert needs(branching, depth).index == pytest.approx(found, rel=0.12)


def test_shards_hold_the_top_and_the_whole_rest_between_them():
    for branching, devices, cut in ((16, 8, 1), (16, 16, 1), (4, 16, 2), (2, 3, 2), (2, 64, 2)):
        shard = needs(branching, 3, devices=devices)
        assert shard.cut == cut
        top = shard.rows_of(1, cut)
        held = devices * (shard.shard_rows - top)
        assert held >= shard.rows - top
        if branching**cut % devices == 0:
            assert held == shard.rows - top
    alone = needs(devices=1)
    assert alone.shard_rows == alone.rows
    assert alone.sent_features == alone.sent_top == 0
    assert alone.shard_touched == pytest.approx(alone.touched(1, 3))


def test_large_numbers_of_groups_are_not_rounded_away():
    assert SCRIPT["distinct"](10**17, 4096) == pytest.approx(4096)
    assert SCRIPT["distinct"](1, 4096) == 1
    assert SCRIPT["distinct"](7, 1) == pytest.approx(1)


def test_the_page_shows_what_the_script_prints(capsys):
    page = (ROOT / "docs" / "scale.md").read_text("utf-8")
    blocks = re.findall(r"```console\n\$ python benchmarks/needs.py (.*?)\n(.*?)```", page, re.DOTALL)
    assert blocks
    for arguments, printed in blocks:
        SCRIPT["main"](arguments.split())
        assert capsys.readouterr().out == printed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--depth 0", "expected an integer of at least 1, found '0'"),
        ("--features x", "expected an integer of at least 1, found 'x'"),
        ("--bandwidth 0", "expected bytes per second above 0, found '0'"),
    ],
)
def test_an_impossible_number_is_refused(words, message, capsys):
    with pytest.raises(SystemExit):
        SCRIPT["main"](words.split())
    assert message in capsys.readouterr().err
