"""A study, run: folds first, then a choice, then the test texts, on all the devices there are."""

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
from study.files import training_texts, write_file
from study.jobs import Job
from study.plan import Arm, Study, titles

Progress = Callable[[str, int, int], None]


class StudyError(ArbormaxError, RuntimeError):
    """Some trainings of a study failed; the others are finished."""


@dataclass(frozen=True)
class Machine:
    """What a study may use: `workers` trainings at a time, spread over the devices."""

    workers: int = 1
    accelerator: str = "auto"
    devices: int | None = None  # None: all there are

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise OptionError(f"a study needs one worker or more, found {self.workers}")
        if self.accelerator not in ("auto", "cpu", "gpu", "cuda"):
            raise OptionError(f"accelerator is auto, cpu or gpu, found {self.accelerator!r}")
        if self.accelerator in ("gpu", "cuda") and not torch.cuda.is_available():
            raise OptionError("there is no GPU that torch can use: give accelerator='cpu'")
        if self.devices is not None and self.devices < 1:
            raise OptionError(f"a study needs one device or more, found {self.devices}")

    def hardware(self) -> list[Hardware]:
        """The device of each worker."""
        if self.accelerator == "cpu" or not torch.cuda.is_available():
            return [Hardware("cpu", 1)] * self.workers
        there = torch.cuda.device_count()
        if self.devices is not None and self.devices > there:
            raise OptionError(f"{self.devices} devices were asked for, and there are {there}")
        return [Hardware("gpu", f"{number % (self.devices or there)},") for number in range(self.workers)]


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
    """Run what is not finished yet; whether all of it is now. After so many minutes nothing new is begun.

    Every finished training is a file below `results`, so that a call that is started again goes on where it was.
    """
    if results.exists() and not results.is_dir():
        raise OptionError(f"{results} is a file: the results of a study are a folder")
    groups = [_Group(study, arm, head, results) for study in studies for arm, head in study.groups()]
    for group in groups:
        group.check()
    for group in groups:
        if group.left:
            group.look_for_files()
    results.mkdir(parents=True, exist_ok=True)
    total = sum(group.size for group in groups)
    told = progress or (lambda *_: None)
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    failed: dict[str, BaseException] = {}
    running: dict[Future[None], tuple[_Group, Job]] = {}
    done = total - sum(group.left for group in groups)
    with _executor(machine, results, command) as pool:
        try:
            for is_blend in (False, True):  # a blend is made of what the other arms leave
                wave = [group for group in groups if bool(group.parts) == is_blend]
                waiting = [(group, job) for group in wave for job in group.folds()]
                waiting += [(group, job) for group in wave for job in group.tests()]
                while waiting or running:
                    is_late = deadline is not None and time.monotonic() >= deadline
                    while waiting and not is_late and len(running) < machine.workers:
                        group, job = waiting.pop(0)
                        told(job.file, done, total)
                        running[pool.submit(_work, job)] = (group, job)
                    if not running:
                        break
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        group, job = running.pop(future)
                        if (error := future.exception()) is not None:
                            failed[job.file] = _survived(error, job)
                            continue
                        done += 1
                        if job.choice is None:
                            waiting += [(group, test) for test in group.tests()]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    done = total - sum(group.left for group in groups)  # a fold that was made again may have found its runs there
    told("finished" if not failed else "finished, with failures", done, total)
    if failed:
        first, error = next(iter(failed.items()))
        more = f", and {len(failed) - 1} others" if len(failed) > 1 else ""
        raise StudyError(f"{first} failed{more}: {type(error).__name__}: {error}") from error
    return done == total


def _survived(error: BaseException, job: Job) -> BaseException:
    """The error of one training, where the others can go on."""
    if isinstance(error, TrainingInterrupted):
        raise error
    if isinstance(error, BrokenExecutor):
        raise StudyError(
            f"{job.file}: a worker was ended from outside, for want of memory perhaps; what is finished is kept, and "
            "the same call goes on"
        ) from error
    return error


class _Group:
    """An arm with a head: its folds, their choice, its measurements."""

    def __init__(self, study: Study, arm: Arm, head: str, results: Path) -> None:
        self.study, self.arm, self.head, self.results = study, arm, head, results
        self.parts = [_Group(study, study.arm(name), head, results) for name in arm.of]  # of a blend
        self.size = len(arm.points) * study.folds + arm.seeds
        self._begun = False  # whether the measurements were handed out

    def check(self) -> None:
        """Raise where something finished is of other settings."""
        _ = self.left

    def look_for_files(self) -> None:
        """Raise where training texts or word vectors are not there, before anything runs."""
        training_texts(self.study, self.arm)
        for job in self._all_folds()[:1]:
            _ = job.settings

    @property
    def left(self) -> int:
        """How many trainings are not finished."""
        choice = self.choice()
        jobs = [*self._all_folds(), *([] if choice is None else self._all_tests(choice))]
        return self.size - len(jobs) + len(self._unfinished(jobs))

    def folds(self) -> list[Job]:
        """The trainings of cross-validation that are not finished."""
        return self._unfinished(self._all_folds())

    def tests(self) -> list[Job]:
        """The measurements that are not finished, once, and only when all folds are."""
        choice = None if self._begun else self.choice()
        if choice is None or any(part.left for part in self.parts):
            return []
        self._begun = True
        path = self.results / self.study.dataset / "choices" / f"{self.arm.name}-{self.head}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        named = titles(self.study, self.arm, self.head)
        write_file(path, (json.dumps({**named, **choice.to_dict()}, indent=1) + "\n").encode())
        return self._unfinished(self._all_tests(choice))

    def choice(self) -> Choice | None:
        """What the folds choose, when all of them are finished."""
        records = [job.record(self.results) for job in self._all_folds()]
        finished = [record for record in records if record is not None]
        is_whole = finished and len(finished) == len(records)
        return choose(self.arm, finished, self.study.folds) if is_whole else None

    def _all_folds(self) -> list[Job]:
        chosen = [part.choice() for part in self.parts]
        if None in chosen:
            return []  # not before its parts have chosen
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
        """The trainings that a blend is made of."""
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


class _Here(Executor):
    """Runs a job where it is submitted: one worker needs no process of its own."""

    def submit(self, work: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*given, **named))
        except Exception as error:  # told by whoever asks for the result
            future.set_exception(error)
        return future


_worker: dict[str, Any] = {}  # of this process: where it computes and writes


def _executor(machine: Machine, results: Path, command: str) -> Executor:
    hardware = machine.hardware()
    if machine.workers == 1:
        _worker.update(hardware=hardware[0], results=results, command=command)
        return _Here()
    context = multiprocessing.get_context("spawn")
    places: Queue[Hardware] = context.Queue()
    for place in hardware:
        places.put(place)
    threads = max(1, (os.cpu_count() or 1) // machine.workers)
    return ProcessPoolExecutor(
        machine.workers, mp_context=context, initializer=_begin, initargs=(places, results, command, threads)
    )


def _begin(places: Queue[Hardware], results: Path, command: str, threads: int) -> None:
    _worker.update(hardware=places.get(), results=results, command=command)
    torch.set_num_threads(threads)
    threading.Thread(target=_follow_parent, daemon=True).start()


def _follow_parent() -> None:
    """A worker whose parent was killed would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _work(job: Job) -> None:
    hardware = Hardware("cpu", 1) if job.arm.device == "cpu" else _worker["hardware"]
    job.run(_worker["results"], hardware, _worker["command"])
