"""Encoders turn texts into features. `ENCODERS` lists them by name; the classes are imported on first use."""

from typing import TYPE_CHECKING

from arbormax._lazy import lazy_names
from arbormax.encoders.registry import ENCODERS, register

if TYPE_CHECKING:
    from arbormax.encoders.bag import BagEncoder
    from arbormax.encoders.base import Encoder, EncoderOptions
    from arbormax.encoders.features import FeaturesEncoder
    from arbormax.encoders.lstm import BiLSTMEncoder, LSTMEncoder
    from arbormax.encoders.tfidf import TfidfEncoder
    from arbormax.encoders.transformer import TransformerEncoder

__all__ = [
    "ENCODERS",
    "BagEncoder",
    "BiLSTMEncoder",
    "Encoder",
    "EncoderOptions",
    "FeaturesEncoder",
    "LSTMEncoder",
    "TfidfEncoder",
    "TransformerEncoder",
    "register",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "bag": ("BagEncoder",),
        "base": ("Encoder", "EncoderOptions"),
        "features": ("FeaturesEncoder",),
        "lstm": ("BiLSTMEncoder", "LSTMEncoder"),
        "tfidf": ("TfidfEncoder",),
        "transformer": ("TransformerEncoder",),
    },
)
