"""Counts and durations of one service, for Prometheus."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

MEDIA_TYPE = CONTENT_TYPE_LATEST
SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # the variable that switches prometheus_client to its multiprocess mode
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics(Collector):
    """Metrics in a registry of their own, so that several services in one process stay separate.

    With several workers they are sums over all workers; the queue length is that of the worker that is asked.
    """

    def __init__(self, queue_length: Callable[[], int]) -> None:
        self._queue_length = queue_length
        self._registry = registry = CollectorRegistry()
        self._requests = Counter("arbormax_requests", "Requests answered.", ["route", "status"], registry=registry)
        self._request_seconds = Histogram(
            "arbormax_request_seconds",
            "Seconds from request to response.",
            ["route"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.texts = Counter("arbormax_texts", "Texts predicted or explained.", registry=registry)
        self._batch_texts = Histogram("arbormax_batch_texts", "Texts in a batch.", buckets=_SIZES, registry=registry)
        self._batch_seconds = Histogram(
            "arbormax_batch_seconds", "Seconds of a batch.", buckets=_SECONDS, registry=registry
        )
        if SHARED_FOLDER in os.environ:
            self._registry = CollectorRegistry()
            MultiProcessCollector(self._registry)  # type: ignore[no-untyped-call]
        else:
            ProcessCollector(registry=registry)
        self._registry.register(self)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The queue length."""
        yield GaugeMetricFamily("arbormax_queue_texts", "Texts waiting.", self._queue_length())

    def record_request(self, route: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        self._requests.labels(route, str(status)).inc()
        self._request_seconds.labels(route).observe(seconds)

    def record_batch(self, size: int, seconds: float) -> None:
        """Count one batch of the model."""
        self._batch_texts.observe(size)
        self._batch_seconds.observe(seconds)

    def render(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        return generate_latest(self._registry)
