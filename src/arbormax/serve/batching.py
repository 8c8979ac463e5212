"""A bounded queue before the model: requests that wait together are answered together.

A model that takes long has a thread of its own, so that the event loop goes on. A quick one is called on the event loop
itself: two threads that take turns at every few operations cost each other more than they save.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from arbormax.model.predict import Decoding

_QUICK = 0.01  # seconds that a batch may hold up the event loop
_LONG = 2000  # characters of a text that is never for the event loop
_SHARE = 0.8  # of the larger of the last two batches: what the next one is held for

Score = Callable[[Sequence[str], Sequence[Decoding]], list[str]]

log = logging.getLogger("arbormax.serve")


class QueueFullError(Exception):
    """There is no room for this request now; `seconds` is when there may be."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"the queue is full for about {seconds} s")
        self.seconds = seconds


class ClosedError(Exception):
    """The service is shutting down and takes no more."""


class Job:
    """A request's texts, or a call that wants the model to itself; `done` is told the result or the error."""

    __slots__ = ("call", "decoding", "done", "is_long", "is_over", "result", "taken", "texts")

    def __init__(
        self,
        texts: list[str],
        decoding: Decoding,
        done: Callable[[Any], None],
        call: Callable[[], Any] | None = None,
    ) -> None:
        self.texts, self.decoding, self.done, self.call = texts, decoding, done, call
        self.is_long = call is not None or any(len(text) > _LONG for text in texts)
        self.taken = 0  # of its texts, by the worker
        self.is_over = False  # answered, or given up
        self.result: list[str] = []


