"""The socket of a service, and what to call it."""

from __future__ import annotations

import socket

from arbormax.errors import OptionError


def listening(host: str, port: int) -> socket.socket:
    """A socket bound to this address, or an error that names it."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)  # asyncio sends without delay where it sees that this is TCP
    except OSError as error:
        raise OptionError(f"cannot listen on {host}: {_reason(error)}; give an address of this machine") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        how = "give another one, or 0 for any that is free"
        raise OptionError(f"cannot listen on {host} port {port}: {_reason(error)}; {how}") from error
    return listener


def address_of(listener: socket.socket) -> str:
    """Where a browser finds it."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - told, not bound
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
