"""Encoders: texts to features, by name."""

from arbormax.encoders.bag import BagEncoder
from arbormax.encoders.base import Encoder, EncoderOptions, encoder_kind, register
from arbormax.encoders.lstm import BiLSTMEncoder, LSTMEncoder

__all__ = ["BagEncoder", "BiLSTMEncoder", "Encoder", "LSTMEncoder", "EncoderOptions", "encoder_kind", "register"]
