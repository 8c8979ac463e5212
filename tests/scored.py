"""Random trees with node log-probabilities of exactly known probabilities, ties and zeros among them."""

import math

import torch
from hypothesis import settings
from hypothesis import strategies as st

from strategies import taxonomies

# the machine may be busy: a slow example is no failure
examples = settings(deadline=None, max_examples=80)


@st.composite
def log_probs(draw, tax, rows):
    """(rows, N) float64 node log-probabilities of leaves with small whole weights."""
    weights = st.lists(st.integers(0, 4), min_size=tax.num_leaves, max_size=tax.num_leaves).filter(any)
    logp = []
    for _ in range(rows):
        share = tax.sum_up(draw(weights)).tolist()
        logp.append([math.log(part / share[0]) if part else -math.inf for part in share])
    return torch.tensor(logp, dtype=torch.float64).reshape(rows, tax.num_nodes)


@st.composite
def scored_trees(draw, max_rows=4):
    """A taxonomy and (B, N) node log-probabilities for it."""
    tax = draw(taxonomies(max_nodes=12))
    return tax, draw(log_probs(tax, draw(st.integers(0, max_rows))))


@st.composite
def judged_trees(draw, max_items=12):
    """A taxonomy, true node ids and predicted node ids, inner nodes and the root among them."""
    tax = draw(taxonomies(max_nodes=12))
    pairs = draw(st.lists(st.tuples(*[st.integers(0, tax.num_nodes - 1)] * 2), max_size=max_items))
    return tax, [true for true, _ in pairs], [pred for _, pred in pairs]
