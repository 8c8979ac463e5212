"""Predictions for Parquet files with Ray Data: many workers, and the rows of a single process in the same order.

Ray Data distributes spans of rows over the workers and restarts workers that die. This process writes their rows.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from glob import glob, has_magic
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

from arbormax.data.columns import InputColumns
from arbormax.data.tables import iter_rows
from arbormax.data.tables.writing import import_arrow, open_writer
from arbormax.errors import InputError, OptionError, TableError, import_extra
from arbormax.model import Model, TrainConfig, load_model
from arbormax.model.folder import read_record
from arbormax.model.predict import Decoding
from arbormax.model.rows import ROWS, BadRows, Rows, predict_rows

SPAN = 4 * ROWS  # rows that a worker predicts at a time
ATTEMPTS = 4  # workers that may die on one span


def predict_parquet(
    model: Path | str,
    sources: Sequence[Path | str],
    out: Path | str,
    decoding: Decoding | None = None,
    *,
    text: str | InputColumns | None = None,
    keep: bool = False,
    batch_size: int = 256,
    device: str = "auto",
    workers: int | None = None,
    within_column: str | None = None,
    without_column: str | None = None,
    modules: Sequence[str] = (),
    on_bad_rows: Callable[[list[str]], None] = BadRows("input"),  # noqa: B008 - raises, so it has no state
    progress: Callable[[str, int, int], None] | None = None,
) -> int:
    """Predict the rows of Parquet files, write them to one Parquet file, and return their number.

    `sources` are files, folders and patterns such as `corpus/*.parquet`. The rows, their order and their columns are
    those of `arbormax predict`, and so are the columns that restrict each row; with several files a column `file`
    precedes `line`. Every worker imports `modules`, for example to register encoders. Rows that cannot be read raise an
    error, unless `on_bad_rows` handles their descriptions. `text` is the column of the texts, or several that make one
    text; by default those that the model was trained on.

    The function uses the Ray that this process is connected to, or the cluster of RAY_ADDRESS, or starts Ray and stops
    it at the end. All machines of a cluster must see the model and the files under the same paths.
    """
    if workers is not None and workers < 1:
        raise OptionError(f"expected a number of at least 1, found {workers}", argument="workers")
    if device not in ("auto", "cpu", "cuda"):
        raise OptionError(f"expected cpu, cuda or auto, found {device}; Ray assigns GPUs to workers", argument="device")
    for module in ("pandas", "ray.data"):  # pandas comes with ray[data]
        import_extra(module, "Prediction with Ray", "ray[data]", "ray")
    ray, report = import_module("ray"), progress or (lambda *_: None)
    columns = _columns(text, read_record(Path(model))["config"])
    files = list(dict.fromkeys(chain.from_iterable(_list_files(Path(source)) for source in sources)))
    counts = _count_rows(files, columns, keep)
    total = sum(counts)
    if not total:
        raise InputError(f"{', '.join(map(str, sources))}: found no texts")
    _check_out(Path(out), sources, files)
    spans = [
        {"file": file, "first": first, "stop": min(first + SPAN, count)}
        for file, count in zip(files, counts, strict=True)
        for first in range(0, count, SPAN)
    ]
    written = done = 0
    report("starting Ray", 0, total)
    with open_writer(Path(out), "parquet") as write, _session(ray, workers) as is_own:
        concurrency, resources, device = _resources(ray, device, workers, is_own)
        worker = {
            "model": str(Path(model).resolve()),
            "columns": columns,
            "decoding": decoding or Decoding(),
            "options": {
                "batch_size": batch_size,
                "keep": keep,
                "within_column": within_column,
                "without_column": without_column,
            },
            "device": device,
            "threads": int(os.environ.get("OMP_NUM_THREADS") or resources["num_cpus"]),
            "modules": tuple(modules),
            "folder": str(Path.cwd()),
            "has_files": not keep and (len(sources) > 1 or not Path(sources[0]).is_file()),
        }
        report("predicting", 0, total)
        for rows, problems in _predict_spans(ray, worker, spans, min(concurrency, len(spans)), resources):
            if problems:
                on_bad_rows(problems)
            for row in rows:
                write(row)
            written, done = written + len(rows), done + len(rows) + len(problems)
            report("predicting", done, total)
        if not written:
            raise InputError(f"{', '.join(map(str, sources))}: found no texts")
    return written


class Attempts:
    """Counts how often each span was started: Ray restarts workers that die without a limit."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, int]] = Counter()

    def start(self, file: str, first: int) -> int:
        self.counts[file, first] += 1
        return self.counts[file, first]


