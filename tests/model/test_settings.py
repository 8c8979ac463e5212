"""Settings: the preset, what wins over it, and what is refused."""

import pytest

from arbormax.errors import OptionError
from arbormax.model import TrainConfig


def test_the_paper_preset_has_the_papers_values():
    config = TrainConfig.make(preset="paper").resolved()
    assert (config.encoder, config.batch_size, config.clip, config.weight_decay) == ("bilstm", 10, 5.0, 0.0)
    assert (config.learning_rate, config.head_learning_rate, config.schedule) == (1e-3, 1e-3, "constant")
    assert (config.options.hidden, config.options.dropout, config.options.tokens) == (150, 0.5, "whitespace")


def test_given_values_override_the_preset():
    config = TrainConfig.make(preset="paper", batch_size=7, clip=1.0, encoder_options={"hidden": 9}).resolved()
    assert (config.batch_size, config.clip, config.options.hidden, config.options.dropout) == (7, 1.0, 9, 0.5)


def test_another_encoder_does_not_get_the_presets_options():
    config = TrainConfig.make(preset="paper", encoder="bag")
    assert config.encoder_options == {}
    assert config.resolved().batch_size == 10


def test_using_a_preset_does_not_change_it():
    TrainConfig.make(preset="paper", encoder_options={"hidden": 9})
    assert TrainConfig.make(preset="paper").options.hidden == 150


@pytest.mark.parametrize("encoder", ["bag", "lstm", "bilstm"])
def test_resolved_settings_are_complete_and_keep_given_values(encoder):
    config = TrainConfig.make(encoder=encoder, epochs=3, learning_rate=0.5).resolved()
    named = ("batch_size", "learning_rate", "head_learning_rate", "schedule", "warmup", "epochs")
    assert all(getattr(config, name) is not None for name in named)
    assert (config.epochs, config.learning_rate, config.head_learning_rate) == (3, 0.5, 0.5)
    assert config.resolved() == config


@pytest.mark.parametrize(
    ("given", "head"),
    [
        ({}, "blended"),
        ({"encoder": "bag"}, "shared"),
        ({"encoder": "bag", "adapter": 8}, "hierarchical"),
        ({"encoder": "bag", "sparse_head": True}, "hierarchical"),
        ({"gamma": 1.0}, "hierarchical"),
        ({"path_weight": 0.3}, "blended"),
        ({"head": "flat"}, "flat"),
        ({"preset": "paper"}, "hierarchical"),
    ],
)
def test_the_default_head_suits_the_encoder_and_the_settings(given, head):
    assert TrainConfig.make(**given).head == head
    assert TrainConfig.make(**{"head": None, **given}).head == head


def test_the_default_head_of_very_many_classes_is_hierarchical():
    assert TrainConfig.make().resolved(classes=5_000).head == "blended"
    assert TrainConfig.make().resolved(classes=5_001).head == "hierarchical"
    assert TrainConfig.make(head="flat").resolved(classes=100_000).head == "flat"


def test_settings_are_restored_from_json():
    config = TrainConfig.make(preset="paper", class_weight={"owl": 2.0}).resolved()
    assert TrainConfig.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"preset": "papr"}, "preset: unknown preset 'papr'; did you mean 'paper'"),
        ({"preset": 3}, "preset: unknown preset 3 .available: paper"),
        ({"epoch": 3}, "no option 'epoch'; did you mean 'epochs'"),
        ({"zzz": 3}, "no option 'zzz' .available: .*batch_size"),
        ({"epochs": 0}, "epochs: expected a number of at least 1, found 0"),
        ({"epochs": "many"}, "epochs: .*found 'many'"),
        ({"learning_rate": -1.0}, "learning_rate: .*greater than 0"),
        ({"learning_rate": float("nan")}, "learning_rate: .*finite"),
        ({"learning_rate": float("inf")}, "learning_rate: .*finite"),
        ({"head": "flatt"}, "head: unknown head 'flatt'; did you mean 'flat'"),
        ({"validation": 1.0}, "validation: .*less than 1"),
        ({"seed": -1}, "seed: "),
        ({"precision": "8-bit"}, "precision: .*'32-true'"),
        ({"schedule": "cosine"}, "schedule: .*'linear' or 'constant'"),
        ({"class_weight": "balance"}, "class_weight"),
        ({"class_weight": {"owl": "heavy"}}, "class_weight"),
        ({"encoder": "bilstn"}, "did you mean 'bilstm'"),
        ({"encoder": 3}, "encoder: .*string"),
        ({"encoder": "bag", "encoder_options": {"dims": 3}}, "encoder 'bag' has no option 'dims'; did you mean 'dim'"),
        ({"encoder": "bag", "encoder_options": {"dim": 0}}, "dim: expected a number of at least 1"),
        ({"encoder_options": [1]}, "encoder_options: .*dictionary"),
        ({"preset": "paper", "encoder_options": [1]}, "encoder_options: .*dictionary"),
        ({"preset": "paper", "encoder_options": {"hiden": 3}}, "no option 'hiden'; did you mean 'hidden'"),
        (
            {"head": "flat", "gamma": 1.0, "logit_adjustment": 1.0},
            "gamma: acts on sibling groups, .*; try head='hierarchical'\nlogit_adjustment: ",
        ),
        ({"head": "shared", "hxe_alpha": 0.0}, "hxe_alpha: acts on sibling groups, which head 'shared' does not have"),
        (
            {"head": "hierarchical", "path_weight": 0.5},
            "path_weight: acts on sums over leaves, which head 'hierarchical' .*; try head='flat' or head='shared'",
        ),
        ({"head": "flat", "adapter": 8}, "adapter: not possible with head 'flat'; try head='hierarchical'"),
        ({"encoder": "tfidf", "adapter": 8}, "adapter: not possible with encoder 'tfidf', whose features are sparse"),
        ({"adapter": -1}, "adapter: expected a number of at least 0, found -1"),
        ({"head": "flat", "path_weight": 1.0}, "path_weight: expected one number, or one for each level, with a sum"),
        ({"head": "flat", "path_weight": [0.6, 0.6]}, "path_weight: expected one number.*found \\[0.6, 0.6\\]"),
        ({"head": "flat", "path_weight": -0.1}, "path_weight: expected one number"),
        ({"head": "flat", "path_weight": "half"}, "path_weight: expected one number.*found 'half'"),
        ({"head": "flat", "path_weight": ()}, "path_weight: expected one number"),
    ],
)
def test_invalid_settings_are_an_error_with_a_hint(given, message):
    with pytest.raises(OptionError, match=message):
        TrainConfig.make(**given).resolved()


def test_one_error_lists_all_invalid_settings():
    with pytest.raises(OptionError) as caught:
        TrainConfig.make(epochs=0, batchsize=3, head="x")
    assert len(str(caught.value).splitlines()) == 3


def test_settings_are_immutable():
    with pytest.raises(ValueError, match="frozen"):
        TrainConfig.make().epochs = 3
