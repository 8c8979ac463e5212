"""What is clustered: classes, or sets of classes that stay together, with their examples and their vectors.

n examples, C classes, m items, D features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from arbormax.errors import OptionError
from arbormax.taxonomy.labels import listing

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_WIDTH = 256  # features after the reduction of sparse or wide ones
_EXACT = 1500  # rows up to which distances stay the same
_ROWS = 4096  # examples that are encoded together


@dataclass(eq=False)
class Items:
    """The items of a clustering. Vectors are computed when they are first used."""

    classes: tuple[str, ...]
    class_n: np.ndarray  # (n,) the class of each example
    item_of_class: np.ndarray  # (C,)
    inputs: Any  # n texts or rows of features, or None
    texts: Mapping[str, str]  # of classes
    encoder: str
    encoder_options: Mapping[str, Any]
    seed: int
    _cache: dict[str, Any] = field(default_factory=dict)

    def cached(self, name: str, compute: Callable[[], Any]) -> Any:
        """A value that is computed once."""
        if name not in self._cache:
            self._cache[name] = compute()
        return self._cache[name]

    @property
    def num_items(self) -> int:
        return int(self.item_of_class.max()) + 1

    @property
    def item_n(self) -> np.ndarray:
        """(n,) the item of each example."""
        items: np.ndarray = self.item_of_class[self.class_n]
        return items

    @cached_property
    def counts(self) -> np.ndarray:
        """(m,) the number of examples of each item."""
        return np.bincount(self.item_n, minlength=self.num_items)

    @cached_property
    def features(self) -> np.ndarray:
        """(n, D) features of the examples; those of texts have length one."""
        if self.inputs is None:
            raise OptionError("this method needs texts or features, found none", argument="X")
        features = encode(self.inputs, self.encoder, self.encoder_options, self.seed)
        return reduce_features(features, self.seed, unit=is_text(self.inputs), width=_WIDTH // 2)

    @cached_property
    def centroids(self) -> np.ndarray:
        """(m, D) the mean features of the examples of each item; those of texts have length one."""
        if self.inputs is None:
            raise OptionError("this method needs texts or features, found none", argument="X")
        counts_C = np.bincount(self.class_n, minlength=len(self.classes))
        if (missing := np.flatnonzero(counts_C == 0)).size:
            named = listing(self.classes[number] for number in missing.tolist())
            raise OptionError(
                f"this method needs examples of all classes; {named} have none"
                if len(missing) > 1
                else f"this method needs examples of all classes; {named} has none",
                argument="labels",
                fix={"method": ("names", "huffman")},
            )
        features = encode(self.inputs, self.encoder, self.encoder_options, self.seed)
        means = _means(features, self.item_n, self.num_items)
        return reduce_features(means, self.seed, unit=is_text(self.inputs))

    @cached_property
    def name_vectors(self) -> np.ndarray:
        """(m, D) the vectors of the texts of the classes, by default their names, with length one."""
        texts = [self.texts.get(label, label) for label in self.classes]
        features = encode(texts, self.encoder, self.encoder_options, self.seed)
        means = _means(features, self.item_of_class, self.num_items)
        return reduce_features(means, self.seed, unit=True)


def encode(inputs: Any, encoder: str, options: Mapping[str, Any], seed: int) -> Any:
    """(n, D) features of texts by an encoder, or the scaled rows of a matrix; dense, or a scipy CSR matrix."""
    if not is_text(inputs):
        from sklearn.preprocessing import StandardScaler

        return StandardScaler(with_mean=isinstance(inputs, np.ndarray)).fit_transform(inputs)
    from scipy.sparse import csr_matrix, vstack

    from arbormax.encoders import ENCODERS
    from arbormax.model.network import Model
    from arbormax.model.settings import TrainConfig
    from arbormax.taxonomy import Taxonomy

    config = TrainConfig.make(encoder=encoder, encoder_options=dict(options), seed=seed).resolved()
    if ENCODERS[encoder].starts_random:
        raise OptionError(
            f"the features of {encoder!r} mean nothing before training; use 'tfidf' or a pretrained encoder",
            argument="encoder",
        )
    # only the features of the model are used, so that any taxonomy will do
    model = Model.new(inputs, Taxonomy.from_nested(["a", "b"]), config)
    parts = list(model.features(inputs, _ROWS))
    if not parts[0].is_sparse:
        return np.concatenate([part.cpu().numpy() for part in parts])
    stored = [part.cpu().coalesce() for part in parts]
    blocks = [csr_matrix((p.values().numpy(), tuple(p.indices().numpy())), shape=tuple(p.shape)) for p in stored]
    return vstack(blocks, format="csr")


def reduce_features(features: Any, seed: int, *, unit: bool, width: int = _WIDTH) -> np.ndarray:
    """(n, D) dense features; `unit`: of length one. Distances stay the same, except between many rows of many features.

    These are reduced to `width` dimensions.
    """
    from scipy.linalg import eigh
    from sklearn.decomposition import TruncatedSVD
    from sklearn.preprocessing import normalize

    features = normalize(features) if unit else features
    rows, columns = features.shape
    if columns <= 2 * _WIDTH:
        return np.asarray(features if isinstance(features, np.ndarray) else features.toarray(), np.float64)
    if rows <= _EXACT:
        products = features @ features.T
        values, vectors = eigh(products if isinstance(products, np.ndarray) else products.toarray())
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)), np.float64)
    reduced = TruncatedSVD(width, n_iter=2, random_state=seed).fit_transform(features)
    return np.asarray(normalize(reduced) if unit else reduced, np.float64)


def is_text(inputs: Any) -> bool:
    """Whether inputs are texts, not the rows of a matrix."""
    return getattr(inputs, "ndim", 1) != 2


def _means(features: Any, group_n: np.ndarray, groups: int) -> Any:
    """(groups, D) the mean row of each group."""
    from scipy.sparse import csr_matrix

    counts = np.bincount(group_n, minlength=groups)
    shares = (1.0 / counts)[group_n]
    sums: csr_matrix = csr_matrix((shares, (group_n, np.arange(len(group_n)))), shape=(groups, len(group_n)))
    return sums @ features
