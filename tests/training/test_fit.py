"""Training on a toy task: it learns, settings reach the loss, a seed decides all, misuse is result."""

import gc
import weakref

import numpy as np
import pytest
import pytorch_lightning as pl
import torch

from arbormax import Taxonomy
from arbormax.data.examples import Examples
from arbormax.errors import ArbormaxError, InputError, OptionError
from arbormax.studies import evaluate
from arbormax.training import fit
from toy import TREE, examples, same_weights, settings


def accuracy(model, data):
    return evaluate(model, data).metrics["accuracy"]


@pytest.mark.parametrize("head", ["hierarchical", "flat", "shared"])
@pytest.mark.parametrize("encoder", ["bag", "lstm", "bilstm"])
def test_every_encoder_with_every_head_learns(encoder, head):
    run = fit(settings(encoder, head=head, validation=0), TREE, examples(90))
    assert accuracy(run.model, examples(30, seed=9)) > 0.8
    assert (run.epochs, run.best_epoch, run.valid_macro_f1) == (12, 12, None)
    assert run.seconds > 0
    assert not run.model.training


@pytest.mark.parametrize("head", ["hierarchical", "flat", "shared"])
def test_labels_at_any_depth_train(head):
    data = examples(90, inner=0.3)
    assert (TREE.class_of[data.nodes] < 0).any()
    run = fit(settings(head=head, validation=0.2, epochs=20), TREE, data)
    assert accuracy(run.model, examples(30, seed=9)) > 0.9


def test_some_labels_at_the_root_do_no_harm():
    data = examples(60)
    nodes = data.nodes.copy()
    nodes[::10] = 0
    assert accuracy(fit(settings(validation=0), TREE, Examples(data.inputs, nodes)).model, data) > 0.7


def test_a_model_is_freed_with_its_last_reference(tmp_path):
    gc.collect()
    gc.disable()  # many trainings in a row must not wait for it
    try:
        run = fit(settings(epochs=1), TREE, examples(40), folder=tmp_path / "run")
        seen = weakref.ref(run.model)
        del run
        assert seen() is None
    finally:
        gc.enable()


def test_the_model_of_a_failed_training_is_freed():
    seen = []

    class Fails(pl.Callback):
        def on_train_epoch_end(self, trainer, module):
            seen.append(weakref.ref(module.model))
            raise ArithmeticError("enough")

    gc.collect()
    gc.disable()
    try:
        with pytest.raises(ArithmeticError) as result:
            fit(settings(epochs=1), TREE, examples(40), callbacks=[Fails()])
        result.value.__traceback__ = None
        del result
        assert seen[0]() is None
    finally:
        gc.enable()


def test_the_validation_part_selects_the_weights():
    seen = []

    class Look(pl.Callback):
        def on_validation_end(self, trainer, module):
            seen.append((float(trainer.callback_metrics["valid/macro_f1"]), module.model.head.weight.clone()))

    config = settings(epochs=6, learning_rate=0.02, head="hierarchical")
    run = fit(config, TREE, examples(60), examples(30, seed=5), callbacks=[Look()])
    scores = [score for score, _ in seen]
    assert len(scores) == run.epochs == 6
    assert run.best_epoch == scores.index(max(scores)) + 1
    assert run.valid_macro_f1 == pytest.approx(max(scores))
    assert torch.equal(run.model.head.weight, seen[run.best_epoch - 1][1])
    found = evaluate(run.model, examples(30, seed=5)).metrics["macro_f1"]
    assert found == pytest.approx(run.valid_macro_f1)


def test_early_stopping_restores_the_best_weights():
    config = settings(epochs=50, patience=2, learning_rate=0.2)
    run = fit(config, TREE, examples(60), examples(30, seed=5))
    assert run.epochs < 50
    assert run.best_epoch == run.epochs - 2
    assert evaluate(run.model, examples(30, seed=5)).metrics["macro_f1"] == pytest.approx(run.valid_macro_f1)


@pytest.mark.parametrize("encoder", ["bag", "bilstm"])
def test_the_same_seed_gives_the_same_weights(encoder):
    valid = examples(12, seed=4)  # given, so that another seed learns the same words
    runs = [fit(settings(encoder, epochs=2, seed=seed), TREE, examples(60), valid) for seed in (1, 1, 2)]
    assert same_weights(runs[0].model, runs[1].model)
    assert not same_weights(runs[0].model, runs[2].model)


def test_the_random_state_of_the_caller_is_unchanged():
    torch.manual_seed(7)
    wanted = torch.rand(1)
    torch.manual_seed(7)
    fit(settings(epochs=1), TREE, examples(20))
    assert torch.equal(torch.rand(1), wanted)


