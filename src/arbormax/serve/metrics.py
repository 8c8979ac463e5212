"""Counts and times of one service, for Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter as Tally
from collections.abc import Callable, Sequence

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from arbormax.serve.workers import is_one_of_several

MEDIA = CONTENT_TYPE_LATEST
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class _Histogram(Histogram):
    """A histogram that takes many numbers in the time of a few."""

    def observe_all(self, amounts: Sequence[float]) -> None:
        self._sum.inc(sum(amounts))
        for bucket, count in Tally(bisect_left(self._upper_bounds, amount) for amount in amounts).items():
            self._buckets[bucket].inc(count)


class Metrics:
    """What is counted, in a registry of its own: several services in one process do not mix.

    Processes that serve together tell the sums of all, and what waits in each as of its last batch.
    """

    def __init__(self, waiting: Callable[[], int]) -> None:
        own = self._registry = CollectorRegistry()
        self._waiting, self._is_shared = waiting, is_one_of_several()
        self._requests = Counter("arbormax_requests", "Requests answered.", ["route", "status"], registry=own)
        self._seconds = _Histogram(
            "arbormax_request_seconds", "Seconds from request to answer.", ["route"], buckets=_SECONDS, registry=own
        )
        self.texts = Counter("arbormax_texts", "Texts predicted or explained.", registry=own)
        self._batch = Histogram(
            "arbormax_batch_texts", "Texts that the model took at a time.", buckets=_SIZES, registry=own
        )
        self._batch_seconds = Histogram("arbormax_batch_seconds", "Seconds of a batch.", buckets=_SECONDS, registry=own)
        self._queue = Gauge("arbormax_queue_texts", "Texts that wait.", registry=own, multiprocess_mode="livesum")
        if not self._is_shared:
            ProcessCollector(registry=own)
            self._queue.set_function(waiting)
        self._known: dict[tuple[str, int], tuple[Counter, _Histogram]] = {}

    def request(self, route: str, status: int, *seconds: float) -> None:
        """Requests were answered, in so many seconds each."""
        known = self._known.get((route, status))
        if known is None:
            known = self._requests.labels(route, str(status)), self._seconds.labels(route)
            self._known[route, status] = known
        known[0].inc(len(seconds))
        known[1].observe_all(seconds)

    def batch(self, size: int, seconds: float) -> None:
        """The model has answered one more batch."""
        self._batch.observe(size)
        self._batch_seconds.observe(seconds)
        if self._is_shared:
            self._queue.set(self._waiting())

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        registry = self._registry
        if self._is_shared:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
