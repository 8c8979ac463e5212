"""Word vectors: trained for the words of the training texts, fixed for all others.

B batch, T tokens, E size of a word vector.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arbormax.data.vectors import WordVectors
from arbormax.data.vocabulary import PADDING, Vocabulary


class WordTable(nn.Module):
    """Vectors of the `trained` first words, followed by fixed vectors of words that are only in the vectors file.

    A word outside the training texts keeps its pretrained vector and has no optimizer state.
    """

    kept: Tensor  # (words - trained, E)

    def __init__(self, words: int, size: int, trained: int | None = None) -> None:
        super().__init__()
        self.trained = words if trained is None else trained
        self.weight = nn.Parameter(0.1 * torch.randn(self.trained, size))
        self.register_buffer("kept", torch.zeros(words - self.trained, size))
        with torch.no_grad():
            self.weight[PADDING] = 0.0

    def fill(self, vocabulary: Vocabulary, vectors: WordVectors) -> None:
        """Copy the vectors of the words that have one; the others keep random vectors with the same spread."""
        table = torch.cat([self.weight.detach(), self.kept])
        spread = float(vectors.matrix.std())
        table *= spread / 0.1
        found = [(i, vectors.number[word]) for i, word in enumerate(vocabulary.words) if word in vectors.number]
        if found:
            mine, theirs = torch.tensor(found).T
            table[mine] = torch.from_numpy(vectors.matrix[theirs.numpy()])
        with torch.no_grad():
            self.weight.copy_(table[: self.trained])
            self.kept.copy_(table[self.trained :])

    def forward(self, ids_BT: Tensor) -> Tensor:
        if not len(self.kept):
            return F.embedding(ids_BT, self.weight, padding_idx=PADDING)
        # also in training: words that are too rare for a trained vector may have a fixed one
        own = F.embedding(ids_BT.clamp(max=self.trained - 1), self.weight, padding_idx=PADDING)
        kept = F.embedding((ids_BT - self.trained).clamp(min=0), self.kept)
        return torch.where((ids_BT < self.trained).unsqueeze(-1), own, kept)