def rare_class():
    """Texts that tell nothing of a common and a rare class, so that only the weights decide."""
    nodes = TREE.leaves[[0] * 36 + [1] * 4]
    return Examples(["the same text"] * 40, nodes)


def test_balanced_weights_shift_predictions_to_a_rare_class():
    common, rare = (
        fit(settings(validation=0, class_weight=weight, epochs=80, batch_size=40), TREE, rare_class()).model
        for weight in (None, "balanced")
    )
    first, second = (
        torch.cat(list(model.node_log_probs(["the same text"])))[0, TREE.leaves.tolist()].exp()
        for model in (common, rare)
    )
    assert first[1] < 0.2
    assert second[1] == pytest.approx(0.5, abs=0.1)


def test_weights_by_name_reach_the_loss_and_are_checked():
    heavy = fit(settings(validation=0, class_weight={"hen": 50.0}, epochs=30), TREE, rare_class()).model
    assert evaluate(heavy, rare_class()).predicted[0] == TREE.find("hen")
    with pytest.raises(ArbormaxError, match="heron"):
        fit(settings(class_weight={"heron": 2.0}), TREE, examples(30))
    with pytest.raises(OptionError, match="class_weight: expected weights of at least 0"):
        fit(settings(class_weight={"hen": -2.0}), TREE, examples(30))


@pytest.mark.parametrize(
    "option", [{"gamma": 2.0}, {"label_smoothing": 0.1}, {"logit_adjustment": 1.0}, {"hxe_alpha": 0.5}]
)
def test_options_of_the_loss_change_the_training(option):
    assert_training_changes("hierarchical", option)


@pytest.mark.parametrize("head", ["flat", "shared"])
def test_smoothing_changes_the_training_of_every_head(head):
    assert_training_changes(head, {"label_smoothing": 0.1})


@pytest.mark.parametrize("head", ["flat", "shared"])
def test_a_path_weight_changes_the_training_of_heads_with_one_softmax(head):
    assert_training_changes(head, {"path_weight": 0.5})


def test_path_weights_of_a_wrong_number_of_levels_are_an_error():
    with pytest.raises(OptionError, match="path_weight: expected one share for each of 2 levels"):
        fit(settings(head="flat", path_weight=(0.1, 0.2, 0.3)), TREE, examples(31))


def assert_training_changes(head, option):
    plain, other = (
        fit(settings(validation=0, epochs=3, head=head, **given), TREE, examples(31)).model for given in ({}, option)
    )
    assert not same_weights(plain, other)
    assert all(parameter.isfinite().all() for parameter in other.parameters())


def test_the_rate_falls_over_the_epochs_after_a_warm_up():
    rates = []

    class Look(pl.Callback):
        def on_train_batch_start(self, trainer, module, batch, step):
            rates.append([group["lr"] for group in trainer.optimizers[0].param_groups])

    config = settings(schedule="linear", warmup=0.25, epochs=4, head_learning_rate=0.1, validation=0)
    fit(config, TREE, examples(40), callbacks=[Look()])
    head, rare = np.array(rates).T
    assert len(head) == 20
    assert head == pytest.approx(2 * rare)
    assert head.argmax() == 5
    assert head.max() == pytest.approx(0.1)
    assert (np.diff(head[5:]) < 0).all()
    assert 0 < head[-1] < 0.01


@pytest.mark.parametrize("clip", [None, 1e-6])
def test_gradients_are_clipped_if_clip_is_set(clip):
    norms = []

    class Look(pl.Callback):
        def on_train_batch_end(self, trainer, module, *_):
            norms.append(float(module.model.head.weight.grad.norm()))

    fit(settings("lstm", clip=clip, epochs=1, validation=0), TREE, examples(40), callbacks=[Look()])
    assert (min(norms) <= 1e-6) is (clip is not None)


def test_weight_decay_shrinks_the_head():
    sizes = [
        fit(settings(validation=0, epochs=5, weight_decay=decay), TREE, examples(40)).model.head.weight.norm().item()
        for decay in (0.0, 1.0)
    ]
    assert sizes[1] < sizes[0]


def test_bfloat16_trains(monkeypatch):
    # this CPU has no bf16 instructions and oneDNN then crashes
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    run = fit(settings("bag", precision="bf16-mixed", validation=0), TREE, examples(60))
    assert accuracy(run.model, examples(30, seed=9)) > 0.9
    assert run.model.head.weight.dtype == torch.float32


ONE = Taxonomy.from_paths([("only",)])
CHAIN = Taxonomy.from_paths([("a", "b", "only")])


