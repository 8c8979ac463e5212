"""Encoders: texts to features, by name."""

from arbormax.errors import MissingDependencyError

try:
    import pydantic  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingDependencyError("an encoder", "pydantic", "train") from error

from arbormax.encoders.bag import BagEncoder
from arbormax.encoders.base import Encoder, EncoderOptions, encoder_kind, register
from arbormax.encoders.lstm import BiLSTMEncoder, LSTMEncoder
from arbormax.encoders.tfidf import TfidfEncoder
from arbormax.encoders.transformer import TransformerEncoder

__all__ = [
    "BagEncoder",
    "BiLSTMEncoder",
    "Encoder",
    "EncoderOptions",
    "LSTMEncoder",
    "TfidfEncoder",
    "TransformerEncoder",
    "encoder_kind",
    "register",
]
