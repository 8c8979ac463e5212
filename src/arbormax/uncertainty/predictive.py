"""The uncertainty of every node for many inputs.

n inputs, N nodes.
"""

from __future__ import annotations

import numpy as np
import torch

from arbormax.model.draws import decompose, node_draws
from arbormax.model.network import Model, ModelInputs

FIELDS = (
    *("probability", "std", "total", "aleatoric", "epistemic"),
    *("children_total", "children_aleatoric", "children_epistemic"),
)


def predict_uncertainty(model: Model, inputs: ModelInputs, batch_size: int = 256) -> dict[str, np.ndarray]:
    """(n, N) float32 arrays by the names of `FIELDS`, which `arbormax.model.draws.decompose` defines."""
    tax = model.taxonomy
    parts: dict[str, list[np.ndarray]] = {name: [np.zeros((0, tax.num_nodes), np.float32)] for name in FIELDS}
    with torch.inference_mode():
        for logp_SBN in node_draws(model, inputs, batch_size):
            for name, values in decompose(logp_SBN, tax).items():
                parts[name].append(values.float().numpy())
    return {name: np.concatenate(found) for name, found in parts.items()}
