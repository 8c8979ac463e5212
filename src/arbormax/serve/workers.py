"""Several processes that answer at one address, each with a model of its own, and one that looks after them."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from arbormax.errors import ArbormaxError

Answer = Callable[[socket.socket, Callable[[str], None]], None]
SHARED = "PROMETHEUS_MULTIPROC_DIR"  # where prometheus_client adds up what the processes count
_LOOK = 0.2  # seconds between two looks at signals
_PAUSE = 1.0  # seconds before another process takes the place of one that ended
log = logging.getLogger("arbormax.serve")


def supervise(
    answer: Answer, count: int, listener: socket.socket, grace: float, started: Callable[[str], None] = lambda _: None
) -> None:
    """Run `answer(listener, started)` in so many processes until SIGINT or SIGTERM; `started` is told the address.

    A process that ends is replaced. Whoever is asked to stop has `grace` seconds to finish what it accepted. `answer`
    goes to other processes, so it is a function of a module or a partial one.
    """
    asked: list[int] = []
    with _signals(asked.append), _counts_together():
        team = [_Process(answer, listener) for _ in range(count)]
        try:
            addresses = [address for one in team if (address := one.ready(asked)) is not None]
            if not asked:
                started(addresses[0])
            while not asked:
                for at in _ended(team):
                    log.warning("a process ended with code %s: another takes its place", team[at].process.exitcode)
                    _forget(team[at].process.pid)
                    time.sleep(_PAUSE)
                    team[at] = _Process(answer, listener)
        finally:
            _stop(team, grace)


class _Process:
    def __init__(self, answer: Answer, listener: socket.socket) -> None:
        context = multiprocessing.get_context("spawn")
        self.news, report = context.Pipe(duplex=False)
        self.process: SpawnProcess = context.Process(target=_work, args=(answer, listener, report), daemon=True)
        self.process.start()
        report.close()

    def ready(self, asked: list[int]) -> str | None:
        """The address, when it answers; nothing if all are asked to stop before."""
        while not asked:
            if self.news in wait([self.news, self.process.sentinel], _LOOK):
                try:
                    is_well, told = self.news.recv()
                except EOFError:
                    is_well, told = False, "a process of the service ended before it could answer"
                if not is_well:
                    raise ArbormaxError(told)
                return str(told)
        return None


def _work(answer: Answer, listener: socket.socket, report: Connection) -> None:
    """What a process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the one that looks after them passes it on
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        answer(listener, partial(_tell, report, True))
    except ArbormaxError as error:
        _tell(report, False, str(error))
        raise SystemExit(2) from None


def _tell(report: Connection, is_well: bool, told: str) -> None:
    with suppress(BrokenPipeError):  # of a process that came later, whom nobody asks
        report.send((is_well, told))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def _ended(team: list[_Process]) -> list[int]:
    """Who has ended; waits a little."""
    gone = wait([one.process.sentinel for one in team], _LOOK)
    return [at for at, one in enumerate(team) if one.process.sentinel in gone]


def _stop(team: list[_Process], grace: float) -> None:
    for one in team:
        one.process.terminate()
    until = time.monotonic() + grace
    for one in team:
        one.process.join(max(0.0, until - time.monotonic()))
        if one.process.is_alive():
            log.error("a process did not stop within %g seconds and was killed", grace)
            one.process.kill()
            one.process.join()


@contextmanager
def _signals(note: Callable[[int], None]) -> Iterator[None]:
    """SIGINT and SIGTERM are noted, not died of."""
    former = {one: signal.signal(one, lambda number, _: note(number)) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in former.items():
            signal.signal(one, handler)


@contextmanager
def _counts_together() -> Iterator[None]:
    """A folder for the processes' counts."""
    former = os.environ.get(SHARED)
    with tempfile.TemporaryDirectory(prefix="arbormax-") as folder:
        os.environ[SHARED] = folder
        try:
            yield
        finally:
            os.environ.pop(SHARED)
            if former is not None:
                os.environ[SHARED] = former


def _forget(pid: int | None) -> None:
    """What waits in a process that has ended waits no more."""
    from prometheus_client.multiprocess import mark_process_dead

    mark_process_dead(pid)  # type: ignore[no-untyped-call]
