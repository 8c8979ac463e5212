"""The sentence that says why a prediction stops above the classes."""

import numpy as np
import pytest

import arbormax as am
from arbormax.model.predict import Decoding
from arbormax.model.reason import stop_reason

TREE = am.Taxonomy.from_nested({"bird": ["owl", "hen", "duck", "crow", "gull"], "fish": ["cod"]})


def logs(bird, *children):
    with np.errstate(divide="ignore"):
        return np.log([1.0, bird, 1 - bird, *children, 1 - bird])


@pytest.mark.parametrize(
    ("children", "because"),
    [
        ((0.48, 0.43, 0.01, 0.02, 0.01), "two children share 91 %: owl 48 %, hen 43 %"),
        ((0.3, 0.01, 0.3, 0.3, 0.04), "three children share 90 %: owl 30 %, duck 30 %, crow 30 %"),
        ((0.0, 0.9, 0.05, 0.0, 0.0), "its best child has only 90 %: hen"),
        ((0.19, 0.19, 0.2, 0.18, 0.19), "95 % are spread over 5 children, of which the best is duck 20 %"),
    ],
)
def test_the_reason_names_the_children_that_compete(children, because):
    reason = stop_reason(TREE, 1, logs(0.95, *children))
    assert reason == f"The prediction stops at bird (95 %), because {because}."


def test_the_root_and_extreme_probabilities_have_a_reason():
    assert stop_reason(TREE, 0, logs(0.6, 0.6, 0, 0, 0, 0)) == (
        "The prediction stops at the root, because two children share 100 %: bird 60 %, fish 40 %."
    )
    assert "its best child has only > 99 %: bird" in stop_reason(TREE, 0, logs(0.999, 0.6, 0.399, 0, 0, 0))
    assert "hen < 1 %" not in stop_reason(TREE, 1, logs(0.5, 0.499, 0.001, 0, 0, 0))


@pytest.mark.parametrize(
    ("decoding", "condition"),
    [
        (Decoding("threshold", {"tau": 0.9}), "With a threshold of 90 %, the"),
        (Decoding("threshold"), "With a threshold of 50 %, the"),
        (
            Decoding("climb", {"tau": 0.6213}, coverage=0.9),
            "With a coverage of 90 % (a probability above 62.13 %), the",
        ),
        (Decoding("optimal"), "The"),
    ],
)
def test_the_reason_names_what_was_asked_for(decoding, condition):
    reason = stop_reason(TREE, 1, logs(0.95, 0.48, 0.43, 0.01, 0.02, 0.01), decoding.condition)
    assert reason.startswith(f"{condition} prediction stops at bird (95 %), because ")


def test_a_class_has_no_reason():
    assert stop_reason(TREE, TREE.find("owl"), logs(0.95, 0.9, 0.05, 0, 0, 0)) is None


def test_an_only_child_is_not_called_less_probable():
    tax = am.Taxonomy.from_nested({"a": ["x"], "b": ["z"]})
    logp = np.log([1, 0.95, 0.05, 0.95, 0.05])
    assert stop_reason(tax, 1, logp) == "The prediction stops at a (95 %), because x is its only child."
