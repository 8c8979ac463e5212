"""The options of encoders that use n-grams of characters."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from arbormax.encoders.base import EncoderOptions


class CharacterOptions(EncoderOptions):
    char_ngrams: int = Field(4, ge=0, le=16, description="longest n-gram of characters within a word; 0 for none")
    min_char_ngrams: int = Field(3, ge=1, le=16, description="shortest n-gram of characters within a word")
    min_char_count: int = Field(2, ge=1, description="minimum number of texts that contain an n-gram of characters")
    max_char_terms: int = Field(50_000, ge=1, description="maximum number of n-grams of characters")
    char_weight: float = Field(0.5, gt=0, lt=1, description="share of the n-grams of characters in the features")

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        if 0 < self.char_ngrams < self.min_char_ngrams:
            raise ValueError(
                f"min_char_ngrams: expected at most char_ngrams, {self.char_ngrams}, found {self.min_char_ngrams}"
            )
        return self
