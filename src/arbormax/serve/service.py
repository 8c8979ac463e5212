"""One model with all that it takes to serve it."""

from __future__ import annotations

from typing import Any

from arbormax._version import __version__
from arbormax.model.network import Model
from arbormax.serve.answers import Answers
from arbormax.serve.batching import Worker
from arbormax.serve.limits import Company
from arbormax.serve.metrics import Metrics
from arbormax.serve.schemas import ExplainRequest
from arbormax.serve.settings import Settings
from arbormax.serve.taxonomy import Tree


class Service:
    """The model, its worker, its tree and its counts; the model is used by the worker alone."""

    def __init__(self, model: Model, settings: Settings, name: str) -> None:
        self.model, self.settings, self.name = model.eval(), settings, name
        answers = Answers(model, settings.batch_size)
        self.tree = Tree(model.taxonomy, answers.names, name)
        self.metrics = Metrics(lambda: self.worker.waiting)
        self.company = Company(settings.max_requests)
        self.worker = Worker(
            answers,
            queue=settings.queue,
            batch_size=settings.batch_size,
            wait=settings.batch_wait_ms / 1000,
            on_batch=self.metrics.batch,
        )

    def about(self) -> dict[str, Any]:
        """What is served, and how much of it may be asked at a time."""
        settings = self.settings
        return {
            "name": self.name,
            "encoder": self.model.config.encoder,
            "head": self.model.config.head,
            "classes": self.model.taxonomy.num_leaves,
            "depth": self.model.taxonomy.depth,
            "arbormax": __version__,
            "limits": {
                "max_texts": settings.max_texts,
                "max_characters": settings.max_characters,
                "max_body_bytes": settings.max_body_bytes,
            },
            "examples": list(settings.examples),
        }

    def explain(self, asked: ExplainRequest) -> dict[str, Any]:
        """Why the model answers as it does."""
        from arbormax.model.explain import explain

        return explain(
            self.model,
            asked.text,
            decoding=asked.decoding(),
            siblings=asked.siblings,
            words=asked.words,
            node=asked.node,
        )
