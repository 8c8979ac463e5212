"""The command line of a study: which datasets and arms to run, and on which devices."""

from __future__ import annotations

import argparse
import json
import logging
import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from arbormax.errors import InputError, OptionError, did_you_mean
from arbormax.training import TrainingInterrupted
from study import markdown
from study.differences import Found, store_differences
from study.plan import Study
from study.runner import Machine, run_studies
from study.summary import DATASETS, Results, headline, read_results, rows

INTERRUPTED = 130


def main(folder: Path, argv: Sequence[str]) -> int:
    """Run the studies in a folder, print their results, and return the exit status."""
    given = _parser().parse_args(argv)
    studies = [_select(Study.load(folder / f"{name}.json"), given) for name in _datasets(folder, given.dataset)]
    results = given.out or folder / ("quick" if given.quick else "results")
    command = shlex.join(["arbormax", "reproduce", str(folder), *argv])
    logging.getLogger("arbormax").setLevel(logging.WARNING)  # every training would report the same word vectors
    machine = Machine(given.workers, given.accelerator, given.devices)
    try:
        is_finished = run_studies(
            studies, results, machine=machine, minutes=given.minutes, command=command, progress=_print_progress
        )
    except (KeyboardInterrupt, TrainingInterrupted):
        is_finished = None
    if is_finished is None:
        _log(f"stopped; finished trainings are in {results}; continue with: {command}")
        return INTERRUPTED
    _print_results(studies, results, given)
    if not is_finished:
        _log("The time limit is reached before all trainings are finished; the same command continues.")
    _log(f"written: {results}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="arbormax reproduce STUDY_FOLDER",
        description="Cross-validation chooses the settings; every seed is then measured once on the test texts. "
        "Finished trainings are saved, one file each, and the same command continues. The texts and the GloVe vectors "
        "are read from ARBORMAX_DATA (`arbormax data list`).",
    )
    parser.add_argument("--dataset", default="all", help="trec, 20ng, r8, r52 or all (default)")
    parser.add_argument("--quick", action="store_true", help="2,000 texts, two folds, one seed: a check in minutes")
    parser.add_argument("--arms", metavar="A,B", help="run only these arms; a blend includes the arms it combines")
    parser.add_argument("--out", metavar="DIR", type=Path, help="folder of the results (default: results or quick)")
    parser.add_argument("--workers", type=int, default=1, help="trainings that run at the same time")
    parser.add_argument("--accelerator", default="auto", help="auto, cpu or gpu")
    parser.add_argument("--devices", type=int, help="number of GPUs (default: all)")
    parser.add_argument("--minutes", type=float, help="start no new training after this many minutes")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _datasets(folder: Path, dataset: str) -> list[str]:
    if dataset not in (*DATASETS, "all"):
        near = did_you_mean(dataset, (*DATASETS, "all"))
        raise OptionError(f"expected {', '.join(DATASETS)} or all, found {dataset!r}{near}", argument="dataset")
    if dataset != "all":
        return [dataset]
    found = [name for name in DATASETS if (folder / f"{name}.json").is_file()]
    if not found:
        raise InputError(f"{folder} contains no study: expected {', '.join(f'{name}.json' for name in DATASETS)}")
    return found


def _select(study: Study, given: argparse.Namespace) -> Study:
    """The part of a study that the options select."""
    if given.quick and given.arms is not None:
        raise OptionError("cannot be combined with --quick, which has an arm of its own", argument="arms")
    if given.quick:
        return study.quick()
    if given.arms is None:
        return study
    return study.only([name.strip() for name in given.arms.split(",") if name.strip()])


def _print_results(studies: Sequence[Study], folder: Path, given: argparse.Namespace) -> None:
    results = read_results(folder)
    differences = store_differences(results, folder)
    if given.json:
        print(json.dumps({study.dataset: _to_json(study, results, differences) for study in studies}, indent=2))
        return
    for study in studies:
        planned = {(arm.name, head): arm.seeds for arm, head in study.groups()}
        print(markdown.section(results, study.dataset, differences.get(study.dataset, {}), planned=planned), "\n")
    if given.quick:
        print("This is the quick study: it checks that everything runs and does not reproduce the paper's numbers.")


def _to_json(study: Study, results: Results, differences: Found) -> dict[str, Any]:
    """The rows, differences and headline of one dataset, with null for NaN."""
    arms = differences.get(study.dataset, {})
    values: dict[str, Any] = _without_nan(
        {
            "rows": [vars(row) for row in rows(results, study.dataset)],
            "differences": {arm: [one.to_dict() for one in entry.differences] for arm, entry in arms.items()},
            "headline": headline(results, study.dataset),
        }
    )
    return values


def _without_nan(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _print_progress(stage: str, done: int, total: int) -> None:
    _log(f"{done} of {total} trainings finished: {stage}")


def _log(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
