"""ASGI middleware: counting and logging, access control and security headers, and the limits of a request."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
import traceback
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from arbormax.serve.metrics import Metrics
from arbormax.serve.problems import Problem
from arbormax.serve.settings import Settings, is_loopback

log = logging.getLogger("arbormax.serve")
_CLIENT_CLOSED = 499  # the client disconnected before the response
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {"content-security-policy": POLICY, "x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}
PUBLIC_PATHS = frozenset(["/", "/healthz", "/readyz"])  # available without an API key
_CLOSE = {"connection": "close"}  # the rest of the body is not read


class Monitor:
    """The outermost middleware: counts and logs every request, and turns unexpected errors into a 500 response.

    The log contains routes instead of URLs, which may contain user input.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, log_texts: bool) -> None:
        self.app, self.metrics, self.log_texts = app, metrics, log_texts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin, status, method = time.perf_counter(), 0, scope["method"]
        if method == "HEAD":  # the server does not send the body of the response
            scope = {**scope, "method": "GET"}

        async def send_noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, send_noted)
        except ClientDisconnect:
            status = status or _CLIENT_CLOSED
        except Exception as error:
            log.error("unexpected error: %s", describe_error(error, self.log_texts))
            if status:
                raise RuntimeError("the response was interrupted") from None
            problem = Problem(500, "internal error; see the log of the service")
            await problem.response()(scope, receive, send_noted)
        finally:
            seconds = time.perf_counter() - begin
            route = _route_path(scope)
            self.metrics.record_request(route, status or _CLIENT_CLOSED, seconds)
            log.info("%s %s %d %.1f ms", method, route, status or _CLIENT_CLOSED, 1e3 * seconds)


def _route_path(scope: Scope) -> str:
    """The path pattern of the route, one of a few."""
    pattern: Any = getattr(scope.get("route"), "path", None)
    if pattern is not None:
        return str(pattern)
    path = scope["path"]
    if path.startswith("/static/"):
        return "/static"
    # a request that was refused before routing
    return path if any(path == getattr(route, "path", None) for route in scope["app"].routes) else "(none)"


def describe_error(error: BaseException, log_texts: bool) -> str:
    """The error's type and location; its message only if texts may be logged, because it may quote one."""
    if log_texts:
        return "".join(traceback.format_exception(error)).rstrip()
    places = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
    return f"{type(error).__name__} at {' < '.join(reversed(places[-4:]))}"


class Security:
    """Checks the Host header and the API key, and sets security headers.

    A service on localhost accepts local host names only: otherwise a page of another site, whose owner points its
    name at 127.0.0.1, could read the responses (DNS rebinding).
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self._checks_host = settings.is_local or bool(settings.allowed_hosts)
        self._hosts = {host.casefold() for host in (settings.host, *settings.allowed_hosts)}
        self._key = None if settings.api_key is None else settings.api_key.get_secret_value().encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers["cache-control"] = "no-cache" if "etag" in headers else "no-store"  # ETag: files of the page
            await send(message)

        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) > 1 or (not hosts and scope["http_version"] == "1.1"):
            refusal: Problem | None = Problem(400, f"expected one Host header, found {len(hosts)}", _CLOSE)
        else:
            refusal = self._refusal(scope["path"], dict(scope["headers"]))
        await (self.app if refusal is None else refusal.response())(scope, receive, send_secured)

    def _refusal(self, path: str, headers: dict[bytes, bytes]) -> Problem | None:
        """Why a request is refused, or None."""
        if self._checks_host and not self._allows_host(headers.get(b"host", b"").decode("latin-1")):
            return Problem(421, "unknown Host header; the setting allowed_hosts adds a host name")
        if self._key is None or path in PUBLIC_PATHS or path.startswith("/static/"):
            return None
        if hmac.compare_digest(self._key, _sent_key(headers)):
            return None
        detail = "missing or wrong API key: send it as 'Authorization: Bearer KEY' or 'X-API-Key: KEY'"
        return Problem(401, detail, {"www-authenticate": "Bearer"})

    def _allows_host(self, host: str) -> bool:
        name, colon, port = host.rpartition(":")
        name = (name if colon and port.isdigit() else host).casefold()
        return is_loopback(name) or name in self._hosts


def _sent_key(headers: dict[bytes, bytes]) -> bytes:
    scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
    return key.strip() if scheme.lower() == b"bearer" else headers.get(b"x-api-key", b"")


class Limits:
    """Refuses bodies that are too large, requests that take too long, and too many requests."""

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
        has_body = length != b"0" or any(name == b"transfer-encoding" for name, _ in scope["headers"])
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
            if has_body and not is_read:
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
