"""A model with everything needed to serve it, and its taxonomy to browse and search."""

from __future__ import annotations

import heapq
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from arbormax._version import __version__
from arbormax.decode import DECODERS, option_choices, option_names
from arbormax.errors import LabelError, OptionError
from arbormax.model.network import Model
from arbormax.model.predict import Decoding, NodeNames, Prediction, decode_batches, render
from arbormax.serve.batching import Batcher
from arbormax.serve.costs import CostTable
from arbormax.serve.metrics import Metrics
from arbormax.serve.schemas import REQUIRED, DecodingRequest, Limits, PredictRequest, decoder_options, takes_costs
from arbormax.serve.settings import Settings
from arbormax.taxonomy import Taxonomy
from arbormax.uncertainty.conformal import SetRule, coverage_decoding, coverage_table, refuse_restriction

_MANY = 20_000  # matches from which a scan of all names is faster
_EXAMPLE = 160  # characters of an example at most
Explain = Callable[[Model, str], dict[str, Any]]  # explains the prediction for one text


class TreeIndex:
    """A taxonomy with its names in the form in which a search compares them."""

    def __init__(self, taxonomy: Taxonomy, names: NodeNames, title: str) -> None:
        self.taxonomy, self.names = taxonomy, names
        self._summary = {
            "name": title,
            "classes": taxonomy.num_leaves,
            "nodes": taxonomy.num_nodes,
            "depth": taxonomy.depth,
            "fingerprint": taxonomy.fingerprint,
        }
        self._folded = [_fold(name) for name in taxonomy.names]
        self._text = "\n".join(self._folded)  # the names have no line breaks
        self._ends = np.cumsum([len(name) + 1 for name in self._folded])

    def node(self, node: int) -> dict[str, Any]:
        """A short description of a node."""
        tax = self.taxonomy
        return {
            "node": node,
            "name": tax.names[node],
            "label": self.names.label(node),
            "classes": int(tax.leaf_counts[node]),
            "children": int(tax.num_children[node]),
        }

    def page(self, node: int, offset: int, limit: int) -> dict[str, Any]:
        """A node, its ancestors, and some of its children."""
        children = self.taxonomy.children(node)
        return {
            **self._summary,
            "node": self.node(node),
            "ancestors": [self.node(ancestor) for ancestor in self.taxonomy.ancestors(node).tolist()],
            "children": [self.node(child) for child in children[offset : offset + limit].tolist()],
            "total": len(children),
            "offset": offset,
        }

    def search(self, words: str, offset: int, limit: int) -> dict[str, Any]:
        """The nodes whose names contain all the words, best matches first."""
        parts = sorted(_fold(words).split(), key=len)
        found = self._containing(parts.pop()) if parts else []
        for part in parts:
            found = [node for node in found if part in self._folded[node]]
        page = self._best(found, " ".join(_fold(words).split()), offset + limit)[offset:]
        matches = [{**self.node(node), "path": list(self.names.path(node))} for node in page]
        return {"matches": matches, "total": len(found)}

    def _containing(self, part: str) -> list[int]:
        """The nodes below the root whose names contain a part of a word; the time depends on how many there are."""
        places: list[int] = []
        place = self._text.find(part)
        while place >= 0 and len(places) < _MANY:
            places.append(place)
            end = self._text.find("\n", place)
            place = self._text.find(part, end) if end >= 0 else -1
        if place >= 0:
            return [node for node in range(1, len(self._folded)) if part in self._folded[node]]
        return [node for node in np.searchsorted(self._ends, places, side="right").tolist() if node]

    def _best(self, found: list[int], phrase: str, number: int) -> list[int]:
        """The best matches: of each kind the short names first. Worse kinds are looked at only if a page needs them."""
        best: list[int] = []
        for kind in self._kinds(found, phrase):
            best += heapq.nsmallest(number - len(best), kind, key=lambda node: len(self._folded[node]))
            if len(best) == number:
                break
        return best

    def _kinds(self, found: list[int], phrase: str) -> Iterator[list[int]]:
        """Names that start with the phrase, that have it at the start of a word, elsewhere, and without all of it."""
        names, starts_word = self._folded, re.compile(rf"(?<![^\W_]){re.escape(phrase)}")
        yield [node for node in found if names[node].startswith(phrase)]
        inside = [node for node in found if phrase in names[node] and not names[node].startswith(phrase)]
        yield [node for node in inside if starts_word.search(names[node])]
        yield [node for node in inside if not starts_word.search(names[node])]
        yield [node for node in found if phrase not in names[node]]


