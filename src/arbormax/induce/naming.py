"""Names for inner nodes, from what the classes below them share.

C classes, K inner nodes, W words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_WORDS = 3  # of a name
_CANDIDATES = 8  # words from which those of the parent's name are left out
_SHARE = 0.5  # of the classes below a node that have a shared word
_MOST_TERMS = 50_000
_WORD = re.compile(r"[^\W\d_]{2,}")  # of a label
_TERM = r"[^\W\d_]{3,}"  # of a text


def name_nodes(
    parent: np.ndarray,
    class_parent: np.ndarray,
    given: Sequence[str],
    classes: Sequence[str],
    texts: Sequence[str],
    inputs: Sequence[str] | None,
    class_n: np.ndarray,
) -> list[str]:
    """(K,) a name for each inner node, different from all others and from the names of the classes.

    A name has the words that at least half of the classes below the node share, if they are more frequent there than
    below the parent; else the words that are most characteristic of the examples; else the first classes.
    """
    below_KC = _classes_below(parent, class_parent)
    shared = _best_words(below_KC, parent, *_presence(texts), least_share=_SHARE)
    terms: list[list[str]] = [[] for _ in given]
    if inputs is not None and not all(shared[1:]):
        terms = _best_words(below_KC, parent, *_word_shares(inputs, class_n, len(classes)))
    taken = {*classes, *(name for name in given if name)}
    names = list(given)
    own_words: list[list[str]] = [[] for _ in given]
    for node in range(1, len(names)):
        if names[node]:
            continue
        used = {word.casefold() for word in own_words[parent[node]]}
        found, others = ([word for word in each[node] if word.casefold() not in used] for each in (shared, terms))
        own_words[node] = own = (found or others)[:_WORDS]
        further = [word for word in others if word not in own] if found else others[_WORDS:]
        below = below_KC.indices[below_KC.indptr[node] : below_KC.indptr[node + 1]]
        choices = [[*own, *further[:count]] for count in range(len(further) + 1)] if own else []
        free = next((name for name in map(", ".join, choices) if name not in taken), None)
        names[node] = free or _unique(", ".join(own) or _list_classes(below, classes), taken)
        taken.add(names[node])
    return names


def _classes_below(parent: np.ndarray, class_parent: np.ndarray) -> csr_matrix:
    """(K, C) ones where a class is below a node."""
    from scipy.sparse import csr_matrix

    nodes, classes = [], []
    node_C, class_C = class_parent, np.arange(len(class_parent))
    while len(node_C):
        nodes.append(node_C)
        classes.append(class_C)
        above = parent[node_C]
        node_C, class_C = above[above >= 0], class_C[above >= 0]
    rows, columns = np.concatenate(nodes), np.concatenate(classes)
    return csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(len(parent), len(class_parent)))


def _best_words(
    below_KC: csr_matrix, parent: np.ndarray, shares_CW: csr_matrix, words: Sequence[str], least_share: float = 0.0
) -> list[list[str]]:
    """For each node the words with the highest p log(p / q), the best first.

    p is the mean share of a word in the classes below the node, and q below its parent. With `least_share`, at least
    this share of the classes, and two of them, have the word.
    """
    sums = (below_KC @ shares_CW).tocsr()
    sums.sort_indices()
    total_K = np.asarray(below_KC.sum(1)).ravel()
    found: list[list[str]] = [[]]
    for node in range(1, len(parent)):
        start, stop = sums.indptr[node], sums.indptr[node + 1]
        columns, values = sums.indices[start:stop], sums.data[start:stop]
        above = parent[node]
        first, last = sums.indptr[above], sums.indptr[above + 1]
        value_above = sums.data[first:last][np.searchsorted(sums.indices[first:last], columns)]
        share, share_above = values / total_K[node], value_above / total_K[above]
        score = share * np.log(share / share_above)
        fits = (score > 1e-12) & (share >= least_share) & ((values > 1) | (not least_share))
        best = np.flatnonzero(fits)
        best = best[np.argsort(-np.round(score[best], 12), kind="stable")][:_CANDIDATES]
        found.append([words[column] for column in columns[best].tolist()])
    return found


def _presence(texts: Sequence[str]) -> tuple[csr_matrix, list[str]]:
    """(C, W) ones where a text contains a word, and the words."""
    from scipy.sparse import csr_matrix
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    number: dict[str, int] = {}
    rows, columns = [], []
    spelling: list[str] = []
    for row, text in enumerate(texts):
        for word in dict.fromkeys(_WORD.findall(text)):
            folded = word.casefold()
            if folded in ENGLISH_STOP_WORDS:
                continue
            if folded not in number:
                number[folded] = len(number)
                spelling.append(word)
            rows.append(row)
            columns.append(number[folded])
    matrix = csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(len(texts), len(number)))
    matrix.data[:] = 1.0  # a word that occurs with and without capitals
    return matrix, spelling


def _word_shares(inputs: Sequence[str], class_n: np.ndarray, classes: int) -> tuple[csr_matrix, list[str]]:
    """(C, W) the share of the examples of each class that contain a word, and the words."""
    from scipy.sparse import csr_matrix
    from sklearn.feature_extraction.text import CountVectorizer

    counter = CountVectorizer(
        token_pattern=_TERM, stop_words="english", binary=True, max_features=_MOST_TERMS, dtype=np.float64
    )
    try:
        counts = counter.fit_transform(inputs)
    except ValueError:  # no words at all
        return csr_matrix((classes, 0)), []
    shares_n = (1.0 / np.maximum(np.bincount(class_n, minlength=classes), 1))[class_n]
    shares = csr_matrix((shares_n, (class_n, np.arange(len(class_n)))), shape=(classes, len(class_n)))
    return (shares @ counts).tocsr(), counter.get_feature_names_out().tolist()


def _list_classes(numbers: np.ndarray, classes: Sequence[str]) -> str:
    shown = [classes[number] for number in sorted(numbers.tolist())[:2]]
    more = len(numbers) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _unique(name: str, taken: Iterable[str]) -> str:
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name} ({number})"
    return found
