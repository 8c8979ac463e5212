"""Training with residual adapters per level."""

import numpy as np
import pytest
import torch

import arbormax as am
from arbormax import Taxonomy
from arbormax.data.examples import Examples
from arbormax.errors import OptionError
from arbormax.model import TrainConfig, load_model, save_model
from arbormax.training import fit

TREE = Taxonomy.from_nested({"a": {"b": ["x", "y"], "c": ["z"]}, "d": ["u", "v"]})
NODES = np.repeat(TREE.leaves, 6)
TEXTS = [f"word{node} number{i % 3}" for i, node in enumerate(NODES)]
DATA = Examples(TEXTS, NODES)


def settings(**given):
    usual = {"encoder": "bag", "epochs": 12, "batch_size": 8, "validation": 0.0, "seed": 1, "adapter": 4}
    return TrainConfig.make(**{**usual, "learning_rate": 0.02, **given})


@pytest.mark.parametrize("sparse_head", [False, True])
@pytest.mark.parametrize("encoder", ["lstm", "bag"])
@pytest.mark.parametrize("rates", [{}, {"head_learning_rate": 0.05}])
def test_adapters_are_trained_with_the_head(encoder, sparse_head, rates):
    model = fit(settings(encoder=encoder, sparse_head=sparse_head, **rates), TREE, DATA).model
    assert model.head.adapters.up.abs().amax() > 1e-3
    logp = torch.cat(list(model.node_log_probs(TEXTS)))[:, torch.tensor(TREE.leaves)]
    assert (TREE.leaves[logp.argmax(1).numpy()] == NODES).mean() > 0.9


def test_without_adapters_nothing_changes():
    plain, zero = (fit(settings(epochs=2, **given), TREE, DATA).model for given in ({"adapter": 0}, {"adapter": 0}))
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), zero.parameters(), strict=True))
    assert not any("adapters" in name for name, _ in plain.named_parameters())


def test_a_model_with_adapters_is_saved_loaded_and_edited(tmp_path):
    model = fit(settings(), TREE, DATA).model
    loaded = load_model(save_model(model, tmp_path / "model", {}))
    assert loaded.head.adapter == 4
    for text in TEXTS[:3]:
        assert torch.equal(next(loaded.node_log_probs([text])), next(model.node_log_probs([text])))
    am.edit(loaded).add("w", under="d").done()
    again = load_model(save_model(loaded, tmp_path / "edited", {}))
    assert again.taxonomy.classes[-1] == "w"
    assert torch.equal(again.head.adapters.up, model.head.adapters.up)


def test_the_estimators_take_adapters():
    clf = am.TextClassifier(TREE, encoder="bag", adapter=4, epochs=2, validation=0).fit(
        TEXTS, [TREE.path(n) for n in NODES]
    )
    assert clf.model_.head.adapter == 4
    X = np.random.default_rng(0).normal(size=(len(NODES), 5)).astype(np.float32)
    labels = ["/".join(TREE.path(n)) for n in NODES]
    matrix = am.HierarchicalClassifier(TREE, adapter=3, epochs=2, validation=0).fit(X, labels)
    assert matrix.model_.head.adapter == 3
    with pytest.raises(OptionError, match="adapter: not possible with head 'flat'"):
        am.TextClassifier(TREE, head="flat", adapter=4).fit(TEXTS, [TREE.path(n) for n in NODES])


def test_sparse_matrices_are_refused():
    sparse = pytest.importorskip("scipy.sparse")
    X = sparse.random(len(NODES), 9, density=0.5, format="csr", dtype=np.float32, rng=0)
    clf = am.HierarchicalClassifier(TREE, adapter=3, epochs=1, validation=0)
    with pytest.raises(OptionError, match="adapter: not possible with encoder 'features', whose features are sparse"):
        clf.fit(X, ["/".join(TREE.path(n)) for n in NODES])
