"""Who may call, and what a browser may do with the answers."""

from __future__ import annotations

import hashlib
import hmac

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from arbormax.serve.problems import Problem
from arbormax.serve.settings import Settings, is_loopback

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
OPEN = frozenset(["/", "/healthz", "/readyz"])
NO_STORE = (b"cache-control", b"no-store")


class Security:
    """ASGI middleware: asks the guard about every request, and sets the headers of every answer."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app, self._guard = app, Guard(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                if all(name.lower() != b"cache-control" for name, _ in headers):
                    headers.append(NO_STORE)
                message["headers"] = headers + HEADERS
            await send(message)

        refusal = self._guard.refusal(scope["path"], dict(scope["headers"]))
        await (self.app if refusal is None else refusal.response())(scope, receive, secured)


class Guard:
    """Checks the Host header and the API key.

    A service on localhost answers to local names alone: otherwise a page of another site, whose name its owner points
    at 127.0.0.1, could read the answers.
    """

    def __init__(self, settings: Settings) -> None:
        self._checks_host = settings.is_local or bool(settings.allowed_hosts)
        self._hosts = {host.casefold() for host in (settings.host, *settings.allowed_hosts)}
        key = settings.api_key
        self._key = None if key is None else _digest(key.get_secret_value().encode())

    def refusal(self, path: str, headers: dict[bytes, bytes]) -> Problem | None:
        """Why a request with these headers is not answered, if it is not."""
        if self._checks_host and not self._knows(headers.get(b"host", b"").decode("latin-1")):
            return Problem(421, "this service does not go by that name; --allow-host makes it known")
        if self._key is None or path in OPEN or path.startswith("/static/"):
            return None
        if hmac.compare_digest(self._key, _digest(_shown(headers))):
            return None
        how = "send the API key as 'Authorization: Bearer KEY' or 'X-API-Key: KEY'"
        return Problem(401, how, {"www-authenticate": "Bearer"})

    def _knows(self, host: str) -> bool:
        name, colon, port = host.rpartition(":")
        name = (name if colon and port.isdigit() else host).casefold()
        return is_loopback(name) or name in self._hosts


def _shown(headers: dict[bytes, bytes]) -> bytes:
    """The key that a caller shows."""
    kind, _, key = headers.get(b"authorization", b"").partition(b" ")
    return key.strip() if kind.lower() == b"bearer" else headers.get(b"x-api-key", b"")


def _digest(key: bytes) -> bytes:
    # of equal length whatever was shown, so that the comparison does not tell the key's
    return hashlib.sha256(key).digest()
