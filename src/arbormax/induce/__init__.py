"""Taxonomies learned from data: `arbormax.induce(X, labels)`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from arbormax._lazy import lazy_names
from arbormax.induce.methods import DEFAULT, INDUCERS

if TYPE_CHECKING:
    from arbormax.induce.controls import flatten, shuffle_classes
    from arbormax.taxonomy import Taxonomy

__all__ = ["DEFAULT", "INDUCERS", "flatten", "induce", "shuffle_classes"]


def induce(
    X: Any,
    labels: Iterable[str],
    method: str = DEFAULT,
    branching: int | None = 8,
    depth: int | None = None,
    *,
    classes: Iterable[str] | None = None,
    encoder: str = "tfidf",
    encoder_options: Mapping[str, Any] | None = None,
    texts: Mapping[str, str] | None = None,
    together: Iterable[Sequence[str]] = (),
    top: Any = None,
    seed: int = 0,
) -> Taxonomy:
    """A taxonomy of the labels, learned from their examples. The leaves have the labels as names.

    Args:
        X: n texts, or a feature matrix (n, D), dense or sparse; None for a method that needs the labels only.
        labels: n labels, one string for each example.
        method: a name of `arbormax.induce.INDUCERS`.
        branching: the largest number of children of a node; None is the smallest number that suffices for `depth`.
        depth: the largest number of levels below the root; None is any number.
        classes: the classes in the order of their ids, also those without examples; by default the sorted labels.
        encoder: the encoder of texts, whose features need no training: tfidf or a pretrained one.
        encoder_options: the options of the encoder.
        texts: longer texts of classes, for `method="names"` and the names of the inner nodes.
        together: lists of classes that get the same parent.
        top: a tree over some of the classes, a `Taxonomy` or nested mappings. Its inner nodes are kept, and classes
            below the same one are grouped further; classes that it lacks are grouped below the root.
        seed: the random seed; equal arguments give equal trees.

    >>> import arbormax as am
    >>> texts = ["an owl hoots", "a hen clucks", "a cod swims", "an eel swims in the sea"]
    >>> tax = am.induce(texts, ["owl", "hen", "cod", "eel"], branching=2)
    >>> tax.classes
    ('cod', 'eel', 'hen', 'owl')
    >>> tax.distance(tax.find("cod"), tax.find("eel"))
    2
    """
    from arbormax.induce.tree import Options, build

    options = Options(method, branching, depth, encoder, dict(encoder_options or {}), dict(texts or {}), seed)
    return build(X, labels, options, classes, together, top)


__getattr__, __dir__ = lazy_names(__name__, {"controls": ("flatten", "shuffle_classes")})


class _CallableModule(ModuleType):
    """`arbormax.induce` is this package and the function that it is named after."""

    __call__ = staticmethod(induce)


sys.modules[__name__].__class__ = _CallableModule
