"""The vectors of a spaCy pipeline: a matrix, a table from hashed words to its rows, and the words.

E size of a vector, n words of the same length.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import numpy as np

from arbormax.errors import InputError

SPACY_FILES = ("key2row", "strings.json", "vectors")
_SPREAD = 0.4  # that of GloVe's numbers; an LSTM does not learn from numbers several times as large
_MIX = np.uint64(0xC6A4A7935BD1E995)  # MurmurHash64A
_SHIFT = np.uint64(47)


def read_spacy(folder: Path) -> tuple[tuple[str, ...], np.ndarray]:
    """The words with a vector, in the order of the rows, and their vectors.

    Several words may share a row. The numbers are scaled to a standard deviation of 0.4.
    """
    try:
        with (folder / "vectors").open("rb") as file:
            matrix = np.load(file, allow_pickle=False).astype(np.float32)
        words = json.loads((folder / "strings.json").read_bytes())
        hashes, rows = _read_table((folder / "key2row").read_bytes())
        found = hash_words(words)
    except (ValueError, TypeError, AttributeError, IndexError, RecursionError, EOFError) as error:
        raise InputError(f"{folder} contains no vectors of spaCy that can be read: {error}") from error
    if matrix.ndim != 2 or not len(hashes) or rows.max() >= len(matrix):
        raise InputError(f"{folder}: expected a row for each word, found vectors of the shape {matrix.shape}")
    order = np.argsort(hashes)
    place = order[np.searchsorted(hashes, found, sorter=order).clip(max=len(hashes) - 1)]
    row = np.where(hashes[place] == found, rows[place], len(matrix))
    used = np.argsort(row, kind="stable")[: int((row < len(matrix)).sum())]
    if not len(used):
        raise InputError(f"{folder}: none of its words has a vector")
    chosen = matrix[row[used]]
    return tuple(words[i] for i in used), chosen * (_SPREAD / max(float(chosen.std()), 1e-12))


def hash_words(words: list[str]) -> np.ndarray:
    """The uint64 keys of words: MurmurHash64A of their UTF-8 bytes with seed 1.

    >>> hash_words(["coffee"])
    array([3197928453018144401], dtype=uint64)
    """
    encoded = [word.encode("utf-8", "surrogatepass") for word in words]
    of_length: dict[int, list[int]] = defaultdict(list)
    for place, word in enumerate(encoded):
        of_length[len(word)].append(place)
    keys = np.empty(len(words), np.uint64)
    for length, places in of_length.items():
        joined = b"".join(encoded[place] for place in places)
        keys[places] = _murmur(np.frombuffer(joined, np.uint8).reshape(len(places), length))
    return keys


def _murmur(bytes_nL: np.ndarray) -> np.ndarray:
    """(n,) hashes of byte strings of the same length."""
    n, length = bytes_nL.shape
    padded = np.zeros((n, -(-length // 8) * 8), np.uint8)
    padded[:, :length] = bytes_nL
    blocks = padded.view("<u8")
    with np.errstate(over="ignore"):  # arithmetic modulo 2⁶⁴
        keys = np.full(n, np.uint64(1) ^ (np.uint64(length) * _MIX))
        for column in range(length // 8):
            block = blocks[:, column] * _MIX
            keys = (keys ^ ((block ^ (block >> _SHIFT)) * _MIX)) * _MIX
        if length % 8:
            keys = (keys ^ blocks[:, -1]) * _MIX
        keys = (keys ^ (keys >> _SHIFT)) * _MIX
        return np.asarray(keys ^ (keys >> _SHIFT))


def _read_table(data: bytes) -> tuple[np.ndarray, np.ndarray]:
    """The keys and rows of a MessagePack map of whole numbers."""
    sizes = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
    count_size = {0xDE: 2, 0xDF: 4}.get(data[0], 0)
    if not count_size and data[0] & 0xF0 != 0x80:
        raise ValueError("key2row is not a MessagePack map")
    count = int.from_bytes(data[1 : 1 + count_size], "big") if count_size else data[0] & 0x0F
    if 2 * count > len(data):
        raise ValueError("key2row is cut short")
    numbers, place = [], 1 + count_size
    for _ in range(2 * count):
        kind = data[place]
        size = sizes.get(kind, 0)
        if not size and kind > 0x7F:
            raise ValueError("key2row contains something other than whole numbers")
        end = place + 1 + size
        numbers.append(int.from_bytes(data[place + 1 : end], "big") if size else kind)
        place = end
    if place > len(data):
        raise ValueError("key2row is cut short")
    return np.array(numbers[::2], np.uint64), np.array(numbers[1::2], np.int64)