@pytest.mark.parametrize("head", ["hierarchical", "flat", "shared"])
@pytest.mark.parametrize("encoder", ["bag", "bilstm"])
@pytest.mark.parametrize("tax", [ONE, CHAIN], ids=["star", "chain"])
def test_one_class_only_trains(encoder, head, tax):
    data = Examples(["a b", "c", ""], np.full(3, tax.leaves[0]))
    run = fit(settings(encoder, head=head, epochs=2), tax, data)
    assert run.valid_macro_f1 == 1.0


@pytest.mark.parametrize("encoder", ["bag", "bilstm"])
def test_one_example_trains_without_validation(encoder):
    data = Examples(["owl"], TREE.leaves[:1])
    assert accuracy(fit(settings(encoder, validation=0), TREE, data).model, data) == 1.0
    with pytest.raises(OptionError, match="try validation=0"):
        fit(settings(encoder), TREE, data)


def test_examples_of_a_single_class_train():
    data = Examples(["owl here", "owl", "an owl", "owl owl"], np.full(4, TREE.leaves[2]))
    run = fit(settings(class_weight="balanced", logit_adjustment=1.0), TREE, data)
    assert accuracy(run.model, data) == 1.0


@pytest.mark.parametrize("encoder", ["bag", "bilstm"])
def test_a_batch_may_be_larger_than_the_data(encoder):
    assert fit(settings(encoder, batch_size=10_000, epochs=2), TREE, examples(20)).epochs == 2


@pytest.mark.parametrize("encoder", ["bag", "lstm", "bilstm"])
@pytest.mark.parametrize("tokens", ["words", "whitespace"])
def test_odd_texts_train(encoder, tokens):
    odd = [
        "",
        "?!…",
        "😀👍🏽",
        "owl\x00 \x00",
        "\ud800 \udfff",
        "owl " * 2000,
        "<padding>",
        "<unknown>",
        "\u202e\ufeff",
        "\n",
    ]
    data = Examples(odd * 2, np.tile(TREE.leaves, 4)[:20])
    run = fit(settings(encoder, epochs=2, encoder_options={"tokens": tokens}), TREE, data)
    assert all(parameter.isfinite().all() for parameter in run.model.parameters())


def test_texts_without_words_train():
    data = Examples([""] * 12, np.tile(TREE.leaves, 2))
    for encoder in ("bag", "bilstm"):
        assert fit(settings(encoder, epochs=2), TREE, data).epochs == 2


def test_ten_thousand_classes_train():
    tax = Taxonomy.from_paths([(f"g{i // 100}", f"c{i}") for i in range(10_000)])
    data = Examples([f"word{i % 500}" for i in range(1000)], tax.leaves[np.arange(1000) % 500])
    run = fit(settings(epochs=1, batch_size=64), tax, data)
    assert run.valid_macro_f1 is not None


def test_invalid_examples_are_an_error():
    nothing = Examples([], np.zeros(0))
    for config in (settings(), settings(validation=0)):
        with pytest.raises(InputError, match="no examples to train on"):
            fit(config, TREE, nothing)
    with pytest.raises(InputError, match="no examples to validate on"):
        fit(settings(), TREE, examples(20), nothing)
    with pytest.raises(InputError, match="has the root as its label"):
        fit(settings(), TREE, Examples(["a", "b"], np.zeros(2)))
    for node in (-1, TREE.num_nodes):
        wrong = Examples(["a", "b", "c"], np.array([node, 3, 3]))
        with pytest.raises(InputError, match=f"node ids from 0 to {TREE.num_nodes - 1}"):
            fit(settings(), TREE, wrong)
        with pytest.raises(InputError, match=f"node ids from 0 to {TREE.num_nodes - 1}"):
            fit(settings(), TREE, examples(20), wrong)


def test_logs_of_the_run_are_in_its_folder(tmp_path):
    fit(settings(epochs=3), TREE, examples(60), folder=tmp_path)
    lines = (tmp_path / "logs" / "metrics.csv").read_text().splitlines()
    assert "valid/macro_f1" in lines[0]
    assert len(lines) > 3


def test_early_stopping_sees_labels_that_are_all_inner_nodes():
    tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z", "w"]})
    nodes = np.tile(tax.find_many(["a", "b"]), 60)
    data = Examples([f"word{node} and more" for node in nodes], nodes)
    run = fit(settings("bag", epochs=8, patience=2, validation=0.2), tax, data)
    assert run.valid_macro_f1 > 0.9
    assert run.best_epoch > 1 or run.valid_macro_f1 == 1.0
    assert evaluate(run.model, data).metrics["level_accuracy"][0] > 0.9


def test_a_failed_training_restores_the_signal_handlers(tmp_path):
    import signal

    class Broken(pl.Callback):
        def on_train_batch_start(self, *_):
            raise KeyError("broken")

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyError):
        fit(settings(), TREE, examples(30), folder=tmp_path, callbacks=[Broken()])
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
