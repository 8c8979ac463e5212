"""The Triton kernels against the torch reference: on a GPU, or through Triton's interpreter in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")
CASES = [Path(__file__).with_name(f"{name}_cases.py") for name in ("triton", "descent")]


def run(**environment):
    call = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", "-p", "no:cacheprovider", *map(str, CASES)]
    given = {**os.environ, "PYTEST_ADDOPTS": "", **environment}
    done = subprocess.run(call, env=given, capture_output=True, text=True, check=False, cwd=CASES[0].parents[2])
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert " passed" in done.stdout


def test_all_of_it_through_the_interpreter():
    run(TRITON_INTERPRET="1", CUDA_VISIBLE_DEVICES="")  # read when Triton is imported


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_all_of_it_on_the_gpu():
    run()
