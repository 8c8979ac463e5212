"""Decoders: node log-probabilities (..., N) to node ids (...,)."""

from arbormax.decode._basic import greedy, leaf, threshold

__all__ = ["greedy", "leaf", "threshold"]
