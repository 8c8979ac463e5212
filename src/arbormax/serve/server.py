"""Run the application with Uvicorn, in one process or in several worker processes.

This module imports torch only where the application runs: the parent of several workers does without it.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.queues import SimpleQueue
from typing import Any

import uvicorn
from prometheus_client.multiprocess import mark_process_dead
from starlette.types import ASGIApp
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from arbormax.errors import ArbormaxError, OptionError
from arbormax.serve.metrics import SHARED_FOLDER
from arbormax.serve.settings import Settings

_MAX_HEAD_BYTES = 64 * 1024
_KEEP_ALIVE_SECONDS = 5
_WORKER_SECONDS = 15  # a worker that does not react for this long is replaced
log = logging.getLogger("arbormax.serve")


def run(
    app: Callable[..., Any],
    settings: Settings,
    started: Callable[[str], None] = lambda _: None,
    *,
    factory: bool = False,
    workers: int = 1,
    log_config: dict[str, Any] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, then answer the accepted requests and return.

    Args:
        app: the application, or with `factory=True` a function that creates it.
        settings: the settings of the application.
        started: called with the URL as soon as the service answers.
        factory: whether `app` is a function without arguments; with several workers it must be one, and picklable.
        workers: number of processes; each creates its own application.
        log_config: logging configuration of Uvicorn and of this package, as `logging.config.dictConfig` takes it.
    """
    if workers > 1 and not factory:
        raise OptionError("several workers need a function that creates the application", fix={"factory": True})
    with bind_socket(settings.host, settings.port) as listener:
        on_start = partial(started, url(listener))
        if workers == 1:
            _run_here(app() if factory else app, settings, on_start, listener, log_config)
        else:
            _run_workers(app, settings, on_start, listener, workers, log_config)


def bind_socket(host: str, port: int) -> socket.socket:
    """A socket bound to this address, or an error with the address."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise OptionError(f"cannot listen on {host}: {_reason(error)}; choose an address of this machine") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        detail = f"{_reason(error)}; choose another address or port"
        raise OptionError(f"cannot listen on {host} port {port}: {detail}") from error
    return listener


def url(listener: socket.socket) -> str:
    """The URL of the service for a browser on this machine."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def create_config(app: Callable[..., Any], settings: Settings, **options: Any) -> uvicorn.Config:
    """The configuration of Uvicorn for this application."""
    return uvicorn.Config(
        app,
        **{"log_config": None, **options},
        access_log=False,  # Uvicorn would log URLs, which contain the words of a search
        server_header=False,
        date_header=False,
        proxy_headers=False,  # the service does not use the client's address
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=settings.shutdown_seconds,
        timeout_worker_healthcheck=_WORKER_SECONDS,
        h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
        lifespan="on",
        ws="none",
    )


class Server(uvicorn.Server):
    """A server that calls `started` as soon as it answers."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None] = lambda: None) -> None:
        super().__init__(config)
        self._on_start = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_start()


def _run_here(
    app: ASGIApp,
    settings: Settings,
    started: Callable[[], None],
    listener: socket.socket,
    log_config: dict[str, Any] | None,
) -> None:
    from torch.backends import mkldnn

    server = Server(create_config(app, settings, log_config=log_config), started)

    def stop(*_: object) -> None:
        """Handle SIGTERM before Uvicorn does, and the SIGTERM that Uvicorn sends to its own process at the end."""
        server.should_exit = True

    handler, uses_onednn = signal.signal(signal.SIGTERM, stop), mkldnn.enabled
    try:
        _prepare_process(app)
        with suppress(KeyboardInterrupt):
            server.run(sockets=[listener])
    finally:
        signal.signal(signal.SIGTERM, handler)
        mkldnn.enabled = uses_onednn
        gc.unfreeze()


def _prepare_process(app: ASGIApp) -> None:
    """Adapt garbage collection and oneDNN to a process that serves one model for a long time."""
    from torch import nn
    from torch.backends import mkldnn

    gc.collect()
    gc.freeze()  # later collections skip the loaded libraries and the model, and interrupt requests for less time
    # On a CPU oneDNN keeps one kernel for each shape of a batch, up to a thousand, so memory would grow for a long
    # time. Recurrent and convolutional networks need oneDNN for speed and see few shapes.
    gains = (nn.RNNBase, nn.Conv1d, nn.Conv2d, nn.Conv3d)
    service = getattr(getattr(app, "state", None), "service", None)
    if service is not None and not any(isinstance(module, gains) for module in service.model.modules()):
        mkldnn.enabled = False  # type: ignore[assignment]


def _run_workers(
    factory: Callable[[], ASGIApp],
    settings: Settings,
    started: Callable[[], None],
    listener: socket.socket,
    workers: int,
    log_config: dict[str, Any] | None,
) -> None:
    errors: SimpleQueue[str] = multiprocessing.get_context("spawn").SimpleQueue()
    create = partial(_create_worker_app, factory, errors)
    config = create_config(create, settings, factory=True, workers=workers, log_config=log_config)
    with _shared_metrics():
        Supervisor(config, listener, started).run()
    if not errors.empty():
        raise ArbormaxError(errors.get())


class Supervisor(Multiprocess):
    """Uvicorn's process manager; it also reports the start, and closes the listening socket before the workers stop."""

    def __init__(self, config: uvicorn.Config, listener: socket.socket, started: Callable[[], None]) -> None:
        super().__init__(config, [listener])
        self._on_start, self._is_started = started, False

    def keep_subprocess_alive(self) -> None:
        """Replace workers that died, and report the start when all workers answer."""
        before = {process.pid for process in self.processes}
        super().keep_subprocess_alive()
        for pid in before - {process.pid for process in self.processes}:
            log.warning("worker %s died and was replaced", pid)
            mark_process_dead(pid)  # type: ignore[no-untyped-call]
        if not self._is_started and not self.should_exit.is_set():
            self._is_started = all(process.is_ready() for process in self.processes)
            if self._is_started:
                self._on_start()

    def terminate_all(self) -> None:
        """Stop all workers, after closing the listening socket."""
        for listener in self.sockets:
            listener.close()
        super().terminate_all()


def _create_worker_app(factory: Callable[[], ASGIApp], errors: SimpleQueue[str]) -> ASGIApp:
    """Create the application of a worker; an error stops the whole service."""
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    try:
        app = factory()
    except ArbormaxError as error:
        errors.put(str(error))
        os._exit(STARTUP_FAILURE)  # a process that unloads torch is alive without answering, and its parent would wait
    _prepare_process(app)
    return app


def _stop_with_parent() -> None:
    """Stop this worker if its parent is killed: it would otherwise keep the port."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def _shared_metrics() -> Iterator[None]:
    """A folder in which prometheus_client adds up the metrics of all workers."""
    with tempfile.TemporaryDirectory(prefix="arbormax-") as folder:
        os.environ[SHARED_FOLDER] = folder
        try:
            yield
        finally:
            del os.environ[SHARED_FOLDER]
