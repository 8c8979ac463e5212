"""Uvicorn's HTTP protocol with limits of the request head, for which Uvicorn has no settings.

It is given to Uvicorn as its setting `http`. It also refuses absolute-form targets, whose host could differ from the
Host header, and limits the requests that one connection sends without waiting for the responses.
"""

from __future__ import annotations

from asyncio import BaseTransport, TimerHandle
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_MAX_PIPELINED = 256
_FIELD_BYTES = 4  # the colon, the space and the line end of a header field


class LimitedProtocol(HttpToolsProtocol):
    """A connection whose request heads have at most `max_head_bytes` and arrive within `head_seconds`."""

    def __init__(self, *args: Any, max_head_bytes: int, head_seconds: float, **options: Any) -> None:
        super().__init__(*args, **options)
        self._max_head_bytes, self._head_seconds = max_head_bytes, head_seconds
        self._field_bytes = 0  # of the head and the trailers of this message
        self._pending_bytes = 0  # that the parser has received since it last completed a head or a part of a body
        self._in_head = False
        self._timer: TimerHandle | None = None
        self._refusal: tuple[int, str] | None = None

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._pending_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._pending_bytes > self._max_head_bytes:
            self._refusal = 431, f"The request head exceeds {self._max_head_bytes:,} bytes."
            self.send_400_response("")
        elif (self._in_head or self._pending_bytes) and self._timer is None:
            self._start_timer()

    def on_message_begin(self) -> None:
        self._in_head, self._field_bytes = True, 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + _FIELD_BYTES)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head, self._pending_bytes = False, 0
        self._stop_timer()
        if not self.url.startswith(b"/") and self.url != b"*":
            self._refuse(400, "The target of a request is a path.")
        if len(self.pipeline) >= _MAX_PIPELINED:
            self._refuse(400, f"More than {_MAX_PIPELINED} requests wait on this connection.")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._pending_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._pending_bytes = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        status, text = self._refusal or (400, msg)
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
            f"content-length: {len(text)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write((head + text).encode("ascii"))
        self.transport.close()

    def _count(self, size: int) -> None:
        self._field_bytes += size
        if self._field_bytes > self._max_head_bytes:
            self._refuse(431, f"The request head exceeds {self._max_head_bytes:,} bytes.")

    def _refuse(self, status: int, text: str) -> None:
        self._refusal = status, text
        raise ValueError(text)  # the parser stops, and Uvicorn calls `send_400_response`

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(self._head_seconds, self._close_slow)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_slow(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:  # answers the request before this one
            self._start_timer()
        elif self._in_head or self._pending_bytes:
            self._refusal = 408, f"The request head did not arrive within {self._head_seconds:g} seconds."
            self.send_400_response("")
        else:
            self.transport.close()
