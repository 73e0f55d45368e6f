from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from aoti_debug.compare.evaluate.functions import (
    ELEMENTWISE,
    INTEGER,
    OPERATORS,
    UNIFORM_OR_NORMAL,
    NotEvaluableError,
    drawn,
    implementation_of,
    operator_of,
)

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


def test_an_operator_and_a_function_of_python() -> None:
    assert operator_of("aten.add.Tensor") is torch.ops.aten.add.Tensor
    assert operator_of("_operator.getitem")([3, 4], 1) == 4


@pytest.mark.parametrize("target", ["aoti_debug.print_.default", "aoti_debug.inspect_.default"])
def test_prints_and_inspectors_do_nothing(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert operator_of(target)("x={}", [torch.ones(2)], []) is None
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("target", "reason"),
    [("aten.no_such_operator.default", "is not known here"), ("higher_order.cond", "has no evaluation of its own")],
)
def test_what_cannot_be_evaluated(target: str, reason: str) -> None:
    with pytest.raises(NotEvaluableError, match=reason):
        operator_of(target)


def test_an_operator_of_prims_is_computed_in_terms_of_aten() -> None:
    function = implementation_of("prims.convert_element_type.default")
    assert torch.equal(function(torch.tensor([1.5, 2.5]), torch.int64), torch.tensor([1, 2]))


_X = torch.arange(12.0).reshape(3, 4) / 7
_CALLS: dict[str, tuple[Any, ...]] = {
    "prims.prepare_softmax_online.default": (_X, -1),
    "prims.inductor_lookup_seed.default": (torch.tensor([4, 5, 6]), 1),
    "prims.inductor_force_stride_order.default": (_X, [1, 3]),
    "prims._unsafe_index_put_.default": (_X, [None, torch.tensor([0, 2])], torch.ones(3, 2)),
    "prims.fma.default": (_X, _X + 1, _X - 1),
}


def _copied(args: tuple[Any, ...]) -> list[Any]:
    return [arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args]


def _tensors(result: Any) -> tuple[torch.Tensor, ...]:
    return (result,) if isinstance(result, torch.Tensor) else tuple(result)


@pytest.mark.parametrize("target", OPERATORS)
def test_they_compute_what_inductor_defines(target: str) -> None:
    pytest.importorskip("torch._inductor.inductor_prims")
    name = target.split(".")[1]
    if not hasattr(torch.ops.prims, name):
        pytest.skip(f"this torch has no operator {name}")
    expected = _tensors(getattr(torch.ops.prims, name).default(*_copied(_CALLS[target])))
    actual = _tensors(OPERATORS[target](*_copied(_CALLS[target])))
    assert len(actual) == len(expected)
    for mine, theirs in zip(actual, expected, strict=True):
        assert torch.equal(mine, theirs)
        assert mine.stride() == theirs.stride()
    assert (torch.Tag.pointwise in getattr(torch.ops.prims, name).default.tags) == (target in ELEMENTWISE)


def test_a_stride_that_is_right_already_makes_no_copy() -> None:
    assert OPERATORS["prims.inductor_force_stride_order.default"](_X, [4, 1]) is _X


def test_looking_one_up_does_not_import_inductor() -> None:
    before = set(sys.modules)
    for target in OPERATORS:
        assert operator_of(target) is OPERATORS[target]
    assert not {name for name in set(sys.modules) - before if name.startswith("torch._inductor")}
