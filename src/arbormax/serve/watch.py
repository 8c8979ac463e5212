"""The outermost layer: counts and logs every request, and turns what nobody expected into a plain 500."""

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
GONE = 499  # the caller left before its answer


class Watch:
    """ASGI middleware. The log names routes, not addresses, which may hold what someone typed."""

    def __init__(self, app: ASGIApp, metrics: Metrics, log_texts: bool) -> None:
        self.app, self.metrics, self.log_texts = app, metrics, log_texts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin, status = time.perf_counter(), 0
        is_head = scope["method"] == "HEAD"
        if is_head:
            scope = {**scope, "method": "GET"}

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif is_head:
                message = {**message, "body": b""}
            await send(message)

        try:
            await self.app(scope, receive, watched)
        except ClientDisconnect:
            status = status or GONE
        except Exception as error:
            log.error("unexpected: %s", told(error, self.log_texts))
            if status:
                raise RuntimeError("an answer broke off") from None
            await Problem(500, "something went wrong here; the log of the service tells what").response()(
                scope, receive, watched
            )
        finally:
            seconds = time.perf_counter() - begin
            route = route_of(scope)
            self.metrics.request(route, status or GONE, seconds)
            if log.isEnabledFor(logging.INFO):
                log.info("%s %s %d %.1f ms", method_of(scope, is_head), route, status or GONE, 1e3 * seconds)


def route_of(scope: Scope) -> str:
    """The pattern of the address, which is one of a few."""
    path: Any = getattr(scope.get("route"), "path", None)
    if path is not None:
        return str(path)
    asked = scope["path"]
    if asked.startswith("/static/"):
        return "/static"
    # one that was refused before it was looked up
    return asked if any(asked == getattr(route, "path", None) for route in scope["app"].routes) else "(none)"


def method_of(scope: Scope, is_head: bool) -> str:
    method = "HEAD" if is_head else str(scope["method"])
    return method if method.isalpha() and len(method) <= 7 else "(odd)"


def told(error: BaseException, log_texts: bool) -> str:
    """What an error was and where; its message only if texts may be logged, since it may quote one."""
    if log_texts:
        return "".join(traceback.format_exception(error)).rstrip()
    places = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
    return f"{type(error).__name__} at {' < '.join(reversed(places[-4:]))}"
