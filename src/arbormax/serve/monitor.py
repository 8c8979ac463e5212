"""The outermost middleware: counts and logs every request, and turns unexpected errors into a 500 response."""

from __future__ import annotations

import logging
import time
import traceback
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from arbormax.serve.metrics import Metrics
from arbormax.serve.problems import Problem

log = logging.getLogger("arbormax.serve")
_CLIENT_CLOSED = 499  # the client disconnected before the response


class Monitor:
    """ASGI middleware. The log contains routes instead of URLs, which may contain user input."""

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
