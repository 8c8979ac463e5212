"""Encoders turn texts into features. `ENCODERS` lists them by name; the classes are imported on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

_MODULES = {
    "BagEncoder": "bag",
    "BiLSTMEncoder": "lstm",
    "Encoder": "base",
    "EncoderOptions": "base",
    "FeaturesEncoder": "features",
    "LSTMEncoder": "lstm",
    "TfidfEncoder": "tfidf",
    "TransformerEncoder": "transformer",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'arbormax.encoders' has no attribute {name!r}")
    return getattr(import_module(f"arbormax.encoders.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
