"""`arbormax serve`: a model behind HTTP, with a web page."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arbormax.cli import output
from arbormax.cli.options import Device, Imports, import_modules, resolve_device
from arbormax.errors import OptionError, did_you_mean

if TYPE_CHECKING:
    from fastapi import FastAPI
    from pydantic import ValidationError

    from arbormax.serve import Settings

_MAX_DEFAULT_WORKERS = 4  # each worker needs memory for its own model
_GPU_DEVICE_FILES = ("nvidiactl", "kfd", "dxg")  # of the drivers of NVIDIA and AMD, and of both under WSL
LOG_LEVELS = ("debug", "info", "warning", "error")
LIMITS, BATCHES = "Limits of a request", "Batches and processes"


def serve(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model folder.")],
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all addresses.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port; 0 selects a free port.")] = 8000,
    api_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", envvar="ARBORMAX_API_KEY", show_envvar=True, help="Key that clients must send."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Additional host name to accept, for example of a proxy; repeatable."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the model on the web page. [default: folder name]")] = None,
    example: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="Example text on the web page; repeatable.")
    ] = None,
    no_page: Annotated[bool, typer.Option("--no-page", help="Serve only the API.")] = False,
    max_texts: Annotated[int, typer.Option(min=1, help="Maximum number of texts.", rich_help_panel=LIMITS)] = 1024,
    max_characters: Annotated[
        int, typer.Option(min=1, help="Maximum length of a text.", rich_help_panel=LIMITS)
    ] = 20_000,
    max_body_bytes: Annotated[
        int, typer.Option(min=1024, help="Maximum size of the body.", rich_help_panel=LIMITS)
    ] = 4_194_304,
    max_requests: Annotated[
        int, typer.Option(min=1, help="Maximum number of requests at the same time.", rich_help_panel=LIMITS)
    ] = 1024,
    request_seconds: Annotated[float, typer.Option(min=0.001, help="Time limit.", rich_help_panel=LIMITS)] = 30.0,
    batch_size: Annotated[
        int, typer.Option(min=1, help="Maximum number of texts in a batch.", rich_help_panel=BATCHES)
    ] = 64,
    batch_wait: Annotated[
        float,
        typer.Option(min=0, max=1000, help="Milliseconds that a batch may wait to fill.", rich_help_panel=BATCHES),
    ] = 1.0,
    queue: Annotated[int, typer.Option(min=1, help="Maximum number of waiting texts.", rich_help_panel=BATCHES)] = 4096,
    device: Device = "auto",
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, help="CPU threads of each process. [default: cores divided by workers]", rich_help_panel=BATCHES
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=256,
            help="Number of processes, each with its own model. [default: one per core, at most 4; 1 on a GPU]",
            rich_help_panel=BATCHES,
        ),
    ] = None,
    imports: Imports = None,
    log_level: Annotated[str, typer.Option(help="debug, info (logs every request), warning or error.")] = "warning",
    log_texts: Annotated[bool, typer.Option("--log-texts", help="Log texts as well.")] = False,
) -> None:
    """Serve a model: predictions and explanations as JSON, and a web page at the same address.

    Example: `arbormax serve reviews-model --port 8080`, then open http://127.0.0.1:8080/

    More processes: `arbormax serve reviews-model --workers 8`; less memory: `--workers 1`
    """
    if log_level not in LOG_LEVELS:
        hint = did_you_mean(log_level, LOG_LEVELS)
        raise OptionError(f"expected one of {', '.join(LOG_LEVELS)}; found {log_level!r}{hint}", argument="log_level")
    from pydantic import SecretStr, ValidationError

    from arbormax.serve import Settings, run

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
        raise _settings_error(error) from None
    cores = _available_cores()
    if workers is None:
        workers = max(1, min(_MAX_DEFAULT_WORKERS, cores // (threads or 1))) if _uses_cpu(device) else 1
    if threads is None and workers > 1:
        threads = max(1, cores // workers)
    run(
        partial(_load_app, model, name, device, imports, threads, settings),
        settings,
        partial(_print_start, model, workers, settings),
        factory=True,
        workers=workers,
        log_config=_log_config(log_level),
    )
    output.print_status("stopped")


def _available_cores() -> int:
    """Number of cores that this process may use; `OMP_NUM_THREADS` limits it."""
    requested = os.environ.get("OMP_NUM_THREADS", "")
    if requested.isdecimal() and int(requested) > 0:
        return int(requested)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _uses_cpu(device: str) -> bool:
    """Whether the model runs on the CPU; avoids the import of torch where the answer is clear without it."""
    if device == "auto" and sys.platform == "linux" and not any(Path("/dev", f).exists() for f in _GPU_DEVICE_FILES):
        return True
    return device == "cpu" or (device == "auto" and resolve_device(device) == "cpu")


def _load_app(
    model: Path,
    name: str | None,
    device: str,
    imports: list[str] | None,
    threads: int | None,
    settings: Settings,
) -> FastAPI:
    """Load the model and create the application, in the process that serves it."""
    import torch

    from arbormax.model import load_model
    from arbormax.serve import create_app

    import_modules(imports)
    if threads is not None:
        torch.set_num_threads(threads)
    return create_app(load_model(model, resolve_device(device)), settings, name or model.resolve().name)


def _print_start(model: Path, workers: int, settings: Settings, url: str) -> None:
    processes = f" with {workers} processes" if workers > 1 else ""
    output.print_status(f"serving {model}{processes} at {url} (Ctrl-C stops it)")
    if not settings.is_local and settings.api_key is None:
        warning = "anyone who can reach this machine can use the service; set --api-key"
        output.print_status(f"arbormax: warning: {warning}", "yellow")


def _settings_error(error: ValidationError) -> OptionError:
    """The errors of the settings, without their values: one of them is a secret."""
    errors = error.errors(include_input=False, include_url=False)
    message = "; ".join(str(one["msg"]).removeprefix("Value error, ") for one in errors)
    places = {str(one["loc"][0]) for one in errors if one["loc"]}
    return OptionError(message, argument=places.pop() if len(places) == 1 else None)


def _log_config(level: str) -> dict[str, Any]:
    """Log lines with their time on stderr: requests and errors of the service, warnings of Uvicorn."""
    logger = {"handlers": ["stderr"], "propagate": False}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(message)s"}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "loggers": {
            "arbormax.serve": {**logger, "level": level.upper()},
            "uvicorn": {**logger, "level": "ERROR" if level == "error" else "WARNING"},
        },
    }