class Worker:
    """Takes what waits, up to `batch_size` texts at a time; the queue holds at most `queue` texts.

    An idle worker starts at once. Under load it may wait `wait` seconds for a batch to fill. Requests that are
    cancelled leave the queue. `on_batch` is told the size and the seconds of each batch.
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
        self._jobs: deque[Job] = deque()
        self._ready = threading.Condition()
        self._waiting = 0  # texts
        self._closing = self._wakes = self._crowded = False
        self._away = 0  # batches of the thread that are not delivered yet
        self._is_on_loop = False  # whether a batch is answered on the event loop
        self._enough = 1  # texts that the worker wants to be woken for
        self._sizes = [0, 0]  # of the last two batches, in requests
        self._hold: asyncio.TimerHandle | None = None
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
        result: list[str] = await self._wait_for(texts, decoding)
        return result

    async def call(self, function: Callable[[], Any]) -> Any:
        """What the function gives in the worker's thread; it waits in the queue like one text."""
        return await self._wait_for([""], Decoding(), function)

    async def _wait_for(self, texts: list[str], decoding: Decoding, call: Callable[[], Any] | None = None) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def done(got: Any) -> None:
            if future.done():  # cancelled in this very turn of the loop
                return
            if isinstance(got, Exception):
                future.set_exception(got)
            else:
                future.set_result(got)

        job = Job(texts, decoding, done, call)
        self.submit(job)
        try:
            return await future
        finally:
            self.give_up(job)

    def submit(self, job: Job) -> None:
        """Queue it, to be told on the event loop; raises `QueueFullError` or `ClosedError` at once."""
        if self._loop is None:
            raise ClosedError("the worker has not been started")
        with self._ready:
            if self._closing:
                raise ClosedError("the service is shutting down")
            if self._waiting + len(job.texts) > self._room:
                raise QueueFullError(min(60, max(1, math.ceil(self._waiting * self._pace))))
            self._jobs.append(job)
            self._waiting += len(job.texts)
        self._wake_soon()

    def _holds(self) -> bool:
        """Whether to let a batch fill: those who were answered together are likely to ask again together."""
        assert self._loop is not None
        if len(self._jobs) < _SHARE * max(self._sizes) and self._waiting < self._batch_size and self._wait:
            if self._hold is None:
                self._hold = self._loop.call_later(self._wait, self._go)
            return True
        if self._hold is not None:
            self._hold.cancel()
            self._hold = None
        return False

    def _go(self) -> None:
        """Who was hoped for does not come."""
        self._hold, self._sizes = None, [0, 0]
        self._wake()

    def give_up(self, job: Job) -> None:
        """Nobody waits for it any more."""
        if not job.is_over:
            job.is_over = True
            self._drop(job)

    def _wake_soon(self) -> None:
        """In the next turn of the loop: what else is ready in this one comes along."""
        if not self._wakes:
            assert self._loop is not None
            self._wakes = True
            self._loop.call_soon(self._wake)

    def _wake(self) -> None:
        self._wakes = False
        parts = []
        with self._ready:
            if self._is_quick and not self._away:
                parts = [] if self._holds() else self._cut()
                self._is_on_loop = bool(parts)
            elif self._waiting >= self._enough:
                self._ready.notify()
        if parts:
            done = self._run(parts)
            with self._ready:
                self._is_on_loop = False
                if self._closing or (self._jobs and not self._is_quick):
                    self._ready.notify()  # what is left is the thread's
            self._deliver(done)

    def _drop(self, job: Job) -> None:
        with self._ready:
            if job in self._jobs:
                self._jobs.remove(job)
                self._waiting -= len(job.texts) - job.taken

    def _come_back(self, parts: list[tuple[Job, Any]]) -> None:
        """From the thread: what the loop may cut comes behind what the thread has cut."""
        with self._ready:
            self._away -= 1
        self._deliver(parts)

    def _deliver(self, parts: list[tuple[Job, Any]]) -> None:
        for job, got in parts:
            try:
                self._tell(job, got)
            except Exception as error:  # the others of its batch wait for theirs
                log.error("an answer could not be given: %s", type(error).__name__)
        if self._jobs:
            self._wake_soon()

    def _tell(self, job: Job, got: Any) -> None:
        if job.is_over:
            return
        if job.call is None and not isinstance(got, Exception):
            job.result += got
            if len(job.result) < len(job.texts):
                return
            got = job.result
        job.is_over = True
        if isinstance(got, Exception):
            self._drop(job)  # what is left of it
        job.done(got)

    # ---------------------------------------------------- in the worker's thread

    def _work(self) -> None:
        assert self._loop is not None
        while parts := self._take():
            done = self._run(parts)
            self._loop.call_soon_threadsafe(self._come_back, done)

    def _take(self) -> list[tuple[Job, int, int]]:
        """The next batch: jobs, each with the part of its texts; nothing when all is done and it is closing."""
        has_waited = False
        with self._ready:
            while not (self._closing and not self._jobs):
                if not self._jobs or self._is_on_loop:
                    self._ready.wait()
                elif self._is_quick:  # it may have come while this thread was busy, and is for the loop
                    assert self._loop is not None
                    self._loop.call_soon_threadsafe(self._wake_soon)
                    self._ready.wait()
                elif self._crowded and self._waiting < self._batch_size and not (self._closing or has_waited):
                    has_waited, self._enough = True, self._batch_size
                    self._ready.wait(self._wait)
                    self._enough = 1
                elif parts := self._cut():
                    self._away += 1
                    return parts
        return []

    # ------------------------------------------------------------ in either of them

    @property
    def _is_quick(self) -> bool:
        """Whether what waits is for the event loop."""
        if self._closing or not self._jobs or any(job.is_long for job in islice(self._jobs, self._batch_size)):
            return False
        return 0 < self._pace * min(self._waiting, self._batch_size) < _QUICK

    def _run(self, parts: list[tuple[Job, int, int]]) -> list[tuple[Job, Any]]:
        begin = time.perf_counter()
        done = self._answer(parts)
        size, seconds = sum(stop - start for _, start, stop in parts), time.perf_counter() - begin
        if parts[0][0].call is None:
            self._pace += (0.2 if self._pace else 1.0) * (seconds / size - self._pace)
        try:
            self._on_batch(size, seconds)
        except Exception as error:  # no reason to lose answers
            log.error("a batch could not be counted: %s", type(error).__name__)
        return done

    def _cut(self) -> list[tuple[Job, int, int]]:
        parts: list[tuple[Job, int, int]] = []
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
        self._sizes = [self._sizes[1], len(parts)]
        return parts

    def _answer(self, parts: list[tuple[Job, int, int]]) -> list[tuple[Job, Any]]:
        job = parts[0][0]
        try:
            if job.call is not None:
                return [(job, job.call())]
            texts = [text for job, start, stop in parts for text in job.texts[start:stop]]
            decodings = [job.decoding for job, start, stop in parts for _ in range(start, stop)]
            rows = self._score(texts, decodings)
            if len(rows) != len(texts):
                raise RuntimeError(f"{len(texts)} texts have {len(rows)} answers")
            left = iter(rows)
            return [(job, list(islice(left, stop - start))) for job, start, stop in parts]
        except Exception as error:
            if len(parts) == 1:
                return [(job, error)]
            # one text must not spoil the requests that happen to share its batch
            return [answered for part in parts for answered in self._answer([part])]
