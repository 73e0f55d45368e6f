"""The random numbers that kernels draw: equal to what the kernels' own functions draw from the same seed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import torch

from aoti_debug.compare.evaluate.random_numbers import INTEGER, UNIFORM_OR_NORMAL, drawn

SEED = torch.tensor(8374652893746528374)
LOW, HIGH = -5, 2**62 + 12345
COUNT = (1 << 19) + 6  # more than are drawn at once

# Printed by a program that includes torch/csrc/inductor/cpp_prefix.h
UNIFORM = [0.9928293824195862, 0.6329509615898132, 0.6622850298881531, 0.5364629030227661, 0.5278593897819519]
NORMAL = [-0.1762661337852478, -0.9063150882720947, 1.2545537948608398, -0.02523798495531082, -1.7154254913330078]
INTEGERS = [2388223851337394364, 3325593541576788483, 3801246839513387443, 4097151809681166087]


def numbers(mode: str, count: int, device: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    if mode == "randint":
        return drawn(INTEGER, [LOW, HIGH, [count], SEED], device, dtype)
    return drawn(UNIFORM_OR_NORMAL, [[count], SEED, mode], device, dtype)


def test_those_of_cpp_kernels() -> None:
    uniform, normal, integer = (numbers(mode, COUNT, "cpu") for mode in ("rand", "randn", "randint"))
    assert uniform[[0, 1, 2, 3, 1 << 18]].tolist() == UNIFORM
    assert torch.allclose(normal[[0, 1, 2, 3, (1 << 19) + 3]], torch.tensor(NORMAL), rtol=1e-6, atol=0)
    assert integer[[0, 1, 2, (1 << 19) + 5]].tolist() == INTEGERS


def test_those_of_triton_kernels() -> None:
    script = Path(__file__).with_name("triton_random.py")
    arguments = [str(SEED.item()), str(LOW), str(HIGH)]
    printed = subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True, check=True)
    expected = json.loads(printed.stdout)
    count = len(expected["rand"])
    assert numbers("rand", count, "cuda:0").tolist() == expected["rand"]
    assert numbers("randint", count, "cuda:0").tolist() == expected["randint"]
    normal = numbers("randn", count, "cuda:0")
    assert torch.allclose(normal, torch.tensor(expected["randn"]), rtol=1e-5, atol=1e-6)


def test_shapes_and_precisions() -> None:
    normal = drawn(UNIFORM_OR_NORMAL, [[3, 4], SEED, "randn"], "cpu", torch.float32)
    exact = drawn(UNIFORM_OR_NORMAL, [[3, 4], SEED, "randn"], "cpu", torch.float64)
    assert (normal.shape, exact.dtype) == ((3, 4), torch.float64)
    assert torch.allclose(normal.double(), exact, rtol=1e-6)
    assert drawn(INTEGER, [0, 7, [0, 2], SEED], "cpu", torch.float32).shape == (0, 2)
    assert drawn(UNIFORM_OR_NORMAL, [[], SEED, "rand"], "cpu", torch.float32).shape == ()