def _fold(name: str) -> str:
    """A name without case, accents and repeated whitespace."""
    if name.isascii():
        return " ".join(name.lower().split())
    plain = "".join(c for c in unicodedata.normalize("NFKD", name.casefold()) if not unicodedata.combining(c))
    return " ".join(re.split(r"\s+", plain))


class Service:
    """The model, its batcher, its taxonomy and its metrics; only the batcher's thread uses the model."""

    def __init__(self, model: Model, settings: Settings, name: str) -> None:
        self.model, self.settings, self.name = model.eval(), settings, name
        self.names = NodeNames(model.taxonomy)
        self.tree = TreeIndex(model.taxonomy, self.names, name)
        self.metrics = Metrics(lambda: self.batcher.waiting)
        self.batcher = Batcher(
            self.answer,
            queue=settings.queue,
            batch_size=settings.batch_size,
            wait=settings.batch_wait_ms / 1000,
            on_batch=self.metrics.record_batch,
        )
        self._decoders = decoder_options()
        self._examples = list(settings.examples) or default_examples(model.taxonomy)
        self._set_rule = lru_cache(maxsize=64)(self._find_set_rule)  # equal requests are predicted together
        taxonomy = model.taxonomy
        self._class_nodes = dict(zip(taxonomy.classes, taxonomy.leaves.tolist(), strict=True))

    def decodings(self, request: DecodingRequest, texts: int, top_k: int = 0) -> list[Decoding]:
        """The decoding of each text of a request, which may restrict each of them in another way."""
        taxonomy = self.model.taxonomy
        common, sides = self._decoding(request, top_k), [("within", request.within), ("without", request.without)]
        given = {name: _node_ids(nodes, taxonomy, name, texts) for name, nodes in sides if nodes is not None}
        each: list[dict[str, Any]] = [{name: rows[place] for name, rows in given.items()} for place in range(texts)]
        found = [replace(common, **restriction) for restriction in each]
        for decoding in dict.fromkeys(found):
            decoding.check(taxonomy)
        return found

    def _decoding(self, request: DecodingRequest, top_k: int) -> Decoding:
        """A decoder with its options; without a name, the first decoder that accepts the options."""
        options = request.options()
        if request.coverage is not None:
            if request.decoder is not None or options or request.costs is not None:
                raise OptionError("cannot be combined with a decoder or its options", argument="coverage")
            refuse_restriction(request.within or None, request.without or None)
            decoding = coverage_decoding(self.model, request.coverage, top_k)
            return replace(decoding, sets=self._sets(request, request.coverage))
        if self._asks_for_sets(request):
            raise OptionError("sets of max_nodes or groups require it", argument="coverage")
        given = {*options, "costs"} if request.costs is not None else {*options}
        accepting = (name for name in self._decoders if given <= {*option_names(DECODERS[name])})
        name = request.decoder or next(accepting, None)
        if name is None:
            raise OptionError(f"no decoder accepts {' and '.join(given)} together")
        for option, parameter in self._decoders[name].items():
            if parameter.default is REQUIRED and option not in options:
                raise OptionError(f"the decoder {name} requires a value", argument=option)
        if request.costs is not None:
            options["costs"] = CostTable.read(request.costs, self.model.taxonomy)
        # the default of top_k gives way to the k of a decoder
        is_default = "k" in options and "top_k" not in request.model_fields_set
        return Decoding(name, options, 0 if is_default else top_k)

    @staticmethod
    def _asks_for_sets(request: DecodingRequest) -> bool:
        return isinstance(request, PredictRequest) and (request.max_nodes is not None or request.groups is not None)

    def _sets(self, request: DecodingRequest, coverage: float) -> SetRule | None:
        if not isinstance(request, PredictRequest) or not self._asks_for_sets(request):
            return None
        groups = tuple(request.groups.items()) if isinstance(request.groups, dict) else request.groups
        return self._set_rule(coverage, request.max_nodes, groups)

    def _find_set_rule(self, coverage: float, max_nodes: int | None, groups: Any) -> SetRule:
        return SetRule.of_coverage(self.model, coverage, max_nodes, dict(groups) if type(groups) is tuple else groups)

    def answer(self, texts: Sequence[str], requests: Sequence[Decoding | Explain]) -> list[dict[str, Any]]:
        """One result per text; texts with equal decodings are predicted together."""
        positions: dict[Decoding | Explain, list[int]] = {}
        for position, request in enumerate(requests):
            positions.setdefault(request, []).append(position)
        rows: list[dict[str, Any]] = [{}] * len(texts)
        for request, own in positions.items():
            inputs = [texts[position] for position in own]
            if isinstance(request, Decoding):
                batches = decode_batches(self.model, inputs, request, self.settings.batch_size, uncertainty=True)
                found = [self._row(prediction) for batch in batches for prediction in render(batch, self.names)]
            else:
                found = [request(self.model, text) for text in inputs]
            for position, row in zip(own, found, strict=True):
                rows[position] = row
        return rows

    def _row(self, prediction: Prediction) -> dict[str, Any]:
        """The row of `arbormax predict`, and the nodes of its steps and alternatives."""
        return {
            **prediction.to_dict(),
            "node": prediction.node,
            "probability": prediction.probability,
            "reason": prediction.reason,
            "steps": [
                {
                    "node": node,
                    "name": self.model.taxonomy.names[node],
                    "label": self.names.label(node),
                    "probability": probability,
                }
                for node, probability in zip(self.names.steps(prediction.node), prediction.probabilities, strict=True)
            ],
            "alternatives": [
                {
                    "label": label,
                    "node": self._class_nodes[label],
                    "path": self.names.path(self._class_nodes[label]),
                    "probability": probability,
                }
                for label, probability in prediction.alternatives
            ],
        }

    def describe(self) -> dict[str, Any]:
        """The model, the decoders, and the limits of the service."""
        columns = self.model.config.columns
        return {
            "name": self.name,
            "encoder": self.model.config.encoder,
            "head": self.model.config.head,
            "classes": self.model.taxonomy.num_leaves,
            "depth": self.model.taxonomy.depth,
            "arbormax": __version__,
            "decoders": [
                {
                    "name": decoder,
                    "summary": DECODERS.summary(decoder),
                    "options": {
                        name: None if option.default is REQUIRED else option.default for name, option in options.items()
                    },
                    "choices": {name: values for name in options if (values := option_choices(name))},
                    "costs": takes_costs(decoder),
                }
                for decoder, options in self._decoders.items()
            ],
            "coverage": coverage_table(self.model),
            "limits": self.settings.model_dump(include={*Limits.model_fields}),
            "columns": None if columns.is_plain else {"text": list(columns.text), "also": list(columns.also)},
            "examples": self._examples,
        }