@dataclass
class Worker:
    """Predicts the rows of spans; the model is loaded once."""

    model: str
    columns: InputColumns
    decoding: Decoding
    options: dict[str, Any]  # of `predict_rows`
    device: str
    threads: int
    modules: tuple[str, ...]
    folder: str  # the working folder, which relative paths and the user's modules refer to
    has_files: bool  # whether rows name their file
    attempts: Any

    def __post_init__(self) -> None:
        import torch

        torch.set_num_threads(self.threads)
        if self.folder not in sys.path:
            sys.path.append(self.folder)
        for name in self.modules:
            import_module(name)
        self.loaded: Model = load_model(self.model, self.device)

    def __call__(self, batch: dict[str, Any]) -> Iterator[dict[str, list[bytes]]]:
        """For each ROWS rows of the span: the predicted rows, and descriptions of the rows that cannot be read."""
        file, first, stop = (batch[name].tolist()[0] for name in ("file", "first", "stop"))
        if import_module("ray").get(self.attempts.start.remote(file, first)) > ATTEMPTS:
            raise InputError(
                f"rows {first + 1:,} to {stop:,} of {file}: {ATTEMPTS} workers died; is there enough memory?"
            )
        records = any(self.options[name] for name in ("keep", "within_column", "without_column"))
        how: dict[str, Any] = {"format": "parquet", "records": records, "on_bad_rows": "skip"}
        place = Path(self.folder, file)
        for part in iter_rows(place, (), ROWS, texts=self.columns, span=(first, stop), **how):
            problems = [f"{file}: {problem}" if self.has_files else problem for problem in part.problems]
            rows_of = Rows(iter([part]), self.columns)
            found = predict_rows(self.loaded, rows_of, self.decoding, on_bad_rows=lambda _: None, **self.options)
            rows = [{"file": file, **row} if self.has_files else row for row in found]
            yield {"part": [pickle.dumps((rows, problems))]}


def _predict_spans(
    ray: Any, worker: dict[str, Any], spans: list[dict[str, Any]], workers: int, resources: dict[str, float]
) -> Iterator[tuple[list[dict[str, Any]], list[str]]]:
    """What the workers find, in the order of the spans."""
    data = import_module("ray.data")
    dataset = data.from_items(spans, override_num_blocks=len(spans)).map_batches(
        Worker,
        batch_size=1,
        compute=data.ActorPoolStrategy(size=workers),
        fn_constructor_kwargs={**worker, "attempts": ray.remote(num_cpus=0, max_restarts=-1)(Attempts).remote()},
        **resources,
    )
    dataset.context.execution_options.preserve_order = True
    dataset.context.enable_progress_bars = False
    dataset.context.print_on_execution_start = False
    try:
        for row in dataset.iter_rows():
            yield pickle.loads(row["part"])  # noqa: S301 - from our own workers
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error


def _list_files(source: Path) -> list[str]:
    """The Parquet files of a file, folder or pattern."""
    if source.is_dir():
        # other tools leave files with names that begin with . or _ beside the data
        inside = sorted(path for path in source.rglob("*.parquet") if path.is_file())
        files = [str(path) for path in inside if not any(p[0] in "._" for p in path.relative_to(source).parts)]
    elif has_magic(str(source)) and not source.exists():
        files = [file for path in sorted(glob(str(source), recursive=True)) for file in _list_files(Path(path))]
    else:
        files = [str(source)] if source.is_file() and source.suffix.lower() == ".parquet" else []
    if not files:
        raise InputError(f"{source}: found no Parquet file with the suffix .parquet; Ray reads no other format")
    return files


