"""How much one request may ask for: bytes, seconds, and company."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from arbormax.serve.problems import Problem
from arbormax.serve.settings import Settings

_CLOSE = {"connection": "close"}  # what is left of the body will not be read


class Company:
    """How many requests are read or answered now, and how many may be."""

    def __init__(self, most: int) -> None:
        self.now, self.most = 0, most

    @property
    def is_full(self) -> bool:
        return self.now >= self.most


class Limits:
    """ASGI middleware: stops reading a body that is too large, and gives up on what takes too long."""

    def __init__(self, app: ASGIApp, settings: Settings, company: Company) -> None:
        self.app, self._bytes, self._seconds = app, settings.max_body_bytes, settings.request_seconds
        self._company = company

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if scope["method"] in ("GET", "HEAD"):  # health stays to be seen when there are too many
            await self._limited(scope, receive, send)
            return
        if self._company.is_full:
            await busy(1).response()(scope, receive, send)
            return
        self._company.now += 1
        try:
            await self._limited(scope, receive, send)
        finally:
            self._company.now -= 1

    async def _limited(self, scope: Scope, receive: Receive, send: Send) -> None:
        length = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if length.isdigit() and int(length) > self._bytes:
            await self._too_large().response()(scope, receive, send)
            return
        count, is_read, is_started = 0, False, False

        async def counted() -> Message:
            nonlocal count, is_read
            message = await receive()
            if message["type"] == "http.request":
                count += len(message.get("body", b""))
                is_read = not message.get("more_body", False)
                if count > self._bytes:
                    raise self._too_large()
            return message

        async def noted(message: Message) -> None:
            nonlocal is_started
            is_started = True
            await send(message)

        limit = asyncio.timeout(self._seconds)
        try:
            async with limit:
                await self.app(scope, counted, noted)
        except TimeoutError:
            if is_started or not limit.expired():
                raise
            problem = too_slow_to_send(self._seconds) if count and not is_read else too_slow_to_answer(self._seconds)
            await problem.response()(scope, receive, send)

    def _too_large(self) -> Problem:
        detail = f"a body has at most {self._bytes:,} bytes here: send the texts in several requests"
        return Problem(413, detail, _CLOSE)


def too_slow_to_send(seconds: float) -> Problem:
    """The answer when the rest of a body does not come."""
    return Problem(408, f"the body did not arrive within {seconds:g} seconds", _CLOSE)


def too_slow_to_answer(seconds: float) -> Problem:
    """The answer when there is none in time."""
    return Problem(504, f"there was no answer within {seconds:g} seconds")


def busy(seconds: int) -> Problem:
    """The answer when there is no room."""
    return Problem(503, "there is too much to do: try again later", {"retry-after": str(seconds)})
