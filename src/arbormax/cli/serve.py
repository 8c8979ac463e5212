"""`arbormax serve`: a model behind HTTP, with a page for people."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arbormax.cli import output
from arbormax.cli.options import Device, Imports, import_modules, resolve_device
from arbormax.errors import OptionError, did_you_mean

if TYPE_CHECKING:
    from pydantic import ValidationError

    from arbormax.serve import Settings

_BACKLOG = 2048  # connections that may wait, as with one process
_MOST = 4  # processes that nobody asked for: each takes memory
_GPUS = ("nvidiactl", "kfd", "dxg")  # files of a driver: NVIDIA's, AMD's, and either below Windows
_CAN_SUPERVISE = hasattr(signal, "pthread_sigmask")
LEVELS = ("debug", "info", "warning", "error")
LIMITS, BATCHES = "What a request may ask for", "How requests are answered together"


def serve(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a model.")],
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0: every one of this machine.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0: any that is free.")] = 8000,
    api_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", envvar="ARBORMAX_API_KEY", show_envvar=True, help="What callers must show."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A name by which a proxy or a browser may call it; several times."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="What the page calls the model; by default its folder.")] = None,
    example: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="A text that the page offers to try; several times.")
    ] = None,
    no_page: Annotated[bool, typer.Option("--no-page", help="Serve the API alone.")] = False,
    max_texts: Annotated[int, typer.Option(min=1, help="Texts of one request.", rich_help_panel=LIMITS)] = 1024,
    max_characters: Annotated[int, typer.Option(min=1, help="Of one text.", rich_help_panel=LIMITS)] = 20_000,
    max_body_bytes: Annotated[int, typer.Option(min=1024, help="Of one request.", rich_help_panel=LIMITS)] = 4_194_304,
    max_requests: Annotated[
        int, typer.Option(min=1, help="Read or answered at the same time.", rich_help_panel=LIMITS)
    ] = 1024,
    request_seconds: Annotated[
        float, typer.Option(min=0.001, help="Until a request is given up.", rich_help_panel=LIMITS)
    ] = 30.0,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts at a time.", rich_help_panel=BATCHES)] = 64,
    batch_wait: Annotated[
        float,
        typer.Option(min=0, max=1000, help="Milliseconds that a batch may wait to fill.", rich_help_panel=BATCHES),
    ] = 1.0,
    queue: Annotated[int, typer.Option(min=1, help="Texts that may wait.", rich_help_panel=BATCHES)] = 4096,
    device: Device = "auto",
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Of torch in each process, on a CPU; by default the processes share the cores."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=256,
            help="Processes, each with its own model; by default one a core, 4 at most, 1 on a GPU.",
        ),
    ] = None,
    imports: Imports = None,
    log_level: Annotated[str, typer.Option(help="debug, info (every request), warning or error.")] = "info",
    log_texts: Annotated[bool, typer.Option("--log-texts", help="Log the texts too.")] = False,
) -> None:
    """Serve a model: predictions and explanations as JSON, and a page to try it at the same address.

    Example: `arbormax serve reviews-model --port 8080`, then open http://127.0.0.1:8080/

    Many callers, a machine with many cores: `arbormax serve reviews-model --workers 8`; little memory: `--workers 1`
    """
    if log_level not in LEVELS:
        near = did_you_mean(log_level, LEVELS)
        raise OptionError(f"--log-level is one of {', '.join(LEVELS)}; found {log_level!r}{near}")
    from pydantic import SecretStr, ValidationError

    from arbormax.serve import Settings
    from arbormax.serve.listen import listening
    from arbormax.serve.workers import supervise

    try:
        settings = Settings(
            host=host,
            port=port,
            api_key=SecretStr(api_key) if api_key else None,
            allowed_hosts=tuple(allow_host or ()),
            page=not no_page,
            examples=tuple(example or ()),
            max_body_bytes=max_body_bytes,
            max_texts=max_texts,
            max_characters=max_characters,
            max_requests=max_requests,
            request_seconds=request_seconds,
            queue=queue,
            batch_size=batch_size,
            batch_wait_ms=batch_wait,
            log_texts=log_texts,
        )
    except ValidationError as error:
        raise OptionError(_told(error)) from None
    if workers is None:
        workers, threads = _shared_out(threads, device)
    elif workers > 1 and not _CAN_SUPERVISE:
        raise OptionError("--workers needs signals as Unix has them: start a service for each port instead")
    answer = partial(_answer, model, name, device, imports, threads, workers, settings, log_level)
    with listening(host, port) as listener:  # before the model is loaded, which may take long
        if workers == 1:
            answer(listener, lambda address: _tell(model, address, settings))
        else:
            _log_at(log_level)
            listener.listen(_BACKLOG)  # whoever calls waits until a process is ready
            told = f"{model} with {workers} processes"
            started = partial(_tell, told, settings=settings)
            if not supervise(answer, workers, listener, settings.grace, started):
                output.print_status("stopped, and not every request that was accepted is answered")
                raise typer.Exit(1)
    output.print_status("stopped; every request that was accepted is answered")


def _shared_out(threads: int | None, device: str) -> tuple[int, int | None]:
    """How many processes there are when nobody says, and the threads of each; None: as many as torch has for it."""
    if not _CAN_SUPERVISE or not _is_cpu(device):
        return 1, threads
    asked = os.environ.get("OMP_NUM_THREADS", "")
    has_asked = asked.isdecimal() and int(asked) > 0
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    cores = int(asked) if has_asked else here
    workers = max(1, min(_MOST, cores // (threads or 1)))
    return workers, threads or (cores // workers if has_asked else None)


def _is_cpu(device: str) -> bool:
    """Whether it will compute on one; without a look at torch, which takes seconds and memory, where that is clear."""
    if device == "auto" and sys.platform == "linux" and not any(Path("/dev", name).exists() for name in _GPUS):
        return True
    return device == "cpu" or (device == "auto" and resolve_device(device) == "cpu")


def _answer(
    model: Path,
    name: str | None,
    device: str,
    imports: list[str] | None,
    threads: int | None,
    workers: int,
    settings: Settings,
    log_level: str,
    listener: socket.socket,
    started: Callable[[str], None],
) -> None:
    """Load the model and serve it, here or in a process of several."""
    import torch

    from arbormax.model import load_model
    from arbormax.serve import create_app, run

    import_modules(imports)
    if threads is not None or (workers > 1 and "OMP_NUM_THREADS" not in os.environ):
        torch.set_num_threads(threads or max(1, torch.get_num_threads() // workers))
    app = create_app(load_model(model, resolve_device(device)), settings, name or model.resolve().name)
    _log_at(log_level)
    run(app, settings, started, listener)


def _tell(what: Path | str, address: str, settings: Settings) -> None:
    output.print_status(f"serving {what} at {address} (Ctrl-C stops it)")
    if not settings.is_local and settings.api_key is None:
        output.print_status(
            "arbormax: warning: anyone who reaches this machine can use it: --api-key keeps others out", "yellow"
        )


def _told(error: ValidationError) -> str:
    """What is wrong with the settings, without the values: one of them is a secret."""
    parts = []
    for one in error.errors(include_input=False, include_url=False):
        option = "".join(f"--{str(step).replace('_', '-')}: " for step in one["loc"][:1])
        parts.append(option + str(one["msg"]).removeprefix("Value error, "))
    return "; ".join(parts)


def _log_at(level: str) -> None:
    """Requests and trouble go to stderr as lines with their time; the service's own log, and Uvicorn's complaints."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    own, theirs = logging.getLogger("arbormax.serve"), logging.getLogger("uvicorn")
    own.setLevel(level.upper())
    theirs.setLevel(max(logging.WARNING, own.level))
    for log in (own, theirs):
        log.handlers, log.propagate = [handler], False
