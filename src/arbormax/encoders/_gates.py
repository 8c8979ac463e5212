"""Gates of terms, which are words or n-grams, from the gates of words.

W words of a text, T its terms, O their occurrences.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def term_gates(
    gates_W: Tensor, terms_O: np.ndarray, ends_O: np.ndarray, lengths_O: np.ndarray, num_terms: int
) -> Tensor:
    """(T,) the gate of each term: the mean over its occurrences, and in each of them over its words.

    The contribution of an n-gram is therefore divided equally among its words.

    >>> gates = torch.tensor([1.0, 2.0, 4.0])
    >>> term_gates(gates, np.array([0, 1, 1]), np.array([2, 1, 2]), np.array([1, 2, 2]), 2)
    tensor([4.0000, 2.2500])
    """
    starts = np.cumsum(lengths_O) - lengths_O
    words = np.arange(lengths_O.sum()) - np.repeat(starts - (ends_O - lengths_O + 1), lengths_O)
    shares_O = 1.0 / (lengths_O * np.bincount(terms_O, minlength=num_terms)[terms_O])
    device, dtype = gates_W.device, gates_W.dtype
    shares = torch.from_numpy(np.repeat(shares_O, lengths_O)).to(device, dtype)
    members = gates_W[torch.from_numpy(words).to(device)] * shares
    places = torch.from_numpy(np.repeat(terms_O, lengths_O)).to(device)
    return torch.zeros(num_terms, device=device, dtype=dtype).index_add(0, places, members)
