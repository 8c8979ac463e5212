"""Predictions before the rest of the service: a plain request for one is read and answered right at its connection.

A small model takes less time for a text than Uvicorn, Starlette and FastAPI take to carry it there and back. So a
connection is first looked at here: a whole, ordinary `POST /v1/predict` goes straight to the worker's queue. Whatever
is not quite that (another address, an odd header, a large body) is handed to Uvicorn's own protocol as it came, and so
is all that follows on that connection.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Iterable
from functools import partial
from http import HTTPStatus
from typing import Any

from pydantic import ValidationError
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from arbormax.serve import schemas
from arbormax.serve.batching import ClosedError, Job, QueueFullError
from arbormax.serve.limits import busy, too_slow_to_answer, too_slow_to_send
from arbormax.serve.problems import Problem, of_validation
from arbormax.serve.security import HEADERS, NO_STORE, Guard
from arbormax.serve.service import Service
from arbormax.serve.watch import GONE

PATH, OK = "/v1/predict", 200
_LINE = f"POST {PATH} HTTP/1.1\r\n".encode()
_LARGEST = 1 << 16  # bytes of a request; larger ones lose nothing by the long way
_HEADS, _SHORT = 4096, 2048  # heads that are remembered, and their bytes: a client's differ in their length alone
_NAME, _VALUE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"), re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_ODD = frozenset(
    [b"transfer-encoding", b"content-encoding", b"expect", b"upgrade", b"te", b"trailer", b"proxy-connection"]
)
log = logging.getLogger("arbormax.serve")


class Desk:
    """What the connections of one service share."""

    def __init__(self, service: Service) -> None:
        settings = service.settings
        self.service, self.seconds = service, settings.request_seconds
        self._asked, self._guard = schemas.predict_request(settings), Guard(settings)
        self._largest = min(_LARGEST, settings.max_body_bytes)
        self._lengths: dict[bytes, int] = {}
        self._fronts: set[Front] = set()
        self._answered: dict[int, list[float]] = {}  # statuses and seconds, not counted yet
        self._texts = 0
        self._round = min(1.0, settings.request_seconds / 4)  # seconds between two looks at who takes too long
        self._timer: asyncio.TimerHandle | None = None

    def length_of(self, head: bytes) -> int:
        """Of the body behind this head; below 0 if the request is none to be answered here."""
        length = self._lengths.get(head)
        if length is None:
            length = self._read(head)
            if length >= 0 and len(head) <= _SHORT:
                if len(self._lengths) >= _HEADS:
                    self._lengths.clear()
                self._lengths[head] = length
        return length

    def _read(self, head: bytes) -> int:
        headers: dict[bytes, bytes] = {}
        for line in head.split(b"\r\n")[1:]:
            name, colon, value = line.partition(b":")
            name, value = name.lower(), value.strip(b" \t")
            if not colon or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value) or name in headers or name in _ODD:
                return -1
            headers[name] = value
        length, kind = headers.get(b"content-length", b""), headers.get(b"content-type", b"")
        if kind.partition(b";")[0].strip().lower() != b"application/json" or not re.fullmatch(rb"[0-9]{1,6}", length):
            return -1
        if headers.get(b"connection", b"keep-alive").lower() != b"keep-alive" or int(length) > self._largest:
            return -1
        if b"host" not in headers:
            return -1
        return int(length) if self._guard.refusal(PATH, headers) is None else -1

    def job_of(self, body: bytes, front: Front) -> Job:
        """What a body asks for, in the queue; a problem if it does not fit, or finds no room."""
        try:
            asked = self._asked.model_validate_json(body)
        except ValidationError as error:
            raise of_validation(error) from None
        job = Job(asked.all_texts(), asked.decoding(asked.top_k), front.answered)
        try:
            self.service.worker.submit(job)
        except QueueFullError as error:
            raise busy(error.seconds) from None
        return job

    def count(self, status: int, seconds: float, texts: int) -> None:
        """One more is answered: those of one turn of the loop are counted together."""
        if not self._answered:
            asyncio.get_running_loop().call_soon(self._count)
        self._answered.setdefault(status, []).append(seconds)
        self._texts += texts
        if log.isEnabledFor(logging.INFO):
            log.info("POST %s %d %.1f ms", PATH, status, 1e3 * seconds)

    def _count(self) -> None:
        metrics, answered, texts = self.service.metrics, self._answered, self._texts
        self._answered, self._texts = {}, 0
        for status, seconds in answered.items():
            metrics.request(PATH, status, *seconds)
        metrics.texts.inc(texts)

    def soon(self, what: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(what)

    def enter(self, front: Front) -> None:
        self._fronts.add(front)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._round, self._look)

    def leave(self, front: Front) -> None:
        self._fronts.discard(front)

    def _look(self) -> None:
        self._timer = None
        now = time.perf_counter()
        for front in list(self._fronts):
            front.look(now)
        if self._fronts:
            self._timer = asyncio.get_running_loop().call_later(self._round, self._look)


class Front(asyncio.Protocol):
    """A connection: answers here as long as it can, then Uvicorn's protocol takes its place."""

    def __init__(self, desk: Desk, config: Any, server_state: Any, app_state: Any, _loop: Any = None) -> None:
        self._desk, self._connections, self._patience = desk, server_state.connections, config.timeout_keep_alive
        self._company, self._worker = desk.service.company, desk.service.worker
        protocol: Any = AutoHTTPProtocol  # of httptools, or of h11
        self._uvicorn = partial(protocol, config, server_state, app_state, _loop)
        self._transport: Any = None
        self._job: Job | None = None
        self._data = self._rest = b""  # the request that is answered; what came behind it, or a part of the next
        self._since: float | None = None  # when the request began to come, or when the last one was answered
        self._is_counted = False  # as one of the requests that are read or answered
        self._is_closing = self._is_choked = self._is_full = False

    # ------------------------------------------------- what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._connections.add(self)
        self._desk.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._leave()
        if self._is_counted:
            self._end(GONE)

    def data_received(self, data: bytes) -> None:
        if self._job is not None or self._is_choked:
            self._rest += data
            self._read_on()
            return
        if self._rest:
            data, self._rest = self._rest + data, b""
        else:
            self._since = time.perf_counter()
        self._read(data)

    def pause_writing(self) -> None:
        self._is_choked = True  # the caller asks and does not read

    def resume_writing(self) -> None:
        self._is_choked = False
        if self._job is None:
            self._go_on()

    # ------------------------------------------------------- what Uvicorn calls

    def shutdown(self) -> None:
        """End, after the answer to what has begun to come."""
        self._is_closing = True
        if self._job is None and not self._rest:
            self._transport.close()

    # ------------------------------------------------------------- one request

    def _read(self, data: bytes) -> None:
        end = data.find(b"\r\n\r\n") if data.startswith(_LINE) else -1
        length = self._desk.length_of(data[:end]) if 0 < end <= _LARGEST else -1
        if length < 0:
            self._hand_over(data)
            return
        if not self._is_counted:
            if self._company.is_full:
                self._refuse(busy(1), data[end + 4 + length :])
                return
            self._company.now += 1
            self._is_counted = True
        begin, stop = end + 4, end + 4 + length
        if len(data) < stop:
            self._rest = data
            return
        try:
            self._job = self._desk.job_of(data[begin:stop], self)
        except Problem as problem:
            self._refuse(problem, data[stop:])
        except ClosedError:
            self._hand_over(data)
        else:
            self._data, self._rest = data[:stop], data[stop:]

    def answered(self, got: list[str] | Exception) -> None:
        """What the worker gives."""
        if isinstance(got, Exception):  # once more, the long way, which tells it
            self._hand_over(self._data + self._rest)
            return
        body = f'{{"predictions":[{",".join(got)}]}}'.encode()
        ending = _LAST if self._is_closing else _LENGTH
        self._transport.write(b"%b%b%d\r\n\r\n%b" % (_ANSWER, ending, len(body), body))
        self._end(OK)
        self._go_on()

    def _refuse(self, problem: Problem, rest: bytes) -> None:
        """Answer by a problem; `rest` is what came behind the request."""
        response = problem.response()
        headers = [*response.raw_headers, NO_STORE, *HEADERS]
        self._transport.write(_head(problem.status, headers) + response.body)
        self._end(problem.status)
        self._rest = rest
        self._desk.soon(self._go_on)  # not at once: there may be very many

    def _go_on(self) -> None:
        """With what came in the meantime."""
        if self._job is not None or self._is_choked or self._transport.is_closing():
            return
        if self._is_closing and not self._is_counted:
            self._transport.close()
        elif self._rest:
            data, self._rest, self._since = self._rest, b"", time.perf_counter()
            self._read(data)
        self._read_on()

    def _read_on(self) -> None:
        """Or not, while too much waits already."""
        is_full = len(self._rest) > _LARGEST and (self._job is not None or self._is_choked)
        if is_full != self._is_full and not self._transport.is_closing():
            self._is_full = is_full
            (self._transport.pause_reading if is_full else self._transport.resume_reading)()

    def look(self, now: float) -> None:
        """Whether something takes too long."""
        if self._since is None or self._transport.is_closing():
            return
        spent, limit = now - self._since, self._desk.seconds
        if self._job is not None:
            if spent > limit:
                self._refuse(too_slow_to_answer(limit), self._rest)
        elif self._is_choked:
            if spent > limit:  # what it asked for, it does not read
                self._transport.abort()
        elif self._rest:
            if spent > limit:
                self._is_closing = True
                self._refuse(too_slow_to_send(limit), b"")
        elif spent > self._patience:
            self._transport.close()

    def _end(self, status: int | None) -> None:
        """The request is answered; None: somebody else will."""
        now = time.perf_counter()
        job, since, self._job, self._data, self._since = self._job, self._since or now, None, b"", now
        if job is not None:
            self._worker.give_up(job)
        if self._is_counted:
            self._company.now -= 1
            self._is_counted = False
        if status is not None:
            self._desk.count(status, now - since, len(job.texts) if job is not None and status == OK else 0)

    def _hand_over(self, data: bytes) -> None:
        """Uvicorn's protocol has the connection from here on."""
        self._end(None)
        self._leave()
        self._rest = b""
        self._read_on()
        inner = self._uvicorn()
        inner.connection_made(self._transport)
        self._transport.set_protocol(inner)
        inner.data_received(data)
        if self._is_closing:
            inner.shutdown()

    def _leave(self) -> None:
        self._connections.discard(self)
        self._desk.leave(self)


def _head(status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The head of an answer."""
    line = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode()
    return line + b"".join(b"%b: %b\r\n" % header for header in headers) + b"\r\n"


_LENGTH = b"content-length: "
_LAST = b"connection: close\r\n" + _LENGTH
# of a prediction, up to the length of its body
_ANSWER = _head(OK, [(b"content-type", b"application/json"), NO_STORE, *HEADERS])[:-2]
