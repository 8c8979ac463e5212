"""A model with everything needed to serve it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from arbormax._version import __version__
from arbormax.decode import DECODERS
from arbormax.errors import OptionError
from arbormax.model.explain import explain
from arbormax.model.network import Model
from arbormax.model.predict import Decoding, NodeNames, Prediction, decode_batches, render
from arbormax.serve.batching import Batcher
from arbormax.serve.metrics import Metrics
from arbormax.serve.schemas import REQUIRED, ExplainRequest, decoder_options
from arbormax.serve.settings import Settings
from arbormax.serve.taxonomy import TreeIndex


class Service:
    """The model, its batcher, its taxonomy and its metrics; only the batcher's thread uses the model."""

    def __init__(self, model: Model, settings: Settings, name: str) -> None:
        self.model, self.settings, self.name = model.eval(), settings, name
        self.names = NodeNames(model.taxonomy)
        self.tree = TreeIndex(model.taxonomy, self.names, name)
        self.metrics = Metrics(lambda: self.batcher.waiting)
        self.batcher = Batcher(
            self.predict,
            queue=settings.queue,
            batch_size=settings.batch_size,
            wait=settings.batch_wait_ms / 1000,
            on_batch=self.metrics.record_batch,
        )
        self._decoders = decoder_options()
        self.decoding = lru_cache(maxsize=1024)(self._decoding)
        taxonomy = model.taxonomy
        self._class_nodes = dict(zip(taxonomy.classes, taxonomy.leaves.tolist(), strict=True))

    def _decoding(self, decoder: str | None, options: tuple[tuple[str, Any], ...], top_k: int) -> Decoding:
        """A decoder with valid options; without a name, the first decoder that accepts the options."""
        given = dict(options)
        accepting = (name for name, known in self._decoders.items() if given.keys() <= known.keys())
        name = decoder or next(accepting, None)
        if name is None:
            raise OptionError(f"no decoder accepts {' and '.join(given)} together")
        for option, parameter in self._decoders[name].items():
            if parameter.default is REQUIRED and option not in given:
                raise OptionError(f"the decoder {name} requires a value", argument=option)
        decoding = Decoding(name, given, top_k)
        decoding.check(self.model.taxonomy)
        return decoding

    def predict(self, texts: Sequence[str], decodings: Sequence[Decoding]) -> list[dict[str, Any]]:
        """One row per text; texts with equal decodings are predicted together."""
        positions: dict[Decoding, list[int]] = {}
        for position, decoding in enumerate(decodings):
            positions.setdefault(decoding, []).append(position)
        rows: list[dict[str, Any]] = [{}] * len(texts)
        for decoding, own in positions.items():
            inputs = [texts[position] for position in own]
            batches = decode_batches(self.model, inputs, decoding, self.settings.batch_size)
            predictions = (prediction for batch in batches for prediction in render(batch, self.names))
            for position, prediction in zip(own, predictions, strict=True):
                rows[position] = self._row(prediction)
        return rows

    def _row(self, prediction: Prediction) -> dict[str, Any]:
        """The row of `arbormax predict`, and the nodes of its steps and alternatives."""
        return {
            **prediction.to_dict(),
            "node": prediction.node,
            "probability": prediction.probability,
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
        settings = self.settings
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
            "limits": {
                "max_texts": settings.max_texts,
                "max_characters": settings.max_characters,
                "max_body_bytes": settings.max_body_bytes,
            },
            "examples": list(settings.examples),
        }

    def explain(self, request: ExplainRequest, decoding: Decoding) -> dict[str, Any]:
        """The prediction for one text and the reasons for it."""
        return explain(
            self.model,
            request.text,
            decoding=decoding,
            siblings=request.siblings,
            words=request.words,
            node=request.node,
        )
