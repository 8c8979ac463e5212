"""Vocabularies: words and their numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from arbormax.data.ragged import Ragged
from arbormax.data.tokens import Tokeniser, tokeniser
from arbormax.errors import InputError

PADDING, UNKNOWN = 0, 1
_SPECIAL = ("<padding>", "<unknown>")


class Vocabulary:
    """Numbered words: 0 is padding, 1 is any unknown word.

    >>> vocabulary = Vocabulary.learn(["to be or not to be"])
    >>> vocabulary.words
    ('<padding>', '<unknown>', 'to', 'be', 'or', 'not')
    >>> vocabulary.encode(["To be!", ""]).pad(PADDING).tolist()
    [[2, 3], [0, 0]]
    """

    def __init__(self, words: Iterable[str], tokens: Tokeniser = "words") -> None:
        self.words = (*_SPECIAL, *words)
        self.tokens = tokens
        self._tokenise = tokeniser(tokens)
        # without the special names, so that a text that contains one of them is not padding
        self._number = {word: number for number, word in enumerate(self.words) if number >= len(_SPECIAL)}

    @classmethod
    def learn(
        cls, texts: Iterable[str], tokens: Tokeniser = "words", min_count: int = 1, max_words: int | None = None
    ) -> Vocabulary:
        """The words that occur at least `min_count` times in these texts, most frequent first."""
        counts: Counter[str] = Counter()
        tokenise = tokeniser(tokens)
        for text in texts:
            counts.update(tokenise(text))
        for word in _SPECIAL:
            counts.pop(word, None)
        frequent = [word for word, count in counts.most_common(max_words) if count >= min_count]
        return cls(frequent, tokens)

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._number or word in _SPECIAL

    def encode(self, texts: Sequence[str]) -> Ragged:
        """The word numbers of each text."""
        return self.encode_words([self._tokenise(text) for text in texts])

    def encode_words(self, rows: Sequence[Sequence[str]]) -> Ragged:
        """The word numbers of each text, given as words."""
        number = self._number.get
        values = np.array([number(word, UNKNOWN) for row in rows for word in row], dtype=np.int64)
        return Ragged.from_lengths(values, np.array([len(row) for row in rows], dtype=np.int64))

    def extend_with(self, words: Iterable[str]) -> Vocabulary:
        """This vocabulary, followed by the words that it lacks."""
        return Vocabulary(
            [*self.words[len(_SPECIAL) :], *dict.fromkeys(w for w in words if w not in self)], self.tokens
        )

    def save(self, path: Path) -> None:
        save_words(path, self.words[len(_SPECIAL) :])

    @classmethod
    def load(cls, path: Path, tokens: Tokeniser = "words") -> Vocabulary:
        """The vocabulary that `save` wrote."""
        return cls(load_words(path), tokens)


def save_words(path: Path, words: Iterable[str]) -> None:
    """Write one word per line; words contain no line breaks."""
    # texts may contain lone surrogates, which must not make saving fail after training
    path.write_bytes("".join(f"{word}\n" for word in words).encode("utf-8", "surrogatepass"))


def load_words(path: Path) -> list[str]:
    """The words that `save_words` wrote, which must be unique."""
    try:
        *words, rest = path.read_bytes().decode("utf-8", "surrogatepass").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a vocabulary: expected UTF-8 text, one word per line ({error})") from error
    if rest:
        raise InputError(f"{path} is incomplete: its last line has no end")
    if len(set(words)) != len(words):
        raise InputError(f"{path} contains a word twice: expected {len(words):,} distinct lines")
    return words
