"""Scoring Parquet with Ray Data: many workers, and the same rows in the same order as one process gives.

The corpus is cut into pieces that begin where the local engine's batches begin. Workers turn pieces into Arrow tables,
and this process writes them in their order. A worker that dies has written nothing: its piece is given to another.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from arbormax._files import atomic_write
from arbormax.data.tables import iter_rows
from arbormax.data.tables.writing import import_arrow, to_arrow
from arbormax.errors import ArbormaxError, InputError, MissingDependencyError, OptionError
from arbormax.integrations._corpus import Piece, open_corpus
from arbormax.model import Model, load_model
from arbormax.model.folder import read_record
from arbormax.model.predict import Decoding
from arbormax.model.rows import ROWS, predict_rows

TRIES = 4  # workers that may die on one piece
GROUP_ROWS, GROUP_BYTES = 65_536, 64 << 20  # a row group of the output is written when it has so much

log = logging.getLogger(__name__)


def predict_parquet(
    model: Path | str,
    sources: Sequence[Path | str],
    out: Path | str,
    decoding: Decoding | None = None,
    *,
    text: str = "text",
    keep: bool = False,
    batch_size: int = 256,
    device: str = "auto",
    workers: int | None = None,
    modules: Sequence[str] = (),
    format: str | None = None,
    on_problems: Callable[[list[str]], None] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> int:
    """Predict the rows of Parquet files, write them to one Parquet file, and tell how many they are.

    `sources` are files, folders and patterns such as `corpus/*.parquet`. The rows, their order and their columns are
    those of `arbormax predict`; where several files were asked for, a column `file` stands before `line`. `modules` are
    imported by every worker, for encoders of your own. Bad rows are an error unless `on_problems` takes them.

    Ray is what this process is connected to, the cluster of RAY_ADDRESS, or started here and stopped at the end; every
    machine has to see the model and the files under the same paths.
    """
    if workers is not None and workers < 1:
        raise OptionError(f"workers is a number from 1, found {workers}")
    if device not in ("auto", "cpu", "cuda"):
        raise OptionError(
            f"with Ray the device is cpu, cuda or auto, and Ray gives each worker its own; found {device}"
        )
    ray, told = _packages(), progress or _nothing
    decoding = decoding or Decoding()
    read_record(Path(model))
    corpus = open_corpus(sources, text, keep, format)
    _check_out(Path(out), sources, corpus.files)
    total = corpus.total
    told("starting Ray", 0, total)
    with atomic_write(out) as stream, _session(ray, workers) as own:
        used, share, where = _resources(ray, device, workers, own)
        pieces = corpus.pieces(used)
        job = Job(
            model=str(Path(model).resolve()),
            text=text,
            decoding=decoding,
            keep=keep,
            batch_size=batch_size,
            device=where,
            threads=int(os.environ.get("OMP_NUM_THREADS") or share["num_cpus"]),
            modules=tuple(modules),
            folder=str(Path.cwd()),
            named=corpus.several and not keep,
            schema=corpus.schema(text, keep, decoding),
        )
        count = done = 0
        told("predicting", 0, total)
        found = _records(ray, job, pieces, min(used, len(pieces)), share)
        with closing(found), _writer(stream, job.schema) as write:
            for piece, record in found:
                if record["problems"]:
                    where_from = f"{piece.file}: " if corpus.several else ""
                    _tell([where_from + problem for problem in record["problems"]], piece.file, on_problems)
                table = import_arrow()[0].ipc.open_stream(record["rows"]).read_all()
                write(table)
                count += table.num_rows
                done += table.num_rows + len(record["problems"])
                told("predicting", done, total)
        if not count:
            raise InputError(f"{', '.join(map(str, sources))}: there are no texts in it")
    return count


@dataclass(frozen=True)
class Job:
    """What every worker has to know."""

    model: str
    text: str
    decoding: Decoding
    keep: bool
    batch_size: int
    device: str
    threads: int
    modules: tuple[str, ...]
    folder: str  # where modules of the user may lie
    named: bool  # whether rows tell their file
    schema: Any  # of the output


class Scorer:
    """A worker: pieces in, tables out; the model is loaded with the first piece."""

    def __init__(self, job: Job, tries: Any) -> None:
        self.job, self.tries = job, tries
        self.model: Model | None = None

    def __call__(self, batch: dict[str, Any]) -> Iterator[Any]:
        values = {name: column.tolist() for name, column in batch.items()}
        for place in range(len(values["at"])):
            piece = Piece(**{name: column[place] for name, column in values.items()})
            tried = import_module("ray").get(self.tries.begin.remote(piece.at))
            yield from self._piece(piece, tried)

    def _piece(self, piece: Piece, tried: int) -> Iterator[Any]:
        if tried > TRIES:
            told = f"{piece}: {TRIES} workers died on them one after the other; is there enough memory for so many?"
            yield _record(piece.at, tried=tried, error=told)
            return
        job = self.job
        try:
            if self.model is None:
                self.model = _loaded(job)
            path = str(Path(job.folder, piece.file))
            how: dict[str, Any] = {"format": "parquet", "records": job.keep, "on_bad_rows": "skip"}
            batches = iter_rows(path, [job.text], ROWS, required=[job.text], span=(piece.first, piece.stop), **how)
            for part, batch in enumerate(batches):
                problems: list[str] = []
                rows = predict_rows(
                    self.model,
                    [batch],
                    job.text,
                    job.decoding,
                    batch_size=job.batch_size,
                    keep=job.keep,
                    on_bad_rows=problems.extend,
                )
                named = ({"file": piece.file, **row} for row in rows) if job.named else rows
                table = to_arrow(list(named), job.schema)
                yield _record(piece.at, part, tried, problems, table)
        except (ArbormaxError, OSError) as error:
            yield _record(piece.at, tried=tried, error=str(error))


class Tries:
    """How often each piece was begun; lives apart from the workers, which may die."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def begin(self, at: int) -> int:
        self.counts[at] += 1
        return self.counts[at]


