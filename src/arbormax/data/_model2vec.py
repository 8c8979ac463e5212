"""Static embeddings of model2vec: a tokenizer and one vector for each of its subwords.

E size of a vector.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from arbormax.data.ragged import Ragged
from arbormax.errors import InputError, import_extra

MODEL2VEC_FILES = ("model.safetensors", "tokenizer.json")


def read_model2vec(folder: Path, words: Sequence[str]) -> tuple[tuple[str, ...], np.ndarray]:
    """These words and all words that are a single token, with the mean vectors of their subwords."""
    matrix, tokenizer, unknown = _read_files(folder)
    tokens = sorted(tokenizer.get_vocab(with_added_tokens=False).items(), key=lambda item: item[1])
    if tokens and tokens[-1][1] >= len(matrix):
        raise InputError(f"{folder}: expected a vector for each of {tokens[-1][1] + 1:,} tokens, found {len(matrix):,}")
    single = [token for token, number in tokens if number != unknown]
    names = list(dict.fromkeys([*words, *single]))
    # the tokenizer rejects lone surrogates, which a text may contain
    texts = [name.encode("utf-8", "replace").decode("utf-8") for name in names]
    rows = [
        [number for number in found.ids if number != unknown]
        for found in tokenizer.encode_batch(texts, add_special_tokens=False)
    ]
    given = len(dict.fromkeys(words))
    number_of = dict(tokens)
    used = [
        place
        for place, (name, row) in enumerate(zip(names, rows, strict=True))
        if (row if place < given else row == [number_of[name]])
    ]
    pieces = Ragged.from_lists([rows[place] for place in used])
    sums = np.add.reduceat(matrix[pieces.values], pieces.offsets[:-1], axis=0) if used else matrix[:0]
    return tuple(names[place] for place in used), sums / np.maximum(pieces.lengths, 1)[:, None].astype(np.float32)


def _read_files(folder: Path) -> tuple[np.ndarray, Any, int | None]:
    """(tokens, E) float32, the tokenizer, and the number of its token for unknown characters."""
    load_file = import_extra("safetensors.numpy", "static embeddings", "safetensors", "transformers").load_file
    kind = import_extra("tokenizers", "static embeddings", "tokenizers", "transformers").Tokenizer
    weights, tokens = (folder / name for name in MODEL2VEC_FILES)
    try:
        arrays = load_file(weights)
        model = json.loads(tokens.read_bytes())["model"]
        tokenizer = kind.from_file(str(tokens))
    except Exception as error:  # tokenizers raises nothing more specific
        raise InputError(f"{folder} contains no static embeddings that can be read: {error}") from error
    if (matrix := arrays.get("embeddings")) is None or matrix.ndim != 2:
        raise InputError(f"{weights}: expected a matrix `embeddings`, found {', '.join(arrays) or 'no arrays'}")
    matrix = matrix.astype(np.float32)
    if "mapping" in arrays:  # several tokens share a vector
        matrix = matrix[arrays["mapping"]]
    if "weights" in arrays:
        matrix = matrix * arrays["weights"].astype(np.float32)[:, None]
    if not np.isfinite(matrix).all():
        raise InputError(f"{weights} contains a number that is not finite")
    tokenizer.no_truncation()
    tokenizer.no_padding()
    unknown = tokenizer.token_to_id(model["unk_token"]) if model.get("unk_token") else model.get("unk_id")
    return matrix, tokenizer, unknown
