"""Training with row-sparse gradients of the head, beside a dense encoder."""

import numpy as np
import pytest
import torch

from arbormax import Taxonomy
from arbormax.data.examples import Examples
from arbormax.errors import OptionError
from arbormax.model import TrainConfig, load_model, save_model
from arbormax.model.network import Model
from arbormax.training import fit
from arbormax.training.module import TrainingModule

TREE = Taxonomy.from_parents([-1, *(node // 17 for node in range(17 + 17**2 + 17**3))])
NODES = np.repeat(TREE.leaves[:8], 6)
TEXTS = [f"word{node} number{i % 3}" for i, node in enumerate(NODES)]
DATA = Examples(TEXTS, NODES)


def settings(**given):
    return TrainConfig.make(**{"encoder": "lstm", "epochs": 12, "batch_size": 8, "validation": 0.0, "seed": 1, **given})


@pytest.mark.parametrize("encoder", ["lstm", "bag"])
@pytest.mark.parametrize("rates", [{}, {"learning_rate": 0.02, "head_learning_rate": 0.05}])
def test_a_sparse_head_learns_and_leaves_other_rows_unchanged(encoder, rates):
    config = settings(encoder=encoder, sparse_head=True, clip=5.0, **{"learning_rate": 0.02, **rates})
    before = fit(settings(encoder=encoder, sparse_head=True, epochs=1, learning_rate=1e-12), TREE, DATA).model
    model = fit(config, TREE, DATA).model
    touched = (model.head.weight - before.head.weight).abs().amax(1) > 1e-6
    assert touched.sum() == 51  # the siblings on the path to the first seventeen classes
    logp = torch.cat(list(model.node_log_probs(TEXTS)))[:, torch.tensor(TREE.leaves)]
    assert (TREE.leaves[logp.argmax(1).numpy()] == NODES).mean() > 0.9


def test_every_optimiser_has_the_epsilon_that_was_set():
    config = settings(encoder="bag", sparse_head=True, schedule="constant", adam_epsilon=0.5).resolved()
    optimiser = TrainingModule(Model.new(TEXTS, TREE, config), "class").configure_optimizers()
    assert [group["eps"] for group in optimiser.param_groups] == [0.5] * len(optimiser.param_groups)


def test_a_stopped_run_with_a_sparse_head_ends_with_the_same_weights(tmp_path):
    import pytorch_lightning as pl

    class Stop(pl.Callback):
        def on_train_batch_start(self, trainer, *_):
            if trainer.global_step == 9:
                raise InterruptedError

    config = settings(sparse_head=True, epochs=3)
    whole = fit(config, TREE, DATA).model
    with pytest.raises(InterruptedError):
        fit(config, TREE, DATA, folder=tmp_path, callbacks=[Stop()], every_steps=4)
    resumed = fit(config, TREE, DATA, folder=tmp_path, resume=True).model
    for one, other in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_model_with_a_sparse_head_is_saved_and_loaded(tmp_path):
    model = fit(settings(sparse_head=True, epochs=1), TREE, DATA).model
    loaded = load_model(save_model(model, tmp_path / "model", {}))
    assert loaded.head.sparse
    assert torch.equal(loaded.head.weight, model.head.weight)


def test_an_unsupported_sparse_head_is_an_error():
    with pytest.raises(OptionError, match=r"sparse_head: not possible with head 'flat'; try head='hierarchical'"):
        settings(sparse_head=True, head="flat").resolved()
    with pytest.raises(OptionError, match="not possible with encoder 'tfidf', whose features are sparse"):
        fit(settings(encoder="tfidf", sparse_head=True, epochs=1), TREE, DATA)
