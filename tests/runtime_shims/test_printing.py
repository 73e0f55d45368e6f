"""The text of levels 2 and 3."""

from __future__ import annotations

import math
import os
import re
import threading
from collections.abc import Callable

import pytest
import torch

from tests.runtime_shims.journal_decoder import Journal
from tests.runtime_shims.reference_hash import content_hash
from tests.runtime_shims.runtime_library import IN, INOUT, OUT, UNKNOWN, Handle, Runtime, Slot

Load = Callable[..., Runtime]
Decode = Callable[[], Journal]


@pytest.fixture
def printed(load: Load, capfd: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    def printed_(*tensors: torch.Tensor, role: int = IN, name: str = "x", **variables: object) -> list[str]:
        runtime = load(**({"LEVEL": 2, "PHASE": "before"} | variables))
        slots = (Slot(name if i == 0 else f"{name}{i}", role=role, value=i) for i in range(len(tensors)))
        site = runtime.site(0, "cpp_fused_0", *slots)
        given = [Handle(tensor) for tensor in tensors]
        with runtime.call(), runtime.launch(site, *(handle.value for handle in given)):
            pass
        runtime.unload()
        return [re.sub(r"#[0-9a-f]{8}$", "#HASH", line) for line in capfd.readouterr().err.splitlines()]

    return printed_


Printed = Callable[..., list[str]]


def test_level_2(printed: Printed) -> None:
    assert printed(torch.tensor([[1.0, -2.5], [0.0, 3.0]])) == [
        "0.0 before cpp_fused_0",
        "0.0   in x  float32[2,2]  cpu  #HASH",
        "0.0       min -2.5 at 1  max 3 at 3  mean 0.375  std 1.98037  zeros 1",
        "0.0       [1, -2.5, 0, 3]",
        "0.0 after  cpp_fused_0",
    ]


def test_counts_that_are_not_zero(printed: Printed) -> None:
    values = torch.ones(100)
    values[3], values[7], values[8], values[50] = math.nan, math.inf, math.inf, -math.inf
    assert printed(values)[2] == "0.0       min 1 at 0  max 1 at 0  mean 1  std 0  NaN 1  +Inf 2  -Inf 1"
    assert printed(torch.full((70,), math.nan), PHASE="before")[2] == "0.0       NaN 70"


def test_exact_numbers(printed: Printed) -> None:
    lines = printed(torch.tensor([2**53 + 1, -(2**63)]), torch.tensor([1e300, 1 / 3], dtype=torch.float64))
    assert lines[2] == f"0.0       min {-(2**63)} at 1  max {2**53 + 1} at 0"
    assert lines[3] == "0.0         mean -4.60718e+18  std 4.61619e+18"
    assert lines[4] == f"0.0       [{2**53 + 1}, {-(2**63)}]"
    assert lines[6] == "0.0       min 0.333333333333 at 1  max 1e+300 at 0  mean 5e+299  std 5e+299"
    assert lines[7] == "0.0       [1e+300, 0.333333333333]"


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (torch.tensor([True, False]), "[True, False]"),
        (torch.tensor([255, 0], dtype=torch.uint8), "[255, 0]"),
        (torch.tensor([-128], dtype=torch.int8), "[-128]"),
        (torch.tensor([2**64 - 1], dtype=torch.uint64), "[18446744073709551615]"),
        (torch.tensor([0.1], dtype=torch.bfloat16), "[0.100098]"),
        (torch.tensor([6e-8, 65504], dtype=torch.float16), "[5.96046e-08, 65504]"),
        (torch.tensor([1 - 2j, complex(0, math.inf)]), "[1-2j, 0+infj]"),
        (torch.tensor([448.0, -0.5]).to(torch.float8_e4m3fn), "[448, -0.5]"),
        (torch.tensor([2.0, 0.5]).to(torch.float8_e8m0fnu), "[2, 0.5]"),
        (torch.tensor(math.nan), "[nan]"),
    ],
)
def test_values(printed: Printed, tensor: torch.Tensor, text: str) -> None:
    assert printed(tensor)[-2] == f"0.0       {text}"


def test_few_values_are_shown_and_kept(printed: Printed, journal: Decode) -> None:
    many, few = torch.randn(65), torch.arange(64.0).reshape(8, 8).t()
    lines = printed(many, few)
    kept = journal().of("tensor_stats")
    assert kept[0].tail == b""
    assert kept[1].tail == few.contiguous().numpy().tobytes()
    text = " ".join(line.removeprefix("0.0").strip() for line in lines[5:] if "cpp_fused" not in line)
    assert text.endswith("[" + ", ".join(f"{v:g}" for v in few.contiguous().view(-1).tolist()) + "]")


def test_80_columns(printed: Printed) -> None:
    lines = printed(torch.randn(64) * 1e-30, torch.randn(2, 3, 4, 5, 6, 1), name="n" * 300)
    assert max(map(len, lines)) <= 80
    assert max(map(len, lines)) > 70
    assert any("n" * 20 + "..." + "n" * 20 in line for line in lines)


