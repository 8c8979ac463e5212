"""One thread that owns the model, and a bounded queue before it: requests that wait together are answered together."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from arbormax.training.predictions import Decoding

Score = Callable[[Sequence[str], Sequence[Decoding]], list[str]]


class QueueFullError(Exception):
    """There is no room for this request now; `seconds` is when there may be."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"the queue is full for about {seconds} s")
        self.seconds = seconds


class ClosedError(Exception):
    """The service is shutting down and takes no more."""


class _Job:
    """A request's texts, or a call that wants the model to itself."""

    __slots__ = ("call", "decoding", "future", "result", "taken", "texts")

    def __init__(
        self, texts: list[str], decoding: Decoding, future: asyncio.Future[Any], call: Callable[[], Any] | None = None
    ) -> None:
        self.texts, self.decoding, self.future, self.call = texts, decoding, future, call
        self.taken = 0  # of its texts, by the worker
        self.result: list[str] = []


class Worker:
    """Takes what waits, up to `batch_size` texts at a time; the queue holds at most `queue` texts.

    An idle worker starts at once. Under load it may wait `wait` seconds for a batch to fill. Requests that are
    cancelled leave the queue. `on_batch` is told the size and the seconds of each batch, in the worker's thread.
    """

    def __init__(
        self,
        score: Score,
        *,
        queue: int,
        batch_size: int,
        wait: float = 0.0,
        on_batch: Callable[[int, float], None] = lambda _size, _seconds: None,
    ) -> None:
        self._score, self._room, self._batch_size, self._wait, self._on_batch = score, queue, batch_size, wait, on_batch
        self._jobs: deque[_Job] = deque()
        self._ready = threading.Condition()
        self._waiting = 0  # texts
        self._closing = self._wakes = self._crowded = False
        self._pace = 0.0  # seconds for a text, lately
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # ------------------------------------------------------- on the event loop

    def start(self) -> None:
        """Begin to work; answers come on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._work, name="arbormax-model", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        """Answer what was accepted, refuse what comes, and end."""
        with self._ready:
            self._closing = True
            self._ready.notify()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    @property
    def waiting(self) -> int:
        """The number of texts in the queue."""
        return self._waiting

    @property
    def state(self) -> str:
        """`ready`, or why not: `starting`, `full`, `closing` or `dead`."""
        if self._closing:
            return "closing"
        if self._thread is None:
            return "starting"
        if not self._thread.is_alive():
            return "dead"
        return "full" if self._waiting >= self._room else "ready"

    async def predict(self, texts: list[str], decoding: Decoding) -> list[str]:
        """The JSON object of each text; raises `QueueFullError` or `ClosedError` at once."""
        result: list[str] = await self._wait_for(_Job(texts, decoding, self._future()))
        return result

    async def call(self, function: Callable[[], Any]) -> Any:
        """What the function gives in the worker's thread; it waits in the queue like one text."""
        return await self._wait_for(_Job([""], Decoding(), self._future(), function))

    def _future(self) -> asyncio.Future[Any]:
        if self._loop is None:
            raise ClosedError("the worker has not been started")
        return self._loop.create_future()

    async def _wait_for(self, job: _Job) -> Any:
        with self._ready:
            if self._closing:
                raise ClosedError("the service is shutting down")
            if self._waiting + len(job.texts) > self._room:
                raise QueueFullError(min(60, max(1, math.ceil(self._waiting * self._pace))))
            self._jobs.append(job)
            self._waiting += len(job.texts)
        if not self._wakes:  # in the next turn of the loop: what else is ready in this one comes along
            self._wakes = True
            job.future.get_loop().call_soon(self._wake)
        try:
            return await job.future
        except asyncio.CancelledError:
            self._drop(job)
            raise

    def _wake(self) -> None:
        self._wakes = False
        with self._ready:
            self._ready.notify()

    def _drop(self, job: _Job) -> None:
        with self._ready:
            if job in self._jobs:
                self._jobs.remove(job)
                self._waiting -= len(job.texts) - job.taken

    def _deliver(self, parts: list[tuple[_Job, Any]]) -> None:
        for job, got in parts:
            if job.future.done():
                continue
            if isinstance(got, Exception):
                job.future.set_exception(got)
                self._drop(job)
            elif job.call is not None:
                job.future.set_result(got)
            else:
                job.result += got
                if len(job.result) == len(job.texts):
                    job.future.set_result(job.result)

    # ---------------------------------------------------- in the worker's thread

    def _work(self) -> None:
        assert self._loop is not None
        while parts := self._take():
            begin = time.perf_counter()
            done = self._answer(parts)
            size, seconds = sum(stop - start for _, start, stop in parts), time.perf_counter() - begin
            self._pace += 0.2 * (seconds / size - self._pace)
            self._on_batch(size, seconds)
            self._loop.call_soon_threadsafe(self._deliver, done)

    def _take(self) -> list[tuple[_Job, int, int]]:
        """The next batch: jobs, each with the part of its texts; nothing when all is done and it is closing."""
        with self._ready:
            while not (self._closing and not self._jobs):
                if not self._jobs:
                    self._ready.wait()
                    continue
                if self._crowded and self._waiting < self._batch_size and not self._closing:
                    self._ready.wait(self._wait)
                if parts := self._cut():
                    return parts
        return []

    def _cut(self) -> list[tuple[_Job, int, int]]:
        parts: list[tuple[_Job, int, int]] = []
        room = self._batch_size
        while self._jobs and room:
            job = self._jobs[0]
            if job.call is not None and parts:
                break
            start, job.taken = job.taken, min(len(job.texts), job.taken + room)
            room -= job.taken - start
            parts.append((job, start, job.taken))
            if job.taken == len(job.texts):
                self._jobs.popleft()
            if job.call is not None:
                break
        self._waiting -= sum(stop - start for _, start, stop in parts)
        self._crowded = len(parts) > 1
        return parts

    def _answer(self, parts: list[tuple[_Job, int, int]]) -> list[tuple[_Job, Any]]:
        job = parts[0][0]
        try:
            if job.call is not None:
                return [(job, job.call())]
            texts = [text for job, start, stop in parts for text in job.texts[start:stop]]
            decodings = [job.decoding for job, start, stop in parts for _ in range(start, stop)]
            rows = iter(self._score(texts, decodings))
            return [(job, [next(rows) for _ in range(start, stop)]) for job, start, stop in parts]
        except Exception as error:
            if len(parts) == 1:
                return [(job, error)]
            # one text must not spoil the requests that happen to share its batch
            return [answered for part in parts for answered in self._answer([part])]
