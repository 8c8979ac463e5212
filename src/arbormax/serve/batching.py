"""A bounded queue in front of the model: requests that wait at the same time are answered together.

The queue lives on the event loop; one thread runs the model, so the event loop keeps reading and writing meanwhile.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

_FILLED = 0.8  # a batch starts early once this share of the texts of the last batches has arrived
_MAX_RETRY_SECONDS = 60

Predict = Callable[[Sequence[str], Sequence[Any]], list[Any]]


class QueueFullError(Exception):
    """The queue has no space for this request; `retry_after` estimates in how many seconds it has."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"the queue is full for about {retry_after} s")
        self.retry_after = retry_after


class ClosedError(Exception):
    """The batcher is not running: it has not started, or the service is shutting down."""


@dataclass(eq=False)
class _Job:
    """One text of a request."""

    text: str
    options: Hashable
    future: asyncio.Future[Any]
    alone: bool  # whether the text has a batch of its own


class Batcher:
    """Answers queued texts in batches of at most `batch_size`; the queue holds at most `queue` texts.

    An idle batcher starts immediately. Under load it waits up to `wait` seconds for a batch to fill. A cancelled
    request leaves the queue. `on_batch` receives the number of texts and the seconds of each batch.
    """

    def __init__(
        self,
        predict: Predict,
        *,
        queue: int,
        batch_size: int,
        wait: float = 0.0,
        on_batch: Callable[[int, float], None] = lambda _size, _seconds: None,
    ) -> None:
        self._predict, self._capacity, self._batch_size = predict, queue, batch_size
        self._wait, self._on_batch = wait, on_batch
        self._jobs: deque[_Job] = deque()
        self._recent_sizes = [0, 0]  # texts in each of the last two batches
        self._seconds_per_text = 0.0
        self._closing = False
        self._arrived: asyncio.Event
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to answer on the running event loop."""
        self._closing, self._arrived = False, asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Refuse new requests and answer those in the queue."""
        self._closing = True
        if self._task is not None:
            self._arrived.set()
            await self._task

    @property
    def waiting(self) -> int:
        """Number of texts in the queue."""
        return len(self._jobs)

    @property
    def state(self) -> str:
        """`ready`, `starting`, `full`, `closing` or `dead`."""
        if self._closing:
            return "closing"
        if self._task is None:
            return "starting"
        if self._task.done():
            return "dead"
        return "full" if self.waiting >= self._capacity else "ready"

    async def predict(self, texts: list[str], options: Sequence[Hashable], alone: bool = False) -> list[Any]:
        """Return one result per text; raises `QueueFullError` or `ClosedError` without waiting.

        `options` has those of each text. With `alone=True` the texts share no batch with other requests.
        """
        if self._task is None or self._closing:
            raise ClosedError
        if self.waiting + len(texts) > self._capacity:
            seconds = math.ceil(self.waiting * self._seconds_per_text)
            raise QueueFullError(min(_MAX_RETRY_SECONDS, max(1, seconds)))
        loop = asyncio.get_running_loop()
        jobs = [_Job(text, own, loop.create_future(), alone) for text, own in zip(texts, options, strict=True)]
        self._jobs.extend(jobs)
        self._arrived.set()
        try:
            results = [await job.future for job in jobs]
        except asyncio.CancelledError:  # the caller has gone, so its texts leave the queue
            for job in jobs:
                job.future.cancel()
            self._jobs = deque(job for job in self._jobs if not job.future.done())
            raise
        for result in results:
            if isinstance(result, Exception):
                raise result
        return results

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, "arbormax-model") as executor:
            while self._jobs or not self._closing:
                if not self._jobs:
                    self._arrived.clear()
                    await self._arrived.wait()
                    continue
                await self._fill()
                batch = self._next_batch()
                if not batch:  # every request was cancelled meanwhile
                    continue
                begin = time.perf_counter()
                results = await loop.run_in_executor(executor, self._answer, batch)
                self._record(len(batch), time.perf_counter() - begin)
                for job, result in zip(batch, results, strict=True):
                    if not job.future.cancelled():
                        job.future.set_result(result)

    async def _fill(self) -> None:
        """Wait for about as many texts as were answered together before: their callers often ask again."""
        expected = _FILLED * max(self._recent_sizes)
        deadline = asyncio.get_running_loop().time() + self._wait
        while self.waiting < min(expected, self._batch_size) and not self._closing:
            self._arrived.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._arrived.wait()
            except TimeoutError:
                self._recent_sizes = [0, 0]
                return

    def _next_batch(self) -> list[_Job]:
        """Take texts from the front of the queue."""
        batch: list[_Job] = []
        while self._jobs and len(batch) < self._batch_size:
            if batch and (self._jobs[0].alone or batch[0].alone):
                break
            batch.append(self._jobs.popleft())
        self._recent_sizes = [self._recent_sizes[1], len(batch)]
        return batch

    def _answer(self, batch: list[_Job]) -> list[Any]:
        """Run the model, in its thread; an error is a result."""
        try:
            results = self._predict([job.text for job in batch], [job.options for job in batch])
            if len(results) != len(batch):
                raise RuntimeError(f"{len(batch)} texts have {len(results)} results")
            return results
        except Exception as error:
            if len(batch) == 1:
                return [error]
            # a text that the model cannot process must not fail the other requests of its batch
            return [self._answer([job])[0] for job in batch]

    def _record(self, size: int, seconds: float) -> None:
        weight = 0.2 if self._seconds_per_text else 1.0
        self._seconds_per_text += weight * (seconds / size - self._seconds_per_text)
        self._on_batch(size, seconds)
