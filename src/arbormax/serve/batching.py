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
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

_FILLED = 0.8  # a batch starts early once this share of the requests of the last batches has arrived
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
    """The texts of one request."""

    texts: list[str]
    options: Hashable
    future: asyncio.Future[list[Any]]
    alone: bool  # whether the job has a batch of its own
    taken: int = 0  # number of texts that are already part of a batch
    results: list[Any] = field(default_factory=list)


_Part = tuple[_Job, int, int]  # a job and the slice of its texts that a batch contains


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
        self._waiting = 0  # texts
        self._recent_sizes = [0, 0]  # requests in each of the last two batches
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
        return self._waiting

    @property
    def state(self) -> str:
        """`ready`, `starting`, `full`, `closing` or `dead`."""
        if self._closing:
            return "closing"
        if self._task is None:
            return "starting"
        if self._task.done():
            return "dead"
        return "full" if self._waiting >= self._capacity else "ready"

    async def predict(self, texts: list[str], options: Hashable, alone: bool = False) -> list[Any]:
        """Return one result per text; raises `QueueFullError` or `ClosedError` without waiting.

        With `alone=True` the texts share no batch with other requests.
        """
        if self._task is None or self._closing:
            raise ClosedError
        if self._waiting + len(texts) > self._capacity:
            seconds = math.ceil(self._waiting * self._seconds_per_text)
            raise QueueFullError(min(_MAX_RETRY_SECONDS, max(1, seconds)))
        job = _Job(texts, options, asyncio.get_running_loop().create_future(), alone)
        self._jobs.append(job)
        self._waiting += len(texts)
        self._arrived.set()
        try:
            return await job.future
        finally:
            if job in self._jobs:  # the rest of a job that failed or whose caller has gone
                self._jobs.remove(job)
                self._waiting -= len(job.texts) - job.taken

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, "arbormax-model") as executor:
            while self._jobs or not self._closing:
                if not self._jobs:
                    self._arrived.clear()
                    await self._arrived.wait()
                    continue
                await self._fill()
                parts = self._next_batch()
                if not parts:  # every request was cancelled meanwhile
                    continue
                begin = time.perf_counter()
                results = await loop.run_in_executor(executor, self._answer, parts)
                self._record(parts, time.perf_counter() - begin)
                for job, result in results:
                    self._deliver(job, result)

    async def _fill(self) -> None:
        """Wait for about as many requests as were answered together before: their callers often ask again."""
        expected = _FILLED * max(self._recent_sizes)
        deadline = asyncio.get_running_loop().time() + self._wait
        while len(self._jobs) < expected and self._waiting < self._batch_size and not self._closing:
            self._arrived.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._arrived.wait()
            except TimeoutError:
                self._recent_sizes = [0, 0]
                return

    def _next_batch(self) -> list[_Part]:
        """Take texts from the front of the queue."""
        parts: list[_Part] = []
        space = self._batch_size
        while self._jobs and space:
            job = self._jobs[0]
            if parts and (job.alone or parts[0][0].alone):
                break
            start, job.taken = job.taken, min(len(job.texts), job.taken + space)
            space -= job.taken - start
            parts.append((job, start, job.taken))
            if job.taken == len(job.texts):
                self._jobs.popleft()
        self._waiting -= sum(stop - start for _, start, stop in parts)
        self._recent_sizes = [self._recent_sizes[1], len(parts)]
        return parts

    def _answer(self, parts: list[_Part]) -> list[tuple[_Job, Any]]:
        """Run the model, in its thread; an error is a result."""
        try:
            texts = [text for job, start, stop in parts for text in job.texts[start:stop]]
            options = [job.options for job, start, stop in parts for _ in range(start, stop)]
            results = self._predict(texts, options)
            if len(results) != len(texts):
                raise RuntimeError(f"{len(texts)} texts have {len(results)} results")
            remaining = iter(results)
            return [(job, list(islice(remaining, stop - start))) for job, start, stop in parts]
        except Exception as error:
            if len(parts) == 1:
                return [(parts[0][0], error)]
            # a text that the model cannot process must not fail the other requests of its batch
            return [answered for part in parts for answered in self._answer([part])]

    def _record(self, parts: list[_Part], seconds: float) -> None:
        size = sum(stop - start for _, start, stop in parts)
        weight = 0.2 if self._seconds_per_text else 1.0
        self._seconds_per_text += weight * (seconds / size - self._seconds_per_text)
        self._on_batch(size, seconds)

    def _deliver(self, job: _Job, result: Any) -> None:
        if job.future.done():  # cancelled, or another part of it failed
            return
        if isinstance(result, Exception):
            job.future.set_exception(result)
            return
        job.results += result
        if len(job.results) == len(job.texts):
            job.future.set_result(job.results)
