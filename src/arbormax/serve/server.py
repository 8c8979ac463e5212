"""The application on Uvicorn, until someone stops it."""

from __future__ import annotations

import gc
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from torch import nn
from torch.backends import mkldnn

from arbormax.serve.front import Desk, Front
from arbormax.serve.listen import address_of, listening
from arbormax.serve.settings import Settings


def run(
    app: ASGIApp,
    settings: Settings,
    started: Callable[[str], None] = lambda _: None,
    listener: socket.socket | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, then finish what was accepted; `started` is told the address."""
    with listener or listening(settings.host, settings.port) as listener:
        server = server_of(app, settings, lambda: started(address_of(listener)))

        def stop(*_: object) -> None:
            """For a signal before Uvicorn listens to them, and for that which it sends itself when all is done."""
            server.should_exit = True

        former = signal.signal(signal.SIGTERM, stop)
        try:
            with _for_long(app), suppress(KeyboardInterrupt):
                server.run(sockets=[listener])
        finally:
            signal.signal(signal.SIGTERM, former)


@contextmanager
def _for_long(app: ASGIApp) -> Iterator[None]:
    """Settings of a process that answers all day."""
    gc.collect()
    gc.freeze()  # what is loaded stays: walking through all of it again and again would stall the answers
    # On a CPU oneDNN makes a kernel for each shape of a batch and keeps a thousand of them: memory would grow for long.
    # Recurrent networks, which gain much by it, see few shapes; transformers use it for one function only.
    service = getattr(getattr(app, "state", None), "service", None)
    has_onednn, gains = mkldnn.enabled, (nn.RNNBase, nn.modules.conv._ConvNd)  # noqa: SLF001
    if service is not None and not any(isinstance(module, gains) for module in service.model.modules()):
        mkldnn.enabled = False  # type: ignore[assignment]
    try:
        yield
    finally:
        mkldnn.enabled = has_onednn
        gc.unfreeze()


def server_of(app: ASGIApp, settings: Settings, started: Callable[[], None] = lambda: None) -> uvicorn.Server:
    """Uvicorn with this application, still to be run; `started` is called when it answers."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,  # it would log addresses with what was searched for
        server_header=False,
        date_header=False,
        proxy_headers=False,  # nothing here depends on who calls
        timeout_graceful_shutdown=settings.grace,
        lifespan="on",
        ws="none",
        http=_protocol_of(app),
    )
    return _Server(config, started)


def _protocol_of(app: ASGIApp) -> Any:
    """What Uvicorn makes for a connection."""
    state = getattr(app, "state", None)
    service, layers = getattr(state, "service", None), getattr(state, "layers", None)
    if service is None or service.settings.log_texts or getattr(app, "user_middleware", None) != layers:
        return "auto"
    return partial(Front, desk=Desk(service))


class _Server(uvicorn.Server):
    """A server that says when it answers."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._started()
