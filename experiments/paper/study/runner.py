"""Runs a study on all devices: first the folds, then the choice, then the test texts."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import torch

from arbormax.errors import ArbormaxError, OptionError
from arbormax.training import Hardware, TrainingInterrupted
from study.choice import Choice, choose
from study.files import load_training_texts, write_file
from study.jobs import Job
from study.plan import Arm, Study, titles

Progress = Callable[[str, int, int], None]


class StudyError(ArbormaxError, RuntimeError):
    """Trainings of a study failed; the others are finished."""


@dataclass(frozen=True)
class Machine:
    """The devices of a study, and the number of trainings that run at the same time."""

    workers: int = 1
    accelerator: str = "auto"
    devices: int | None = None  # None: all

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise OptionError(f"expected at least one worker, found {self.workers}", argument="workers")
        if self.accelerator not in ("auto", "cpu", "gpu", "cuda"):
            raise OptionError(f"expected auto, cpu or gpu, found {self.accelerator!r}", argument="accelerator")
        if self.accelerator in ("gpu", "cuda") and not torch.cuda.is_available():
            raise OptionError("torch finds no GPU on this machine", argument="accelerator", fix={"accelerator": "cpu"})
        if self.devices is not None and self.devices < 1:
            raise OptionError(f"expected at least one device, found {self.devices}", argument="devices")

    def hardware(self) -> list[Hardware]:
        """The device of each worker."""
        if self.accelerator == "cpu" or not torch.cuda.is_available():
            return [Hardware("cpu", 1)] * self.workers
        available = torch.cuda.device_count()
        if self.devices is not None and self.devices > available:
            raise OptionError(
                f"expected at most {available}, the number of GPUs, found {self.devices}", argument="devices"
            )
        return [Hardware("gpu", f"{number % (self.devices or available)},") for number in range(self.workers)]


ONE_WORKER = Machine()


def run_studies(
    studies: Sequence[Study],
    results: Path,
    *,
    machine: Machine = ONE_WORKER,
    minutes: float | None = None,
    command: str = "",
    progress: Progress | None = None,
) -> bool:
    """Run the unfinished trainings of the studies; returns whether all are finished.

    No training starts after `minutes`. Each finished training is a file in `results`; a restarted call continues.
    """
    if results.exists() and not results.is_dir():
        raise OptionError(f"{results} is a file; expected a folder")
    groups = [_Group(study, arm, head, results) for study in studies for arm, head in study.groups()]
    for group in groups:
        group.check()
    for group in groups:
        if group.left:
            group.check_files()
    results.mkdir(parents=True, exist_ok=True)
    total = sum(group.size for group in groups)
    report = progress or (lambda *_: None)
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    failed: dict[str, BaseException] = {}
    running: dict[Future[None], tuple[_Group, Job]] = {}
    done = total - sum(group.left for group in groups)
    with _executor(machine, results, command) as pool:
        try:
            for is_blend in (False, True):  # a blend needs the other arms
                wave = [group for group in groups if bool(group.parts) == is_blend]
                waiting = [(group, job) for group in wave for job in group.folds()]
                waiting += [(group, job) for group in wave for job in group.tests()]
                while waiting or running:
                    is_late = deadline is not None and time.monotonic() >= deadline
                    while waiting and not is_late and len(running) < machine.workers:
                        group, job = waiting.pop(0)
                        report(job.file, done, total)
                        running[pool.submit(_work, job)] = (group, job)
                    if not running:
                        break
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        group, job = running.pop(future)
                        if (error := future.exception()) is not None:
                            failed[job.file] = _continue_after(error, job)
                            continue
                        done += 1
                        if job.choice is None:
                            waiting += [(group, test) for test in group.tests()]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    done = total - sum(group.left for group in groups)  # a repeated fold may find its runs finished
    report("finished" if not failed else "finished, with failures", done, total)
    if failed:
        first, error = next(iter(failed.items()))
        more = f", and {len(failed) - 1} others" if len(failed) > 1 else ""
        raise StudyError(f"{first} failed{more}: {type(error).__name__}: {error}") from error
    return done == total


def _continue_after(error: BaseException, job: Job) -> BaseException:
    """The error of one training if the others can continue; raises it otherwise."""
    if isinstance(error, TrainingInterrupted):
        raise error
    if isinstance(error, BrokenExecutor):
        raise StudyError(
            f"{job.file}: a worker process was killed, possibly for lack of memory; run the same command again to "
            "continue"
        ) from error
    return error


class _Group:
    """An arm with a head: its folds, the choice, and the runs on the test texts."""

    def __init__(self, study: Study, arm: Arm, head: str, results: Path) -> None:
        self.study, self.arm, self.head, self.results = study, arm, head, results
        self.parts = [_Group(study, study.arm(name), head, results) for name in arm.of]  # the arms of a blend
        self.size = (0 if arm.best_on_test else len(arm.points) * study.folds) + arm.seeds
        self._submitted = False  # whether the runs on the test texts were submitted

    def check(self) -> None:
        """Raise if a finished record has other settings."""
        _ = self.left

    def check_files(self) -> None:
        """Raise if training texts or word vectors are missing."""
        load_training_texts(self.study, self.arm)
        for job in self._all_folds()[:1]:
            _ = job.settings

    @property
    def left(self) -> int:
        """The number of unfinished trainings."""
        choice = self.choice()
        jobs = [*self._all_folds(), *([] if choice is None else self._all_tests(choice))]
        return self.size - len(jobs) + len(self._unfinished(jobs))

    def folds(self) -> list[Job]:
        """The unfinished trainings of cross-validation."""
        return self._unfinished(self._all_folds())

    def tests(self) -> list[Job]:
        """The unfinished runs on the test texts, once, after all folds are finished."""
        choice = None if self._submitted else self.choice()
        if choice is None or any(part.left for part in self.parts):
            return []
        self._submitted = True
        path = self.results / self.study.dataset / "choices" / f"{self.arm.name}-{self.head}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        named = titles(self.study, self.arm, self.head)
        if not self.arm.best_on_test:
            write_file(path, (json.dumps({**named, **choice.to_dict()}, indent=1) + "\n").encode())
        return self._unfinished(self._all_tests(choice))

    def choice(self) -> Choice | None:
        """The choice, if all folds are finished."""
        if self.arm.best_on_test:
            [point] = self.arm.points
            return Choice(point, self.arm.config(self.head, point, 0).epochs, None, None, ())
        records = [job.record(self.results) for job in self._all_folds()]
        finished = [record for record in records if record is not None]
        is_complete = finished and len(finished) == len(records)
        return choose(self.arm, finished, self.study.folds) if is_complete else None

    def _all_folds(self) -> list[Job]:
        chosen = [part.choice() for part in self.parts]
        if None in chosen or self.arm.best_on_test:
            return []  # after the choices of its parts
        return [
            Job(self.study, self.arm, self.head, point, fold=fold, members=self._members(chosen, fold=fold))
            for point in self.arm.points
            for fold in range(self.study.folds)
        ]

    def _all_tests(self, choice: Choice) -> list[Job]:
        jobs = []
        for seed in range(self.arm.seeds):
            members = self._members([part.choice() for part in self.parts], seed=seed)
            jobs.append(Job(self.study, self.arm, self.head, choice.point, seed=seed, choice=choice, members=members))
        return jobs

    def _members(self, chosen: Sequence[Choice | None], fold: int | None = None, seed: int = 0) -> tuple[Job, ...]:
        """The trainings that a blend combines."""
        return tuple(
            Job(
                self.study,
                part.arm,
                self.head,
                choice.point,
                fold=fold,
                seed=seed,
                choice=choice if fold is None else None,
            )
            for part, choice in zip(self.parts, chosen, strict=True)
            if choice is not None
        )

    def _unfinished(self, jobs: list[Job]) -> list[Job]:
        return [job for job in jobs if job.record(self.results) is None]


class _InProcessExecutor(Executor):
    """Runs each job in this process: one worker needs no other process."""

    def submit(self, work: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*given, **named))
        except Exception as error:  # raised by `future.exception()`
            future.set_exception(error)
        return future


_worker: dict[str, Any] = {}  # the hardware and the results folder of this process


def _executor(machine: Machine, results: Path, command: str) -> Executor:
    hardware = machine.hardware()
    if machine.workers == 1:
        _worker.update(hardware=hardware[0], results=results, command=command)
        return _InProcessExecutor()
    context = multiprocessing.get_context("spawn")
    queue: Queue[Hardware] = context.Queue()
    for place in hardware:
        queue.put(place)
    threads = max(1, (os.cpu_count() or 1) // machine.workers)
    return ProcessPoolExecutor(
        machine.workers, mp_context=context, initializer=_start_worker, initargs=(queue, results, command, threads)
    )


def _start_worker(queue: Queue[Hardware], results: Path, command: str, threads: int) -> None:
    _worker.update(hardware=queue.get(), results=results, command=command)
    torch.set_num_threads(threads)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    """Exit when the parent ends: a worker would wait for work forever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _work(job: Job) -> None:
    hardware = Hardware("cpu", 1) if job.arm.device == "cpu" else _worker["hardware"]
    job.run(_worker["results"], hardware, _worker["command"])
