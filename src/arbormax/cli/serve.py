"""`arbormax serve`: a model behind HTTP, with a web page."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arbormax.cli import output
from arbormax.cli.groups import OptionGroup, expand_options
from arbormax.cli.options import Device, Imports, import_modules, resolve_device
from arbormax.errors import check_choice

if TYPE_CHECKING:
    from fastapi import FastAPI

    from arbormax.serve import Settings

_MAX_DEFAULT_WORKERS = 4  # each worker needs memory for its own model
_GPU_DEVICE_FILES = ("nvidiactl", "kfd", "dxg")  # of the drivers of NVIDIA and AMD, and of both under WSL
LOG_LEVELS = ("debug", "info", "warning", "error")
_limit = partial(typer.Option, rich_help_panel="Limits of a request")
_process = partial(typer.Option, rich_help_panel="Batches and processes")


@dataclass(frozen=True)
class ServiceOptions(OptionGroup):
    """The settings of the service, by their names in `arbormax.serve.Settings`."""

    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all addresses.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port; 0 selects a free port.")] = 8000
    api_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", envvar="ARBORMAX_API_KEY", show_envvar=True, help="Key that clients must send."),
    ] = None
    allowed_hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host",
            metavar="NAME",
            help="Additional host name to accept, for example of a proxy; repeatable.",
        ),
    ] = None
    examples: Annotated[
        list[str] | None,
        typer.Option(
            "--example",
            metavar="TEXT",
            help="Example text on the web page; repeatable. [default: texts or names of three classes]",
        ),
    ] = None
    no_page: Annotated[bool, typer.Option("--no-page", help="Serve only the API.")] = False
    max_texts: Annotated[int, _limit(min=1, help="Maximum number of texts.")] = 1024
    max_characters: Annotated[int, _limit(min=1, help="Maximum length of a text.")] = 20_000
    max_cost_classes: Annotated[
        int, _limit(min=1, help="Maximum number of classes of a model whose requests may contain costs.")
    ] = 500
    max_head_bytes: Annotated[int, _limit(min=1024, help="Maximum size of the head.")] = 65_536
    head_seconds: Annotated[float, _limit(min=0.001, help="Time limit of the head.")] = 10.0
    max_body_bytes: Annotated[int, _limit(min=1024, help="Maximum size of the body.")] = 4_194_304
    max_requests: Annotated[int, _limit(min=1, help="Maximum number of requests at the same time.")] = 1024
    request_seconds: Annotated[float, _limit(min=0.001, help="Time limit.")] = 30.0
    batch_size: Annotated[int, _process(min=1, help="Maximum number of texts in a batch.")] = 64
    batch_wait_ms: Annotated[
        float, _process("--batch-wait", min=0, max=1000, help="Milliseconds that a batch may wait to fill.")
    ] = 1.0
    queue: Annotated[int, _process(min=1, help="Maximum number of waiting texts.")] = 4096
    log_texts: Annotated[bool, typer.Option("--log-texts", help="Log texts as well.")] = False

    def settings(self) -> Settings:
        """The settings, validated."""
        from arbormax.model.settings import validate
        from arbormax.serve import Settings

        values = {name: value for name, value in vars(self).items() if value not in (None, "")}
        values["page"] = not values.pop("no_page")
        return validate(Settings, values, "the service")


@expand_options
def serve(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model folder.")],
    options: ServiceOptions,
    name: Annotated[str | None, typer.Option(help="Name of the model on the web page. [default: folder name]")] = None,
    device: Device = "auto",
    threads: Annotated[
        int | None, _process(min=1, help="CPU threads of each process. [default: cores divided by workers]")
    ] = None,
    workers: Annotated[
        int | None,
        _process(min=1, max=256, help="Number of processes. [default: one per core, at most 4; 1 on a GPU]"),
    ] = None,
    imports: Imports = None,
    log_level: Annotated[str, typer.Option(help="debug, info (logs every request), warning or error.")] = "warning",
) -> None:
    """Serve a model: predictions and explanations as JSON, and a web page at the same address.

    Example: `arbormax serve reviews-model --port 8080`, then open http://127.0.0.1:8080/

    More processes: `arbormax serve reviews-model --workers 8`; less memory: `--workers 1`
    """
    check_choice("log_level", log_level, LOG_LEVELS)
    if not (model / "config.json").is_file():
        from arbormax.model.folder import read_record  # imports torch, which the parent of the workers does not need

        read_record(model)
    from arbormax.serve import run

    settings = options.settings()
    cores = _available_cores()
    if workers is None:
        workers = max(1, min(_MAX_DEFAULT_WORKERS, cores // (threads or 1))) if _uses_cpu(device) else 1
    if threads is None and workers > 1:
        threads = max(1, cores // workers)
    run(
        partial(load_app, model, settings, name, device, threads, imports),
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


def load_app(
    folder: Path,
    settings: Settings,
    name: str | None = None,
    device: str = "cpu",
    threads: int | None = None,
    imports: list[str] | None = None,
) -> FastAPI:
    """Load the model and create the application, in the process that serves it."""
    import torch
    from torch import nn

    from arbormax.model import load_model
    from arbormax.serve import create_app

    import_modules(imports)
    if threads is not None:
        torch.set_num_threads(threads)
    model = load_model(folder, resolve_device(device))
    # On a CPU oneDNN keeps one kernel for each shape of a batch, up to a thousand, so memory would grow for a long
    # time. Recurrent and convolutional networks need oneDNN for speed and see few shapes.
    gains = (nn.RNNBase, nn.Conv1d, nn.Conv2d, nn.Conv3d)
    if not any(isinstance(module, gains) for module in model.modules()):
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    return create_app(model, settings, name or folder.resolve().name)


def _print_start(model: Path, workers: int, settings: Settings, url: str) -> None:
    processes = f" with {workers} processes" if workers > 1 else ""
    output.print_status(f"serving {model}{processes} at {url} (Ctrl-C stops it)")
    if not settings.is_local and settings.api_key is None:
        warning = "anyone who can reach this machine can use the service; set --api-key"
        output.print_status(f"arbormax: warning: {warning}", "yellow")


def _log_config(level: str) -> dict[str, Any]:
    """Log lines with their time on stderr."""
    logger = {"handlers": ["stderr"], "propagate": False, "level": level.upper()}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(message)s"}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "loggers": {"arbormax.serve": logger, "uvicorn": logger},
    }