def default_examples(tax: Taxonomy, number: int = 3) -> list[str]:
    """Texts to try on an empty page: texts of classes, else their names, from different parts of the tree.

    The page shows these anyway. The texts that a model folder quotes for reports may be private, so they are not used.
    """
    given = tax.given_texts or (None,) * tax.num_nodes
    leaves = np.sort(tax.leaves)
    described = [node for node in leaves.tolist() if given[node]]
    nodes = np.array(described) if described else leaves
    places = np.linspace(0, len(nodes) - 1, min(number, len(nodes)) + 2)[1:-1].round().astype(int)
    found = (given[node] or tax.names[node] for node in nodes[places].tolist())
    return list(dict.fromkeys(text if len(text) <= _EXAMPLE else f"{text[: _EXAMPLE - 1]}…" for text in found))


def _node_ids(nodes: Sequence[Any], tax: Taxonomy, argument: str, texts: int) -> list[tuple[int, ...] | None]:
    """The node ids that restrict each text, from those of all texts or one list for each text."""
    each: Sequence[Any] = nodes
    if not any(part is None or isinstance(part, list) for part in nodes):
        each = [nodes] * texts
    elif not all(part is None or isinstance(part, list) for part in nodes) or len(nodes) != texts:
        raise OptionError(f"expected one list, or a list of {texts} lists, one for each text", argument=argument)
    try:
        return [
            None if part is None else tuple(tax.find(node) if isinstance(node, str) else node for node in part)
            for part in each
        ]
    except LabelError as error:
        raise LabelError(error.message, error.problems, argument=argument) from None
