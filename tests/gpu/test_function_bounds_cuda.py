"""Functions of Triton kernels against the bounds of comparisons: benchmarks/comparison/function_bounds.py."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from aoti_debug.compare.evaluate.rounding_errors import FUNCTION_BOUNDS
from tests.paths import ROOT

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_the_functions_of_triton_kernels_are_within_their_bounds() -> None:
    command = [sys.executable, "-m", "benchmarks.comparison.function_bounds", "--device", "cuda", "--step", "65537"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"| {name} |" in done.stdout for name in FUNCTION_BOUNDS)
