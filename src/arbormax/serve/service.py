"""A model with everything needed to serve it, and its taxonomy to browse and search."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from arbormax._version import __version__
from arbormax.decode import DECODERS
from arbormax.errors import LabelError, OptionError
from arbormax.model.network import Model
from arbormax.model.predict import Decoding, NodeNames, Prediction, decode_batches, render
from arbormax.serve.batching import Batcher
from arbormax.serve.metrics import Metrics
from arbormax.serve.schemas import REQUIRED, DecodingRequest, Limits, PredictRequest, decoder_options
from arbormax.serve.settings import Settings
from arbormax.taxonomy import Taxonomy
from arbormax.uncertainty.conformal import SetRule, climbing_threshold, coverage_table

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
        parts = _fold(words).split()
        phrase = " ".join(parts)
        starts_word = re.compile(rf"(?<![^\W_]){re.escape(phrase)}")
        found = list(range(1, len(self._folded))) if parts else []
        for part in parts:
            found = [node for node in found if part in self._folded[node]]

        def rank(node: int) -> tuple[bool, bool, bool, bool, int]:
            """Equal names first, then prefixes, starts of words, other positions, and words that stand apart."""
            name = self._folded[node]
            is_start, is_word = name.startswith(phrase), starts_word.search(name) is not None
            return name != phrase, not is_start, not is_word, phrase not in name, len(name)

        found.sort(key=rank)
        page = found[offset : offset + limit]
        matches = [{**self.node(node), "path": list(self.names.path(node))} for node in page]
        return {"matches": matches, "total": len(found)}


def _fold(name: str) -> str:
    """A name without case, accents and repeated whitespace."""
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
            if request.decoder is not None or options or request.within or request.without:
                message = "cannot be combined with a decoder, its options and a restriction of the classes"
                raise OptionError(message, argument="coverage")
            decoding = Decoding("climb", {"tau": climbing_threshold(self.model, request.coverage)}, top_k)
            return replace(decoding, sets=self._sets(request, request.coverage))
        if self._asks_for_sets(request):
            raise OptionError("sets of max_nodes or groups require it", argument="coverage")
        accepting = (name for name, known in self._decoders.items() if options.keys() <= known.keys())
        name = request.decoder or next(accepting, None)
        if name is None:
            raise OptionError(f"no decoder accepts {' and '.join(options)} together")
        for option, parameter in self._decoders[name].items():
            if parameter.default is REQUIRED and option not in options:
                raise OptionError(f"the decoder {name} requires a value", argument=option)
        return Decoding(name, options, top_k)

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
                }
                for decoder, options in self._decoders.items()
            ],
            "coverage": coverage_table(self.model),
            "limits": self.settings.model_dump(include={*Limits.model_fields}),
            "examples": list(self.settings.examples),
        }


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
