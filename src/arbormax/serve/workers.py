"""Several processes that answer at one address, each with a model of its own, and one that looks after them."""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from arbormax.errors import ArbormaxError

Answer = Callable[[socket.socket, Callable[[str], None]], None]
_SHARED = "PROMETHEUS_MULTIPROC_DIR"  # where prometheus_client adds up what the processes count
_LOOK = 0.2  # seconds between two looks at signals
_FAILURES = 4  # processes in a row that end before they answer: the next would, too
_MORE = 5.0  # seconds beyond its own limit that a process has to stop
_several = False
log = logging.getLogger("arbormax.serve")


def is_one_of_several() -> bool:
    """Whether this process answers beside others, with whom it shares its counts."""
    return _several


def supervise(
    answer: Answer, count: int, listener: socket.socket, grace: float, started: Callable[[str], None] = lambda _: None
) -> bool:
    """Run `answer(listener, started)` in so many processes until SIGINT or SIGTERM; whether all of them stopped well.

    `started` is told the address when all of them answer. A process that ends is replaced. Whoever is asked to stop
    has `grace` seconds to finish what it accepted; the listener is closed then. `answer` goes to other processes, so it
    is a function of a module or a partial one.
    """
    asked: list[int] = []
    with _signals(asked.append), _counts_together():
        team = [_Process(answer, listener) for _ in range(count)]
        try:
            while not asked and not all(one.address for one in team):
                _look(team)
                for one in team:
                    if one.has_ended and not asked:
                        one.read()  # what it said last
                        raise ArbormaxError(one.trouble)
            if not asked:
                started(team[0].address)
            _replace(team, answer, listener, asked)
        finally:
            listener.close()  # or callers would be let in whom nobody answers
            is_well = _stop(team, grace + _MORE)
    return is_well


class _Process:
    """One that answers: its address as soon as it does, or what kept it from that."""

    def __init__(self, answer: Answer, listener: socket.socket) -> None:
        resource_tracker.ensure_running()  # or the first start would do it, and let interrupts through again
        context = multiprocessing.get_context("spawn")
        self.news, report = context.Pipe(duplex=False)
        self.process: SpawnProcess = context.Process(target=_work, args=(answer, listener, report), daemon=True)
        self.address, self.trouble = "", "a process of the service ended before it could answer"
        with _without_interrupts():  # until it can tell what to do with them
            self.process.start()
        report.close()

    @property
    def has_ended(self) -> bool:
        return not self.process.is_alive()

    def read(self) -> None:
        with suppress(EOFError):
            while self.news.poll():
                is_well, told = self.news.recv()
                if is_well:
                    self.address = told
                else:
                    self.trouble = told


def _look(team: list[_Process]) -> None:
    """Wait a little for news, or for one that ends."""
    watched: list[Any] = [one.process.sentinel for one in team]
    watched += [one.news for one in team if not one.address and not one.has_ended]
    wait(watched, _LOOK)
    for one in team:
        one.read()


def _replace(team: list[_Process], answer: Answer, listener: socket.socket, asked: list[int]) -> None:
    """Another for each that ends, until all are asked to stop; an error if they cannot be had."""
    failures = 0
    while not asked:
        _look(team)
        failures = 0 if all(one.address for one in team) else failures
        for at, one in enumerate(team):
            if asked or not one.has_ended:
                continue
            one.process.join()
            one.read()  # what it said last
            if not one.address:
                failures += 1
                log.error("%s", one.trouble)
                if failures == _FAILURES:
                    raise ArbormaxError(one.trouble)
            log.warning("a process ended with code %s: another takes its place", one.process.exitcode)
            _forget(one.process.pid)
            _pause(2.0**failures, asked)
            if not asked:
                team[at] = _Process(answer, listener)


def _pause(seconds: float, asked: list[int]) -> None:
    until = time.monotonic() + seconds
    while not asked and time.monotonic() < until:
        time.sleep(_LOOK)


def _stop(team: list[_Process], seconds: float) -> bool:
    for one in team:
        one.process.terminate()
    until, is_well = time.monotonic() + seconds, True
    for one in team:
        one.process.join(max(0.0, until - time.monotonic()))
        if one.process.is_alive():
            log.error("a process did not stop within %g seconds and was killed", seconds)
            one.process.kill()
            one.process.join()
            is_well = False
    return is_well


def _work(answer: Answer, listener: socket.socket, report: Connection) -> None:
    """What a process does."""
    global _several
    _several = True
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # while the model is loaded; Uvicorn listens to it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # with all that has to be done at the end
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def tell(is_well: bool, told: str) -> None:
        with suppress(OSError):
            report.send((is_well, told))

    try:
        answer(listener, lambda address: tell(True, address))
    except ArbormaxError as error:
        tell(False, str(error))
        raise SystemExit(2) from None
    finally:
        parent = multiprocessing.parent_process()
        if parent is not None and not parent.is_alive():  # killed: nobody else clears up
            shutil.rmtree(os.environ[_SHARED], ignore_errors=True)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    while True:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1.0)


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
def _without_interrupts() -> Iterator[None]:
    """Ctrl-C waits; a process that is started inside begins so."""
    former = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


@contextmanager
def _counts_together() -> Iterator[None]:
    """A folder for the processes' counts."""
    former = os.environ.get(_SHARED)
    with tempfile.TemporaryDirectory(prefix="arbormax-") as folder:
        os.environ[_SHARED] = folder
        try:
            yield
        finally:
            os.environ.pop(_SHARED)
            if former is not None:
                os.environ[_SHARED] = former


def _forget(pid: int | None) -> None:
    """What waits in a process that has ended waits no more."""
    from prometheus_client.multiprocess import mark_process_dead

    mark_process_dead(pid)  # type: ignore[no-untyped-call]
