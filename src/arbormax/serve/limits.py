"""Limits of one request: bytes, seconds, and how many requests are processed at the same time."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from arbormax.serve.problems import Problem
from arbormax.serve.settings import Settings

_CLOSE = {"connection": "close"}  # the rest of the body is not read


class Limits:
    """ASGI middleware that refuses bodies that are too large, requests that take too long, and too many requests."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app, self._max_bytes, self._seconds = app, settings.max_body_bytes, settings.request_seconds
        self._requests, self._max_requests = 0, settings.max_requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if scope["method"] in ("GET", "HEAD"):  # health checks and metrics stay available under load
            await self._limited(scope, receive, send)
            return
        if self._requests >= self._max_requests:
            await overloaded(1).response()(scope, receive, send)
            return
        self._requests += 1
        try:
            await self._limited(scope, receive, send)
        finally:
            self._requests -= 1

    async def _limited(self, scope: Scope, receive: Receive, send: Send) -> None:
        length = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if length.isdigit() and int(length) > self._max_bytes:
            await self._too_large().response()(scope, receive, send)
            return
        count, is_read, is_started = 0, False, False

        async def receive_limited() -> Message:
            nonlocal count, is_read
            message = await receive()
            if message["type"] == "http.request":
                count += len(message.get("body", b""))
                is_read = not message.get("more_body", False)
                if count > self._max_bytes:
                    raise self._too_large()
            return message

        async def send_noted(message: Message) -> None:
            nonlocal is_started
            is_started = True
            await send(message)

        limit = asyncio.timeout(self._seconds)
        try:
            async with limit:
                await self.app(scope, receive_limited, send_noted)
        except TimeoutError:
            if is_started or not limit.expired():
                raise
            if count and not is_read:
                problem = Problem(408, f"the body did not arrive within {self._seconds:g} seconds", _CLOSE)
            else:
                problem = Problem(504, f"no response within {self._seconds:g} seconds")
            await problem.response()(scope, receive, send)

    def _too_large(self) -> Problem:
        detail = f"the body exceeds {self._max_bytes:,} bytes: split the texts over several requests"
        return Problem(413, detail, _CLOSE)


def overloaded(retry_after: int) -> Problem:
    """The response to a request for which there is no capacity."""
    return Problem(503, "the service is overloaded: try again later", {"retry-after": str(retry_after)})