def test_roles_and_phases(printed: Printed) -> None:
    x = torch.ones(70)
    shown = {
        role: [line for line in printed(x, role=role, PHASE="") if " x " in line or "before" in line or "after" in line]
        for role in (IN, OUT, INOUT, UNKNOWN)
    }
    before, after = "0.0 before cpp_fused_0", "0.0 after  cpp_fused_0"
    line = "0.0   {} x  float32[70]  cpp  #HASH".replace("cpp", "cpu")
    assert shown[IN] == [before, line.format("in"), after]
    assert shown[OUT] == [before, after, line.format("out")]
    assert shown[INOUT] == [before, line.format("in-out"), after, line.format("in-out")]
    assert shown[UNKNOWN] == [before, line.format("unknown"), after, line.format("unknown")]


def test_memory_that_nothing_has_written_is_not_initialised(load: Load, journal: Decode) -> None:
    y = Handle(torch.full((70,), math.nan))
    runtime = load(LEVEL=2)
    runtime.site(0, "cpp_fused_0", Slot("y", role=INOUT, fresh=1))
    runtime.site(1, "cpp_fused_1", Slot("y", role=INOUT))
    with runtime.call():
        for site in range(2):
            with runtime.launch(site, y.value):
                pass
    runtime.unload()
    stats = journal().of("tensor_stats")
    assert [(s.phase, s.flags, s.n_nan) for s in stats] == [(0, 1, 0), (1, 0, 70), (0, 0, 70), (1, 0, 70)]


def test_output_before_its_launch_is_uninitialised(printed: Printed, journal: Decode) -> None:
    lines = printed(torch.full((70,), math.nan), role=OUT, PHASE="both")
    assert lines[1] == "0.0   out x  float32[70]  cpu  not initialised"
    before, after = journal().of("tensor_stats")
    assert (before.flags, before.phase, before.n_nan, before.numel) == (1, 0, 0, 70)
    assert (after.flags, after.phase, after.n_nan) == (0, 1, 70)


@pytest.mark.parametrize("transposed", [False, True])
def test_a_tensor_that_changes_between_launches_is_measured_anew(load: Load, journal: Decode, transposed: bool) -> None:
    runtime = load(LEVEL=2, PRINT="none")
    site = runtime.site(0, "k", Slot("x", role=IN))
    x = torch.linspace(0, 1, 5000)
    handle = Handle(x.view(50, 100).t() if transposed else x)
    with runtime.call():
        for change in (None, None, (4999, 7.0), (0, math.nan)):
            if change is not None:
                x[change[0]] = change[1]
            with runtime.launch(site, handle.value):
                pass
    runtime.unload()
    found = [(s.max_index, s.n_nan, s.hash) for s in journal().of("tensor_stats")]
    assert [(index, nan) for index, nan, _ in found] == [(4999, 0), (4999, 0), (4999, 0), (4999, 1)]
    expected = (x.view(50, 100).t() if transposed else x).contiguous().numpy().tobytes()
    assert found[-1][2] == content_hash(expected)
    assert found[0] == found[1]
    assert len({content for _, _, content in found}) == 3


def test_packed_tensor_is_named_and_skipped(printed: Printed) -> None:
    lines = printed(torch.zeros(2, 2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2))
    assert lines[1] == "0.0   in x  float4_e2m1fn_x2[2,2]  cpu  not read: float4_e2m1fn_x2 is packed"


def test_empty_tensor(printed: Printed) -> None:
    assert printed(torch.empty(0, 3))[1:3] == ["0.0   in x  float32[0,3]  cpu  #HASH", "0.0       empty"]


def test_level_3_with_iterations_and_constants(load: Load, capfd: pytest.CaptureFixture[str]) -> None:
    runtime = load(LEVEL=3)
    site = runtime.site(0, "triton_poi_fused_0")
    with runtime.call(kind=1):
        runtime.lib.h_loop_enter()
        runtime.lib.h_loop_next()
        runtime.lib.h_loop_enter()
        with runtime.launch(site):
            pass
    runtime.unload()
    assert capfd.readouterr().err.splitlines() == [
        "c0.0 before triton_poi_fused_0 iteration 1.0",
        "c0.0 after  triton_poi_fused_0 iteration 1.0",
    ]


def test_lines_carry_the_thread_where_there_are_several(load: Load, capfd: pytest.CaptureFixture[str]) -> None:
    runtime = load(LEVEL=2)
    site = runtime.site(0, "k", Slot("x"))
    handle = Handle(torch.ones(1))

    def work() -> None:
        with runtime.call(), runtime.launch(site, handle.value):
            pass

    work()
    alone = capfd.readouterr().err.splitlines()
    assert all(line.startswith("0.0 ") and "[" not in line[:6] for line in alone)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    together = capfd.readouterr().err.splitlines()
    assert all(re.match(rf"1\.0 \[(?!{os.getpid()}\b)\d+\] ", line) for line in together)
    assert len(together) == len(alone)
    runtime.unload()


def test_standard_error_whose_reader_is_gone(load: Load, journal: Decode) -> None:
    reader, writer = os.pipe()
    saved = os.dup(2)
    os.dup2(writer, 2)
    os.close(writer)
    os.close(reader)
    try:
        runtime = load(LEVEL=2)
        site = runtime.site(0, "k", Slot("x"))
        handle = Handle(torch.ones(1))
        with runtime.call(), runtime.launch(site, handle.value):
            pass
        runtime.unload()
    finally:
        os.dup2(saved, 2)
        os.close(saved)
    assert len(journal().of("launch_end")) == 1
