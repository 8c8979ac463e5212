"""An encoder as a user would write it: the feature of a text is its length."""

import numpy as np
import torch
from torch import nn

from arbormax.data.ragged import Ragged
from arbormax.encoders import Encoder, register


@register
class LengthEncoder(Encoder):
    name = "length"

    def __init__(self, options):
        super().__init__()
        self.options, self.out_features = options, 4
        self.layer = nn.Sequential(nn.Linear(1, 16), nn.ReLU(), nn.Linear(16, 4))

    @classmethod
    def fit(cls, texts, options):
        return cls(options)

    def encode(self, texts):
        return Ragged.from_lengths(np.array([len(text) for text in texts]), np.ones(len(texts), dtype=np.int64))

    def collate(self, rows):
        return (torch.from_numpy(rows.values).float()[:, None],)

    def forward(self, *inputs):
        return self.layer(inputs[0])

    @classmethod
    def load(cls, folder, options):
        return cls(options)