def _loaded(job: Job) -> Model:
    import torch

    torch.set_num_threads(job.threads)
    if job.modules and job.folder not in sys.path:
        sys.path.append(job.folder)
    for name in job.modules:
        import_module(name)
    return load_model(job.model, job.device)


def _record(
    at: int, part: int = 0, tried: int = 1, problems: Sequence[str] = (), table: Any = None, error: str | None = None
) -> Any:
    """What a worker tells: one row, the predictions in it as Arrow's own bytes."""
    pa, _ = import_arrow()
    held = pa.BufferOutputStream()
    if table is not None:
        with pa.ipc.new_stream(held, table.schema) as stream:
            stream.write_table(table)
    kinds = {"at": pa.int64(), "part": pa.int64(), "tried": pa.int64(), "problems": pa.list_(pa.string())}
    kinds |= {"rows": pa.large_binary(), "error": pa.string()}
    values = [at, part, tried, list(problems), held.getvalue().to_pybytes(), error]
    return pa.table([[value] for value in values], schema=pa.schema(list(kinds.items())))


def _records(
    ray: Any, job: Job, pieces: list[Piece], workers: int, share: dict[str, float]
) -> Generator[tuple[Piece, dict[str, Any]]]:
    """What the workers tell, in the order of the pieces and of the parts in each."""
    data = import_module("ray.data")
    tries = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(Tries).remote()
    dataset = data.from_items([asdict(piece) for piece in pieces], override_num_blocks=len(pieces)).map_batches(
        Scorer,
        batch_size=1,
        compute=data.ActorPoolStrategy(size=workers),
        fn_constructor_kwargs={"job": job, "tries": tries},
        **share,
    )
    dataset.context.execution_options.preserve_order = True
    dataset.context.enable_progress_bars = False
    dataset.context.print_on_execution_start = False
    expected = ((piece, part) for piece in pieces for part in range(piece.parts))
    blocks = iter(dataset.iter_batches(batch_size=None, batch_format="pyarrow"))
    try:
        for block in blocks:
            for record in block.to_pylist():
                if record["error"] is not None:
                    raise InputError(record["error"])
                piece, part = next(expected)
                if (record["at"], record["part"]) != (piece.at, part):
                    raise RuntimeError(f"part {part} of {piece} was to come, and another one came")
                if record["tried"] > 1 and part == 0:
                    log.warning("a worker died: %s were given to another", piece)
                yield piece, record
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None) or error
        raise RuntimeError(f"in a worker: {type(cause).__name__}: {str(cause).splitlines()[0]}") from error
    finally:
        blocks.close()  # its threads end before Ray does
    if (left := next(expected, None)) is not None:
        raise RuntimeError(f"part {left[1]} of {left[0]} never came")


@contextmanager
def _writer(stream: IO[bytes], schema: Any) -> Iterator[Callable[[Any], None]]:
    """The function that writes a table, several together as one row group."""
    pa, pq = import_arrow()
    held: list[Any] = []
    with pq.ParquetWriter(stream, schema) as file:

        def flush() -> None:
            if held:
                file.write_table(pa.concat_tables(held))
                held.clear()

        def write(table: Any) -> None:
            held.append(table)
            if sum(t.num_rows for t in held) >= GROUP_ROWS or sum(t.nbytes for t in held) >= GROUP_BYTES:
                flush()

        yield write
        flush()


