"""Laplace's method against brute force: the exact Hessian, numerical integration, and inverted matrices."""

import math

import numpy as np
import pytest
import torch
from torch.autograd.functional import hessian

import arbormax as am
from arbormax.functional import flat_cross_entropy, hierarchical_cross_entropy
from arbormax.uncertainty.blocks import BLOCKS
from arbormax.uncertainty.dense import DenseRows
from arbormax.uncertainty.evidence import best_precision, log_evidence
from arbormax.uncertainty.noise import standard_normals
from arbormax.uncertainty.sparse import SparseRows
from toy import TREE

SMALL = am.Taxonomy.from_nested({"a": ["x", "y", "z"], "b": ["u", "v"], "c": ["only"]})
STRUCTURES = tuple(BLOCKS)


def make(kind=am.HierarchicalSoftmax, tax=SMALL, items=40, width=2, bias=True):
    torch.manual_seed(1)
    head = kind(width, tax, bias=bias).double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.normal_()
    draw = np.random.default_rng(1)
    return head, torch.randn(items, width, dtype=torch.float64), tax.leaves[draw.integers(0, tax.num_leaves, items)]


def sparse_copy(dense):
    head = am.HierarchicalSoftmax(2, SMALL, sparse_weight=True)
    rows, columns = (part.flatten().numpy() for part in torch.meshgrid(torch.arange(len(dense.weight)), torch.arange(2),
                                                                     indexing="ij"))  # fmt: skip
    head.sparse_weight.set_rows(rows, columns, dense.weight.detach().flatten().numpy())
    with torch.no_grad():
        head.bias.copy_(dense.bias)
    return head


def normals(draws, rows):
    return standard_normals(draws, rows, torch.Generator().manual_seed(0))


def exact_hessian(head, h, nodes):
    """(M (D + 1), M (D + 1)) by automatic differentiation, rows one after the other with their bias last."""
    loss = hierarchical_cross_entropy if isinstance(head, am.HierarchicalSoftmax) else flat_cross_entropy
    phi = torch.cat([h, torch.ones(len(h), 1, dtype=h.dtype)], 1)
    rows = torch.cat([head.weight, head.bias[:, None]], 1).detach()
    target = torch.from_numpy(nodes.copy())

    def of(flat):
        return loss(phi @ flat.view_as(rows).T, target, head.taxonomy, target_kind="node", reduction="sum")

    return hessian(of, rows.flatten())


def places(part, width):
    """The positions of the weights of a softmax among those of all rows."""
    return (part.rows[:, None] * width + torch.arange(width)).flatten()


@pytest.mark.parametrize("kind", [am.HierarchicalSoftmax, am.FlatSoftmax])
def test_the_full_blocks_are_the_exact_hessian(kind):
    head, h, nodes = make(kind)
    exact = exact_hessian(head, h, nodes)
    rows = DenseRows.fit(head, [h[:15], h[15:]], nodes, "full", "tree", None)
    rest = exact.clone()
    for part in rows.parts:
        at = places(part, 3)
        vectors = part.block.vectors.flatten(0, 1).double()
        found = vectors * part.block.values.double() @ vectors.T
        torch.testing.assert_close(found, exact[at[:, None], at], atol=1e-4, rtol=1e-4)
        rest[at[:, None], at] = 0
    assert rest.abs().max() < 1e-10  # between the parents there is nothing


def test_the_diagonal_form_is_the_diagonal_of_the_hessian():
    head, h, nodes = make()
    exact = exact_hessian(head, h, nodes).diag()
    for part in DenseRows.fit(head, [h], nodes, "diagonal", "tree", None).parts:
        torch.testing.assert_close(part.block.values.flatten().double(), exact[places(part, 3)], atol=1e-5, rtol=1e-5)


def test_the_kronecker_form_of_one_item_is_exact():
    head, h, nodes = make(items=1)
    full, factored = (DenseRows.fit(head, [h], nodes, kind, "tree", 2.0) for kind in ("full", "kronecker"))
    for one, other in zip(full.parts, factored.parts, strict=True):
        torch.testing.assert_close(
            one.block.eigenvalues().sort()[0], other.block.eigenvalues().sort()[0], atol=1e-5, rtol=1e-5
        )
    assert factored.evidence == pytest.approx(full.evidence)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("kind", [am.HierarchicalSoftmax, am.FlatSoftmax])
def test_the_noise_of_the_logits_has_the_covariance_of_the_weights(kind, structure):
    head, h, nodes = make(kind)
    precision = 0.7
    rows = DenseRows.fit(head, [h], nodes, structure, "tree", precision)
    query = torch.tensor([[0.3, -1.2]])
    noise = rows.noise(query, normals(40_000, len(head.weight)))[:, 0].double()
    assert noise.mean(0).abs().max() < 0.05
    phi = torch.tensor([0.3, -1.2, 1.0], dtype=torch.float64)
    exact = exact_hessian(head, h, nodes)
    for part in rows.parts:
        m = len(part.rows)
        at = places(part, 3)
        own = exact[at[:, None], at]
        if structure == "diagonal":
            own = own.diag().diag()
        elif structure == "kronecker":
            block = part.block
            rows_mm = block.row_vectors * block.row_values @ block.row_vectors.T
            features_DD = block.vectors * block.values @ block.vectors.T
            own = (block.count * torch.kron(rows_mm, features_DD)).double()
        jacobian = torch.kron(torch.eye(m, dtype=torch.float64), phi[None])
        weights = torch.linalg.inv(own + precision * torch.eye(len(own), dtype=torch.float64))
        expected = jacobian @ weights @ jacobian.T
        torch.testing.assert_close(torch.cov(noise[:, part.rows].T), expected, atol=0.06, rtol=0.05)
    only = SMALL.find("only") - 1
    if kind is am.HierarchicalSoftmax:
        assert not noise[:, only].any()  # an only child is certain


