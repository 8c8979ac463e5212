"""Encoders turn texts into features. `ENCODERS` lists them by name; the classes are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from arbormax._lazy import lazy_names
from arbormax._registry import Registry

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

E = TypeVar("E", bound="Encoder")

ENCODERS: Registry[type[Encoder]] = Registry("encoder")
ENCODERS.add("bag", "arbormax.encoders.bag:BagEncoder", "mean of vectors of words and characters; the fastest on a CPU")
ENCODERS.add("lstm", "arbormax.encoders.lstm:LSTMEncoder", "last hidden state of an LSTM")
ENCODERS.add("bilstm", "arbormax.encoders.lstm:BiLSTMEncoder", "last hidden states of two LSTMs, one per direction")
ENCODERS.add("tfidf", "arbormax.encoders.tfidf:TfidfEncoder", "TF-IDF of words and characters; a linear classifier")
ENCODERS.add("transformer", "arbormax.encoders.transformer:TransformerEncoder", "a pretrained transformer")
ENCODERS.add("features", "arbormax.encoders.features:FeaturesEncoder", "rows of a feature matrix, not texts")


def register(kind: type[E]) -> type[E]:
    """Add an encoder class under its `name`; also usable as a class decorator."""
    ENCODERS.add(kind.name, kind, next(iter((kind.__doc__ or "").strip().splitlines()), ""))
    return kind


def check_encoder(name: str) -> str:
    """The name if it is registered, else an error that lists the encoders of texts."""
    return ENCODERS.check(name, listed=text_encoders())


def text_encoders() -> list[str]:
    """The names of the encoders of texts; `takes_texts` of the class would need torch."""
    return [name for name in ENCODERS if name != "features"]