def _columns(text: str | InputColumns | None, config: dict[str, Any]) -> InputColumns:
    """The columns of the texts: those that were given, or those in the settings of the model."""
    if isinstance(text, InputColumns):
        return text
    return InputColumns.of(text) if text is not None else TrainConfig.model_validate(config).columns


def _count_rows(files: Sequence[str], columns: InputColumns, keep: bool) -> list[int]:
    """The number of rows of each file; an error if the files lack the texts or cannot be one table."""
    _, pq = import_arrow()
    how: dict[str, Any] = {"texts": columns, "records": keep, "format": "parquet", "span": (0, 0)}
    names = [next(iter_rows(file, (), **how)).names for file in files]
    for file, own in zip(files, names, strict=True):
        if keep and set(own) != set(names[0]):
            raise TableError(
                f"{file} has the columns {', '.join(own)}, and {files[0]} has {', '.join(names[0])}: "
                "one table cannot hold both",
                fix={"keep": False},
            )
    return [pq.read_metadata(file).num_rows for file in files]


def _check_out(out: Path, sources: Sequence[Path | str], files: Sequence[str]) -> None:
    if any(out.exists() and out.samefile(file) for file in files):
        raise OptionError(f"{out} is one of the inputs", argument="out")
    for source in map(Path, sources):
        if source.is_dir() and source.resolve() in out.resolve().parents:
            raise OptionError(f"{out} would be among the inputs in {source}", argument="out")


@contextmanager
def _session(ray: Any, workers: int | None) -> Iterator[bool]:
    """Connect to Ray or start it; gives whether it was started here, in which case it is stopped at the end."""
    if ray.is_initialized():
        yield False
        return
    address = os.environ.get("RAY_ADDRESS") or "local"
    is_own = address == "local"
    options: dict[str, Any] = {}
    if is_own:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        options = {"address": "local", "include_dashboard": False, "num_cpus": max(cores, workers or 1)}
    else:
        _check_address(address)
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    try:
        with _deferred_interrupt(), _no_stderr():
            ray.init(log_to_driver=False, logging_level=logging.CRITICAL, **options)
        yield is_own
    finally:
        with _deferred_interrupt():
            ray.shutdown()


def _check_address(address: str) -> None:
    """Raise if nothing listens at the address; Ray itself would retry for minutes."""
    host, _, port = address.rpartition(":")
    if "://" in address or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise OptionError(f"RAY_ADDRESS={address}: no Ray cluster answers ({error}); unset it to start Ray") from None


@contextmanager
def _deferred_interrupt() -> Iterator[None]:
    """Handle Ctrl-C after the block: Ray would leave processes behind if its start were interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    former = signal.signal(signal.SIGINT, lambda number, _frame: received.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
    if received:
        raise KeyboardInterrupt


@contextmanager
def _no_stderr() -> Iterator[None]:
    """Discard what compiled code writes to stderr: Ray announces there that it will log nothing."""
    kept = os.dup(2)
    with open(os.devnull, "wb") as null:
        os.dup2(null.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _resources(ray: Any, device: str, workers: int | None, is_own: bool) -> tuple[int, dict[str, float], str]:
    """The number of workers, the resources of each, and their device."""
    import torch

    cpus, gpus = (int(ray.cluster_resources().get(kind, 0)) for kind in ("CPU", "GPU"))
    if device == "auto":
        device = "cuda" if gpus and (not is_own or torch.cuda.is_available()) else "cpu"
    if device == "cuda":
        if not gpus:
            raise OptionError("Ray finds no GPU", argument="device")
        if is_own and workers is not None and workers > gpus:
            raise OptionError(f"expected at most {gpus}, the number of GPUs, found {workers}", argument="workers")
        workers = workers or gpus
    workers = workers or max(cpus, 1)
    resources: dict[str, float] = {"num_cpus": max(1, cpus // workers)}
    if device == "cuda":
        resources["num_gpus"] = 1
    return workers, resources, device
