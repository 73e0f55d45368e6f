from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from aoti_debug.base import terminal_cells
from aoti_debug.package.manifest import Certainty, CType, ModelLine, Provenance
from aoti_debug.package.recording.values import Absent, Number, Value
from aoti_debug.runs.rundir.formats.statistics import Statistics
from aoti_debug.runs.show import text
from aoti_debug.runs.show.detail import model_lines, stack_lines, whole_stacks
from aoti_debug.runs.show.text import decode, format_element
from tests.factories import tensor


@pytest.mark.parametrize(
    ("value", "spelled"),
    [
        (tensor(2, 3, dtype="bfloat16", device="cuda:1"), "bfloat16[2,3] cuda:1"),
        (tensor(dtype="float64"), "float64[] cpu"),
        (tensor(kind="sparse_csr"), "float32 sparse_csr cpu"),
        (Number(3, CType.I64), "3"),
        (Number(0.5, CType.F64), "0.5"),
        (Number(True, CType.BOOL), "True"),
        (Number(255, CType.ADDRESS), "0xff"),
        (Absent.NULL, "None"),
        (Absent.UNDEFINED, "an undefined tensor"),
        (Absent.UNSET, "not set yet"),
        (Absent.OPAQUE, "not recorded"),
    ],
)
def test_values(value: Value, spelled: str) -> None:
    assert text.value(value) == spelled


def test_statistics_leave_out_what_is_nought() -> None:
    assert text.statistics(Statistics(0, 0, 0, 0, 0, None, None, 0, 0, 0.0, 0.0)) == ["empty"]
    assert text.statistics(Statistics(2, 2, 0, 0, 0, None, None, 0, 0, 0.0, 0.0)) == ["NaN 2"]
    large = Statistics(2, 0, 0, 0, 0, 0, 2**53 + 1, 0, 1, 4.5e15, 4.5e15)
    assert text.statistics(large)[1] == "max 9007199254740993 at 1"


REAL = ["float16", "bfloat16", "float32", "float64", "float8_e5m2", "float8_e4m3fn", "float8_e4m3fnuz"]
INTEGER = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]


def raw(value: Any) -> bytes:
    return bytes(value.contiguous().flatten().view(torch.uint8).tolist())


@pytest.mark.parametrize("dtype", [*REAL, *INTEGER, "bool"])
def test_elements_are_torchs(dtype: str) -> None:
    value = torch.tensor([0.0, 1.0, 3.5, 100.0]).to(getattr(torch, dtype))
    assert decode(raw(value), dtype) == value.to(torch.float64).tolist()


@pytest.mark.parametrize("dtype", ["complex32", "complex64", "complex128"])
def test_complex_elements(dtype: str) -> None:
    parts = torch.tensor([[1.5, -2.0], [0.0, 4.0]])
    real = {"complex32": torch.float16, "complex64": torch.float32, "complex128": torch.float64}[dtype]
    assert decode(raw(parts.to(real)), dtype) == [1.5 - 2j, 4j]


def test_what_is_not_a_number() -> None:
    (value,) = decode(raw(torch.tensor([math.nan], dtype=torch.bfloat16)), "bfloat16")
    assert math.isnan(value)


@pytest.mark.parametrize(
    ("value", "dtype", "spelled"),
    [
        (0.1234567891, "float32", "0.123457"),
        (0.1234567891, "float64", "0.1234567891"),
        (2**53 + 1, "int64", "9007199254740993"),
        (True, "bool", "True"),
        (1.5 - 2j, "complex64", "1.5-2j"),
        (math.inf, "float32", "inf"),
    ],
)
def test_spelling(value: Any, dtype: str, spelled: str) -> None:
    assert format_element(value, dtype) == spelled


MODEL, BLOCK = "/home/u/model.py", "/home/u/block.py"
TORCH = "/venv/lib/python3.11/site-packages/torch/nn"


def stack(*frames: tuple[str, int, str]) -> str:
    return "\n".join(f'  File "{file}", line {line}, in forward\n    {text}' for file, line, text in frames)


def of(source: Sequence[tuple[str, int, str]], *stacks: str) -> Provenance:
    frames = tuple(ModelLine(file, line, "forward", text) for file, line, text in source)
    return Provenance(Certainty.EXACT, source=frames, stacks=stacks)


NORM = stack((MODEL, 30, "x = self.block(x)"), (BLOCK, 7, "x = self.norm(x)"), (f"{TORCH}/norm.py", 228, "return F.n("))
ADD = stack((MODEL, 30, "x = self.block(x)"), (BLOCK, 9, "return x + y"), (f"{TORCH}/norm.py", 9, "x"))
BOTH = of([(BLOCK, 7, "x = self.norm(x)"), (BLOCK, 9, "return x + y")], NORM, ADD, NORM)


def test_one_line() -> None:
    assert model_lines(of([(BLOCK, 7, "x = self.norm(x)")]), 100) == [
        "  model      /home/u/block.py:7 in forward (exact)",
        "               x = self.norm(x)",
    ]
    assert model_lines(Provenance(Certainty.NONE), 100) == ["  model      line unknown"]


def test_lines_are_grouped_by_file_and_the_first_names_the_place() -> None:
    source = [(BLOCK, 9, "return x + y"), (MODEL, 31, "loss(x)"), (BLOCK, 7, "x = self.norm(x)")]
    assert model_lines(of(source), 100) == [
        "  model      /home/u/block.py:9 in forward (exact)",
        "                7  x = self.norm(x)",
        "                9  return x + y",
        "             /home/u/model.py",
        "               31  loss(x)",
    ]


def test_other_lines_of_the_stacks_are_grouped_by_file_the_models_own_first() -> None:
    assert stack_lines(BOTH, 100) == [
        "  stack      /home/u/model.py",
        "               30  x = self.block(x)",
        "             torch/nn/norm.py",
        "                9  x",
        "              228  return F.n(",
    ]
    assert stack_lines(of([], stack((f"{TORCH}/norm.py", 1, "x"), (MODEL, 30, "y"))), 100)[0].endswith(MODEL)
    assert stack_lines(of([(MODEL, 30, "x")], stack((MODEL, 30, "x"))), 100) == []


def test_many_lines_are_counted() -> None:
    many = of([], stack(*((f"{TORCH}/{n // 6}.py", n, "x") for n in range(20))))
    printed = stack_lines(many, 100)
    assert [line.split()[0] for line in printed if line.endswith("  x")] == [str(n) for n in range(8)]
    assert printed[-1] == "             and 12 more (--all)"


def test_long_lines_are_shortened_on_a_terminal_only() -> None:
    long = of([(BLOCK, 7, "x" * 200)], stack((MODEL, 30, "y" * 200)))
    assert max(map(len, model_lines(long, 80) + stack_lines(long, 80))) == 80
    assert "…" not in "".join(model_lines(long, terminal_cells.UNLIMITED) + stack_lines(long, terminal_cells.UNLIMITED))


def test_stacks_as_they_were_traced() -> None:
    assert whole_stacks(BOTH)[:3] == [
        "  stack",
        f'      File "{MODEL}", line 30, in forward',
        "        x = self.block(x)",
    ]
    assert sum(line == "  stack" for line in whole_stacks(BOTH)) == 3
