"""Compare tensors with the float64 oracle of the tests on random trees: python benchmarks/numerics.py --cases 1000000

A case is one row of logits on a random tree; a tree has a few rows, of sizes up to ±1e4. Checked are the
log-probabilities of all nodes and leaves and the losses with random options against the oracle, that a row has the same
result alone and in another order up to rounding, that two threads change nothing, that finite logits of every dtype
give finite losses, and, for some trees, the gradients of every option (`gradcheck`). Prints the largest errors.
The exponents `gamma` are at least 1: below, the loss of a nearly certain class has no bounded derivative.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import numpy as np
import torch
from torch import Tensor

import arbormax as am
import oracles_heads as oracle
from arbormax import functional

ROWS = 20  # of one tree
SCALES = (0.1, 1.0, 30.0, 1e4)
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
GRADIENTS_EVERY = 200  # trees


def random_tree(draw: np.random.Generator) -> am.Taxonomy:
    count, reach = int(draw.integers(2, 16)), int(draw.choice([1, 2, 16]))
    parents = [-1] + [int(draw.integers(max(0, node - reach), node)) for node in range(1, count)]
    return am.Taxonomy.from_parents(parents)


def random_options(draw: np.random.Generator, tax: am.Taxonomy) -> dict[str, float | Tensor]:
    """Options of the loss, each in about half of the cases."""
    counts = torch.from_numpy(draw.integers(1, 9, tax.num_leaves))
    every = {
        "weight": torch.from_numpy(draw.random(tax.num_leaves)),
        "label_smoothing": float(draw.random()),
        "gamma": float(draw.choice([1.0, 1.5, 2.0])),
        "node_weights": torch.from_numpy(draw.random(tax.num_nodes)),
        "tau": float(draw.random()),
    }
    chosen = {name: value for name, value in every.items() if draw.random() < 0.5}
    if "tau" in chosen:
        chosen["log_priors"] = functional.sibling_log_priors(counts, tax).double()
    return chosen


def to_lists(options: dict[str, float | Tensor]) -> dict[str, float | list[float]]:
    return {name: value.tolist() if isinstance(value, Tensor) else value for name, value in options.items()}


def relative(found: Tensor, expected: list[object]) -> float:
    want = torch.tensor(expected, dtype=torch.float64)
    assert not found.isnan().any(), "NaN from finite logits"
    return float(((found.double() - want).abs() / want.abs().clamp(min=1)).max()) if want.numel() else 0.0


def check_tree(draw: np.random.Generator, errors: dict[str, float]) -> None:
    tax = random_tree(draw)
    scale = draw.choice(SCALES, size=(ROWS, 1))
    logits = torch.from_numpy(draw.normal(size=(ROWS, tax.num_nodes - 1)) * scale)
    rows, nodes = logits.tolist(), torch.from_numpy(draw.integers(0, tax.num_nodes, ROWS))
    node_logp = functional.node_log_probs(logits, tax)
    flat_logits = logits[:, : tax.num_leaves]
    options = random_options(draw, tax)
    flat_options = {name: options[name] for name in ("weight", "label_smoothing") if name in options}
    how = {"target_kind": "node", "reduction": "none"}
    loss = functional.hierarchical_cross_entropy(logits, nodes, tax, **how, **options)
    flat_loss = functional.flat_cross_entropy(flat_logits, nodes, tax, **how, **flat_options)
    given, flat_given = to_lists(options), to_lists(flat_options)
    found = {
        "node log-probabilities": (node_logp, [oracle.node_log_probs(row, tax) for row in rows]),
        "shared logits": (
            functional.shared_leaf_logits(logits, tax),
            [oracle.shared_leaf_logits(row, tax) for row in rows],
        ),
        "loss": (
            loss,
            [oracle.loss(row, node, tax, **given)[0] for row, node in zip(rows, nodes.tolist(), strict=True)],
        ),
    }
    small = np.flatnonzero(scale[:, 0] < 100).tolist()  # the oracle sums probabilities, which are 0 for larger logits
    flat, targets = flat_logits.tolist(), nodes.tolist()
    expected_flat = [oracle.flat_loss(flat[row], targets[row], tax, **flat_given)[0] for row in small]
    found["flat loss"] = flat_loss[small], expected_flat
    for name, (ours, expected) in found.items():
        errors[name] = max(errors.get(name, 0.0), relative(ours, expected))
    assert torch.equal(functional.leaf_log_probs(logits, tax), node_logp[:, torch.from_numpy(tax.leaves.copy())])
    order = torch.from_numpy(draw.permutation(ROWS))
    same = {"rtol": 1e-14, "atol": 1e-14}  # torch's vectorised exp rounds otherwise at the end of a tensor
    torch.testing.assert_close(functional.node_log_probs(logits[order], tax), node_logp[order], **same)
    torch.testing.assert_close(functional.node_log_probs(logits[:1], tax), node_logp[:1], **same)
    for dtype in DTYPES:
        low = functional.hierarchical_cross_entropy(logits.to(dtype), nodes, tax, **how, label_smoothing=0.1, gamma=2.0)
        assert low.isfinite().all(), f"finite logits of {dtype} give {low}"
        assert functional.flat_cross_entropy(flat_logits.to(dtype), nodes, tax, **how).isfinite().all(), dtype


def check_gradients(draw: np.random.Generator) -> None:
    """Gradients of the loss with random options."""
    tax = random_tree(draw)
    logits = torch.from_numpy(draw.normal(size=(4, tax.num_nodes - 1))).requires_grad_()
    nodes, options = torch.from_numpy(draw.integers(0, tax.num_nodes, 4)), random_options(draw, tax)
    torch.autograd.gradcheck(
        lambda z: functional.hierarchical_cross_entropy(z, nodes, tax, target_kind="node", **options), logits
    )
    shares = draw.dirichlet(np.ones(max(tax.depth - 1, 1))) * draw.random()
    share = shares.tolist() if tax.depth > 1 else 0.0
    torch.autograd.gradcheck(
        lambda z: functional.flat_cross_entropy(
            z, nodes, tax, target_kind="node", path_weight=share, label_smoothing=0.2
        ),
        logits.detach()[:, : tax.num_leaves].requires_grad_(),
    )


def check_threads(seed: int) -> None:
    """One and two threads give the same results, bit for bit."""
    tax = am.Taxonomy.from_parents([-1, *[node // 10 for node in range(1110)]])
    for kind in (am.HierarchicalSoftmax, am.FlatSoftmax, am.SharedSoftmax, am.BlendedSoftmax):
        torch.manual_seed(seed)
        head, h = kind(64, tax), torch.randn(300, 64)
        results = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            head.zero_grad()
            loss = head.loss(h, torch.arange(300))
            loss.backward()
            results.append([head(h).detach(), loss.detach(), head.weight.grad.clone(), head.predict(h)])
        torch.set_num_threads(1)
        for one, two in zip(*results, strict=True):
            assert torch.equal(one, two), f"{kind.__name__}: two threads give another result"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    draw, errors, begin = np.random.default_rng(options.seed), {}, time.time()
    check_threads(options.seed)
    trees = math.ceil(options.cases / ROWS)
    for number in range(trees):
        check_tree(draw, errors)
        if number % GRADIENTS_EVERY == 0:
            check_gradients(draw)
        if number % 5000 == 4999:
            print(f"{number + 1:,} trees, {time.time() - begin:.0f} s", flush=True)
    print(f"{trees * ROWS:,} cases on {trees:,} trees, {math.ceil(trees / GRADIENTS_EVERY):,} gradient checks")
    for name, error in errors.items():
        print(f"{name}: largest relative error {error:.1e}")
    sys.exit(any(error > 1e-9 for error in errors.values()))


if __name__ == "__main__":
    main()
