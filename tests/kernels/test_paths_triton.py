"""The Triton kernels against the torch reference: on a GPU, or through Triton's interpreter in another process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")
CASES = [Path(__file__).with_name(f"{name}_cases.py") for name in ("triton", "precision", "search")]
INTERPRETER = {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}  # read when Triton is imported


def run(*options: str, **environment: str) -> None:
    call = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-o",
        "addopts=",
        "-p",
        "no:cacheprovider",
        *options,
        *map(str, CASES),
    ]
    given = {**os.environ, "PYTEST_ADDOPTS": "", **environment}
    done = subprocess.run(call, env=given, capture_output=True, text=True, check=False, cwd=CASES[0].parents[2])
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert " passed" in done.stdout


def test_the_fast_cases_pass_through_the_interpreter():
    run("-m", "not slow", **INTERPRETER)


@pytest.mark.slow
def test_the_slow_cases_pass_through_the_interpreter():
    run("-m", "slow", **INTERPRETER)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_all_cases_pass_on_the_gpu():
    run()
