"""Prints of models: the runtime writes what Python writes, in order."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from aoti_debug.package.printing import print_operator, template
from tests.runtime_shims.journal_decoder import Journal
from tests.runtime_shims.runtime_library import Handle, Runtime, handles

Load = Callable[..., Runtime]

DTYPES = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
    *(torch.float8_e5m2, torch.float8_e4m3fn),
)
TENSORS = (
    torch.tensor([1.0, -2.0, 0.0, 3e8]),
    torch.tensor([0.5, -0.0, 1e-5]),
    torch.tensor([[1.5, 2.25], [1000.5, -3.125]]),
    torch.tensor([math.nan, math.inf, -math.inf, 1.0]),
    torch.tensor([math.nan, 0.0]),
    torch.tensor([1e38, 1e-38, -1.0]),
    torch.zeros(3, 0, 2),
    torch.zeros(0),
    torch.arange(24.0).reshape(2, 3, 4) / 7,
    torch.arange(100.0) / 3,
    torch.arange(1001.0),
    torch.linspace(-5, 5, 40000).reshape(10, 400, 10),
    torch.linspace(-5, 5, 40000).reshape(400, 100).t()[::2],
    torch.arange(5000).reshape(2500, 2),
    torch.tensor(2.5),
    torch.tensor(-7),
    torch.tensor(True),
    torch.tensor(1 - 2j),
    torch.tensor(2j),
    torch.tensor(1e22, dtype=torch.float64),
    torch.tensor(1e-5, dtype=torch.float64),
    torch.tensor([1 + 2j, -3.5 - 0.25j, 1e5 + 0j]),
    torch.arange(3000).to(torch.complex64) * 1j,
    torch.tensor(123456789012, dtype=torch.int64),
)


def printed(runtime: Runtime, text: str, *tensors: torch.Tensor, integers: tuple[int, ...] = ()) -> None:
    kept = [Handle(tensor) for tensor in tensors]
    if hasattr(runtime.lib, "f_mark"):
        for handle in kept:
            runtime.lib.f_mark(handle.pointer)
    numbers = (ctypes.c_int64 * max(len(integers), 1))(*integers)
    safe = template.c_safe(text).encode()
    assert runtime.lib.h_print(safe, handles(*kept), len(kept), numbers, len(integers)) == 0


@pytest.mark.parametrize("tensor", TENSORS)
def test_a_tensor_is_written_as_torch_writes_it(
    load: Load, capfd: pytest.CaptureFixture[str], tensor: torch.Tensor
) -> None:
    printed(load(), "{t0} {t0!r} é", tensor)
    assert capfd.readouterr().out == f"{tensor} {tensor!r} é\n"


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(load: Load, capfd: pytest.CaptureFixture[str], dtype: torch.dtype) -> None:
    runtime = load()
    small = torch.tensor([[0.0, 1.0, 2.5], [3.0, 100.0, 7.0]]).to(dtype)
    printed(runtime, "{t0} {t1}", small, small[0, 1])
    expected = f"{small} {small[0, 1]}\n"
    assert capfd.readouterr().out == expected


@pytest.mark.parametrize(
    "spec", ["8.3f", "<10.1e", "^12g", "+.2f", "08.2f", "*>9.0f", ".3G", "12.1%", "=+8.1f", "20", " .1E"]
)
@pytest.mark.parametrize("value", [0.0, -1.5, 123456.789, 1e-7, math.inf, math.nan])
def test_formats_of_floats(load: Load, capfd: pytest.CaptureFixture[str], spec: str, value: float) -> None:
    tensor = torch.tensor(value, dtype=torch.float64)
    printed(load(), f"{{t0:{spec}}}", tensor)
    assert capfd.readouterr().out == f"{tensor:{spec}}\n"


@pytest.mark.parametrize("spec", ["", "5d", "<6", "+", "05d", "^9", "=+6", ".2f", "e"])
def test_formats_of_integers(load: Load, capfd: pytest.CaptureFixture[str], spec: str) -> None:
    text = f"{{i0:{spec}}} {{i1:{spec}}} {{t0:{spec}}} {{t1:{spec}}}" if spec else "{i0} {i1} {t0} {t1}"
    tensors = (torch.tensor(12), torch.tensor(True))
    printed(load(), text, *tensors, integers=(42, -7))
    values = {"i0": 42, "i1": -7, "t0": tensors[0], "t1": tensors[1]}
    assert capfd.readouterr().out == text.format(**values) + "\n"


def test_a_print_is_in_the_journal(
    load: Load, journal: Callable[[], Journal], capfd: pytest.CaptureFixture[str]
) -> None:
    runtime = load()
    runtime.site(0, "aoti_torch_cpu_print_")
    with runtime.call(), runtime.launch(0):
        printed(runtime, "x {t0}", torch.tensor(1.5))
    printed(runtime, "outside")
    runtime.unload()
    assert capfd.readouterr().out == "x 1.5\noutside\n"
    (record,) = journal().of("print")
    assert (record.call, record.launch, record.text) == (0, 0, "x 1.5")


def test_a_device_prints_in_order(
    load: Load, device_library: Path, journal: Callable[[], Journal], capfd: pytest.CaptureFixture[str]
) -> None:
    runtime = load(device_library)
    runtime.site(0, "aoti_torch_cuda_print_")
    x = torch.arange(5000.0).reshape(50, 100)
    with runtime.call(stream=1):
        for number in range(100):
            with runtime.launch(0):
                printed(runtime, "{i0} {t0}", x, integers=(number,))
    runtime.unload()
    words = str(x).removesuffix(")") + ", device='cuda:0')"
    assert capfd.readouterr().out == "".join(f"{number} {words}\n" for number in range(100))
    assert len(journal().of("print")) == 100


def test_the_operator_prints_in_eager(capfd: pytest.CaptureFixture[str]) -> None:
    print_operator.print_("{} {x} {:.2f}", 3, 1.5, x=torch.ones(2))
    assert capfd.readouterr().out == "3 tensor([1., 1.]) 1.50\n"
