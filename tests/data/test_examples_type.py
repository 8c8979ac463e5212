"""Examples with texts and with feature matrices."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from arbormax.data import Examples
from arbormax.errors import InputError

NODES = np.array([3, 1, 2])
MATRIX = np.arange(6, dtype=np.float32).reshape(3, 2)


@pytest.mark.parametrize("inputs", [["a", "b", "c"], MATRIX, csr_array(MATRIX)], ids=["texts", "dense", "sparse"])
def test_take_selects_inputs_and_nodes(inputs):
    taken = Examples(inputs, NODES).take([2, 0])
    assert len(taken) == 2
    assert taken.nodes.tolist() == [2, 3]
    if isinstance(inputs, list):
        assert taken.inputs == ["c", "a"]
    else:
        rows = taken.inputs if isinstance(taken.inputs, np.ndarray) else taken.inputs.toarray()
        assert np.array_equal(rows, MATRIX[[2, 0]])


@pytest.mark.parametrize("inputs", [["a", "b", "c"], MATRIX, csr_array(MATRIX)], ids=["texts", "dense", "sparse"])
def test_the_digest_depends_on_inputs_labels_and_order(inputs):
    examples = Examples(inputs, NODES)
    assert examples.digest() == Examples(inputs, NODES.copy()).digest()
    assert examples.digest() != Examples(inputs, NODES[::-1]).digest()
    assert examples.digest() != examples.take([1, 0, 2]).digest()


def test_the_number_of_labels_must_match():
    for inputs in (["a"], MATRIX, csr_array(MATRIX)):
        with pytest.raises(InputError, match="expected one label per example"):
            Examples(inputs, NODES[:2])


def test_texts_must_be_strings():
    with pytest.raises(InputError, match="text 1 is of type int"):
        Examples(["a", 1], NODES[:2])