def _tell(problems: list[str], file: str, on_problems: Callable[[list[str]], None] | None) -> None:
    if on_problems is None:
        raise InputError(f"{file}: {len(problems)} rows cannot be used, such as {problems[0]}")
    on_problems(problems)


def _nothing(_stage: str, _done: int, _total: int) -> None:
    """Progress that no one watches."""


def _check_out(out: Path, sources: Sequence[Path | str], files: Sequence[str]) -> None:
    if any(out.exists() and out.samefile(file) for file in files):
        raise OptionError(f"{out} is one of the inputs: choose another name")
    for source in map(Path, sources):
        if source.is_dir() and source.resolve() in out.resolve().parents:
            raise OptionError(f"{out} would lie in {source} among the inputs: choose another folder")


def _packages() -> Any:
    try:
        import_module("ray.data")
    except ImportError as error:
        if (error.name or "ray").split(".")[0] in ("ray", "pandas"):
            raise MissingDependencyError("--engine ray", "ray[data]", "ray") from None
        raise
    return import_module("ray")


@contextmanager
def _session(ray: Any, workers: int | None) -> Iterator[bool]:
    """Connected to Ray, and quiet; gives whether it was started here, and then stops it at the end."""
    if ray.is_initialized():
        yield False
        return
    address = os.environ.get("RAY_ADDRESS") or "local"
    own = address == "local"
    options: dict[str, Any] = {}
    if not own:
        _check_address(address)
    else:
        options = {"address": "local", "include_dashboard": False, "num_cpus": max(_cpus(), workers or 1)}
    loggers = [logging.getLogger(name) for name in ("ray", "ray.data")]
    levels = [logger.level for logger in loggers]
    try:
        quiet = _environment(RAY_USAGE_STATS_ENABLED="0", RAY_BACKEND_LOG_LEVEL="fatal")
        with _uninterrupted() if own else nullcontext(), quiet, _no_stderr():
            ray.init(log_to_driver=False, logging_level=logging.CRITICAL, **options)
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        _show_raylet(False)  # its words on a dead worker go to stdout; ours tell which rows it had
        yield own
    finally:
        _show_raylet(True)
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        with _uninterrupted():
            ray.shutdown()


def _check_address(address: str) -> None:
    """An error where no one listens, for Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if "://" in address or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise OptionError(
            f"RAY_ADDRESS={address}: no Ray answers there ({error}); unset it to start one here"
        ) from None


def _show_raylet(shown: bool) -> None:
    with suppress(ImportError):
        worker: Any = import_module("ray._private.worker")
        if hasattr(worker, "_worker_logs_enabled"):
            worker._worker_logs_enabled = shown  # noqa: SLF001 - Ray has no public switch


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C is heard when this is done: a Ray that is half started leaves processes behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: list[int] = []
    former = signal.signal(signal.SIGINT, lambda number, _frame: asked.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
    if asked:
        raise KeyboardInterrupt


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Variables that hold inside, unless the user has set them."""
    fresh = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(fresh)
    try:
        yield
    finally:
        for name in fresh:
            os.environ.pop(name, None)


@contextmanager
def _no_stderr() -> Iterator[None]:
    """Nothing reaches stderr inside, not even from compiled code, which tells there that it will be quiet."""
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _cpus() -> int:
    with suppress(AttributeError):  # not on every system
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _resources(ray: Any, device: str, workers: int | None, own: bool) -> tuple[int, dict[str, float], str]:
    """How many workers, what each takes, and the device it computes on."""
    import torch

    cpus, gpus = (int(ray.cluster_resources().get(kind, 0)) for kind in ("CPU", "GPU"))
    if device == "auto":
        device = "cuda" if gpus and (not own or torch.cuda.is_available()) else "cpu"
    if device == "cuda":
        if not gpus:
            raise OptionError("--device cuda: Ray knows of no GPU here")
        if own and workers is not None and workers > gpus:
            raise OptionError(f"each worker takes a GPU, and there are {gpus}: ask for no more than {gpus} workers")
        workers = workers or gpus
    workers = workers or max(cpus, 1)
    nodes = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
    room = int(min((count for count in nodes if count >= 1), default=1))
    share: dict[str, float] = {"num_cpus": max(1, min(cpus // workers, room))}
    if device == "cuda":
        share["num_gpus"] = 1
    return workers, share, device