def test_the_mean_over_draws_is_the_integral_over_a_gaussian():
    tax = am.Taxonomy.from_nested(["x", "y"])
    head, h, nodes = make(tax=tax, items=20)
    rows = DenseRows.fit(head, [h], nodes, "full", "tree", 1.0)
    query = torch.tensor([[1.0, 0.5]])
    noise = rows.noise(query, normals(50_000, len(head.weight)))
    logits = head.float().logits(query) + noise
    found = head.from_logits(logits).exp()[:, 0, 1].mean()
    covariance = rows.parts[0].block.covariance(torch.tensor([[1.0, 0.5, 1.0]]), 1.0)[0].double().numpy()
    difference = head.logits(query)[0].diff().item() * -1
    points, weights = np.polynomial.hermite_e.hermegauss(60)
    std = math.sqrt(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1])
    expected = (weights / weights.sum()) @ (1 / (1 + np.exp(-(difference + std * points))))
    assert found.item() == pytest.approx(expected, abs=0.005)


def test_the_best_precision_maximises_the_evidence():
    values, squares = torch.tensor([0.0, 0.5, 3.0, 40.0, 200.0]), 6.0
    best = best_precision(values, squares)
    grid = [best * factor for factor in np.geomspace(0.01, 100, 401)]
    evidence = [log_evidence(0.0, values, squares, each) for each in grid]
    assert grid[int(np.argmax(evidence))] == pytest.approx(best, rel=0.02)


def test_the_evidence_agrees_with_numerical_integration_in_one_dimension():
    tax, precision = am.Taxonomy.from_nested(["x", "y"]), 0.5
    draw = np.random.default_rng(0)
    x = draw.normal(size=200)
    is_first = draw.random(200) < 1 / (1 + np.exp(-1.5 * x))
    nodes = np.where(is_first, tax.find("x"), tax.find("y"))
    signed = np.where(is_first, x, -x)

    def log_likelihood(d):  # only the difference of both weights matters
        return -np.logaddexp(0, -np.outer(d, signed)).sum(1)

    # a priori the difference of two weights has the variance 2 / precision
    grid = np.linspace(-6, 8, 20_001)
    log_joint = log_likelihood(grid) - grid**2 * precision / 4 - 0.5 * math.log(4 * math.pi / precision)
    exact = math.log(np.trapezoid(np.exp(log_joint - log_joint.max()), grid)) + log_joint.max()
    best = grid[log_joint.argmax()]
    head = am.HierarchicalSoftmax(1, tax, bias=False).double()
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[best / 2], [-best / 2]]))
    rows = DenseRows.fit(head, [torch.from_numpy(x)[:, None]], nodes, "full", "tree", precision)
    assert rows.evidence == pytest.approx(exact, abs=0.02)


def test_each_parent_may_have_its_own_precision():
    head, h, nodes = make(tax=TREE, width=3)
    shared = DenseRows.fit(head, [h], nodes, "full", "tree", None)
    own = DenseRows.fit(head, [h], nodes, "full", "parent", None)
    assert len({part.precision for part in shared.parts}) == 1
    assert len({part.precision for part in own.parts}) == len(own.parts) == 5
    assert own.evidence >= shared.evidence


def test_labels_at_inner_nodes_count_for_the_softmaxes_on_their_path():
    head, h, _ = make()
    nodes = np.full(len(h), SMALL.find("b"))
    first, *below = DenseRows.fit(head, [h], nodes, "diagonal", "tree", 1.0).parts
    assert first.block.values.abs().sum() > 0
    assert all(part.block.values.abs().sum() == 0 for part in below)


def test_a_sparse_head_has_the_diagonal_form_for_its_stored_weights():
    dense, h, nodes = make()
    head = sparse_copy(dense)
    expected = DenseRows.fit(dense, [h], nodes, "diagonal", "tree", None)
    found = SparseRows.fit(head, [h.float().to_sparse()], nodes, "auto", "tree", None)
    assert found.evidence == pytest.approx(expected.evidence, rel=1e-4)
    query = h[:1].float()
    spread = [each.noise(q, normals(30_000, len(dense.weight))).std(0)[0]
              for each, q in ((expected, query), (found, query.to_sparse()))]  # fmt: skip
    torch.testing.assert_close(spread[0], spread[1], atol=0.02, rtol=0.03)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_a_factor_is_that_of_the_precision(is_sparse):
    dense, h, nodes = make()
    head, features, kind = dense, h, DenseRows
    if is_sparse:
        head, features, kind = sparse_copy(dense), h.float().to_sparse(), SparseRows
    expected = kind.fit(head, [features], nodes, "diagonal", "tree", 6.0)
    found = kind.fit(head, [features], nodes, "diagonal", "tree", 2.0).with_factor(3.0)
    z = normals(5, len(dense.weight))
    query = h[:3].float().to_sparse() if is_sparse else h[:3].float()
    torch.testing.assert_close(found.noise(query, z), expected.noise(query, z))
    assert found.describe()["precision"] == pytest.approx(expected.describe()["precision"])
