"""Run the application with Uvicorn, in one process or in several worker processes.

This module imports torch only where the application runs: the parent of several workers does without it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.queues import SimpleQueue
from multiprocessing.sharedctypes import Synchronized
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from arbormax.errors import ArbormaxError, OptionError
from arbormax.serve.metrics import SHARED_FOLDER
from arbormax.serve.protocol import LimitedProtocol
from arbormax.serve.settings import Settings

_BACKLOG = 2048  # connections that wait until they are accepted
_WORKER_SECONDS = 15  # Uvicorn replaces a worker that does not react for this long


def _ignore(_: str) -> None:
    """The default of `started`; workers cannot receive a lambda."""


def run(
    app: Callable[..., Any],
    settings: Settings,
    started: Callable[[str], None] = _ignore,
    *,
    factory: bool = False,
    workers: int = 1,
    log_config: dict[str, Any] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, then answer the accepted requests and return.

    Args:
        app: the application, or with `factory=True` a function that creates it.
        settings: the settings of the application.
        started: called once with the URL, when all workers have created their application; the last one calls it.
        factory: whether `app` is a function without arguments; with several workers it must be one.
        workers: number of processes; each creates its own application, so `app` and `started` must be picklable.
        log_config: logging configuration of Uvicorn and of this package, as `logging.config.dictConfig` takes it.
    """
    if workers > 1 and not factory:
        raise OptionError("several workers need a function that creates the application", fix={"factory": True})
    with bind_socket(settings.host, settings.port) as listener:
        on_start = partial(started, url(listener))
        if workers == 1:
            config = create_config(app() if factory else app, settings, log_config=log_config)
            _run_here(config, listener, on_start)
            return
        context = multiprocessing.get_context("spawn")
        errors: SimpleQueue[str] = context.SimpleQueue()
        create = partial(_create_worker_app, app, on_start, context.Value("i", workers), errors)
        config = create_config(create, settings, factory=True, workers=workers, log_config=log_config)
        _run_workers(config, listener)
    if not errors.empty():
        raise ArbormaxError(errors.get())


def bind_socket(host: str, port: int) -> socket.socket:
    """A listening socket: clients that connect from now on wait until the service is ready."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while")[0].lower()
        raise OptionError(f"cannot listen on {host} port {port}: {reason}; choose another address or port") from error


def url(listener: socket.socket) -> str:
    """The URL of the service for a browser on this machine."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def create_config(app: Callable[..., Any], settings: Settings, **options: Any) -> uvicorn.Config:
    """The configuration of Uvicorn for this application."""
    return uvicorn.Config(
        app,
        **{"log_config": None, **options},
        http=partial(  # type: ignore[arg-type]  # a class with its arguments
            LimitedProtocol, max_head_bytes=settings.max_head_bytes, head_seconds=settings.head_seconds
        ),
        access_log=False,  # Uvicorn would log URLs, which contain the words of a search
        server_header=False,
        proxy_headers=False,  # the service does not use the client's address
        timeout_graceful_shutdown=settings.shutdown_seconds,
        timeout_worker_healthcheck=_WORKER_SECONDS,
        lifespan="on",
        ws="none",
    )


def _run_here(config: uvicorn.Config, listener: socket.socket, started: Callable[[], None]) -> None:
    # Uvicorn repeats the signal that stopped it, with the former handler: SIGTERM must not kill the process then.
    handler = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with suppress(KeyboardInterrupt):
            started()
            uvicorn.Server(config).run(sockets=[listener])
    finally:
        signal.signal(signal.SIGTERM, handler)


def _run_workers(config: uvicorn.Config, listener: socket.socket) -> None:
    with tempfile.TemporaryDirectory(prefix="arbormax-") as folder:
        os.environ[SHARED_FOLDER] = folder  # prometheus_client adds up the metrics of all workers there
        try:
            _Workers(config, [listener]).run()
        finally:
            del os.environ[SHARED_FOLDER]


class _Workers(Multiprocess):
    """Uvicorn's workers. Without this method, new clients could connect while the workers answer the last requests."""

    def terminate_all(self) -> None:
        for listener in self.sockets:
            listener.close()
        super().terminate_all()


def _create_worker_app(
    factory: Callable[[], ASGIApp], started: Callable[[], None], loading: Synchronized[int], errors: SimpleQueue[str]
) -> ASGIApp:
    """Create the application of a worker; an error stops the whole service."""
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    try:
        app = factory()
    except ArbormaxError as error:
        errors.put(str(error))
        os._exit(STARTUP_FAILURE)  # a process that unloads torch is alive without answering, and its parent would wait
    with loading.get_lock():
        loading.value -= 1
        if loading.value == 0:  # negative for the replacement of a worker
            started()
    return app


def _stop_with_parent() -> None:
    """Stop this worker if its parent is killed: it would otherwise keep the port."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
