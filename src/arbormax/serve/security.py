"""Access control and the security headers of every response."""

from __future__ import annotations

import hmac

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from arbormax.serve.problems import Problem
from arbormax.serve.settings import Settings, is_loopback

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {"content-security-policy": POLICY, "x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}
PUBLIC_PATHS = frozenset(["/", "/healthz", "/readyz"])  # available without an API key


class Security:
    """ASGI middleware that checks the Host header and the API key, and sets security headers.

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
