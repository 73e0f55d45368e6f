from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aoti_debug.base.native import crash_stacks
from aoti_debug.package.argument_values import Number
from aoti_debug.package.manifest import CType, Form, Kind, Role
from aoti_debug.runs.diagnosis.diagnose import diagnose
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from aoti_debug.runs.rundir.run_json import Exit, ExitKind, RunStage
from aoti_debug.runs.show.verdict import verdict_lines
from tests import factories
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, tensor, triton_kernel
from tests.runs.show.recorded import INFERRED, SEGV, device_fault, long_names


def lines(run: RunDir, width: int = 100) -> list[str]:
    verdict = diagnose(run)
    assert verdict
    return verdict_lines(verdict, width)


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTI_DEBUG_DIR", str(tmp_path))


def test_a_fault_on_the_device(tmp_path: Path) -> None:
    assert lines(device_fault(tmp_path)) == [
        "FAULT invalid memory access on the GPU in triton_poi_fused_0",
        "  in launch 0.1  triton_poi_fused_0",
        "  model    /home/u/model.py:12 in forward",
        "             y = torch.relu(x)",
        "  grid     4 × 1 × 1, 4 warps",
        "  args     in      x     float32[8,32] cuda:0",
        "           out     buf0  float32[8,32] cuda:0",
        "  error    CUDA error 700: an illegal memory access was encountered",
        "  because  the device had completed every launch before 0.1, and not 0.1",
        "  noticed  in 0.5  triton_poi_fused_0",
        "  next     AOTI_DEBUG_LAUNCH=0.1 aoti-debug run m.pt2 --level 1",
        "  next     aoti-debug show 0.1",
    ]


def test_a_range(tmp_path: Path) -> None:
    assert lines(device_fault(tmp_path, every=4)) == [
        "FAULT invalid memory access on the GPU in one of 4 launches, 0.0 to 0.3",
        "  in one of 4 launches:",
        "    0.0  triton_poi_fused_0  model.py:12",
        "    0.1  triton_poi_fused_0  model.py:12",
        "    0.2  triton_poi_fused_0  model.py:12",
        "    0.3  triton_poi_fused_0  model.py:12",
        "  error    CUDA error 700: an illegal memory access was encountered",
        "  because  the device had completed every launch before 0.0; no breadcrumb follows up to 0.3",
        "  noticed  in 0.5  triton_poi_fused_0",
        "  next     AOTI_DEBUG_CRUMB_EVERY=1 aoti-debug run m.pt2",
    ]


@pytest.mark.parametrize("width", [80, 100, 200])
def test_suspects_stand_below_each_other(tmp_path: Path, width: int) -> None:
    verdict = diagnose(device_fault(tmp_path / "fault", every=4))
    assert verdict
    named = replace(verdict, suspects=long_names(tmp_path / "long").launches[:3])
    suspects = [line for line in verdict_lines(named, width) if line.startswith("    0.")]
    assert [line.split()[0] for line in suspects] == ["0.0", "0.1", "0.2"]
    assert max(map(len, suspects)) <= width
    assert len({line.index("  modeling") for line in suspects}) == 1


def crash(base: Path, *names: str, provenance: object = None, exit_: Exit = SEGV, number: str = "int64_t") -> RunDir:
    fields: dict[str, Any] = {} if provenance is None else {"provenance": provenance}
    package = make_manifest(
        site(
            "cpp_fused_0",
            *(arg(name) for name in names),
            arg("ks0", Role.NONE, Form.SCALAR, ctype=number),
            kind=Kind.CPP,
            **fields,
        )
    )
    writer = JournalWriter()
    writer.launch_begin(0, 0, *(tensor(2, dtype="bfloat16") for _ in names), Number(-8, CType.I64))
    return open_run(run_directory(base, package, writer, exit=exit_))


def test_a_crash_with_an_inferred_line_and_a_number(tmp_path: Path) -> None:
    assert lines(crash(tmp_path, "x", provenance=INFERRED)) == [
        "FAULT invalid memory access in cpp_fused_0",
        "  in launch 0.0  cpp_fused_0",
        "  model    /home/u/model.py:20 in forward (inferred)",
        "             t[i] = y",
        "  args     in      x    bfloat16[2] cpu",
        "           int64_t ks0  -8",
        "  error    SIGSEGV (Segmentation fault)",
        "  because  launch 0.0 began and never returned",
        "  next     AOTI_DEBUG_LAUNCH=0.0 aoti-debug run m.pt2 --level 1",
        "  next     aoti-debug show 0.0",
    ]


def test_the_stack_of_the_host(tmp_path: Path) -> None:
    run = crash(tmp_path, provenance=INFERRED)
    (run.path / crash_stacks.STACKS).write_text(
        "thread 1 signal 11 code 1 address 0x8 pc 0x5010 caller 0x0\nframes 1 0x5010 0x5021\n"
    )
    (run.path / crash_stacks.MAPS).write_text(f"5000-6000 r-xp 00000000 00:00 1 /gone/{'l' * 200}.so\n")
    printed = lines(run)
    first, second = printed[7:9]
    assert first.startswith("  stack    lll")
    assert first.endswith("l.so+0x10 (address 0x8)")
    assert second.startswith("           lll")
    assert second.endswith("l.so+0x20")
    assert all(len(line) <= 100 for line in printed)


def test_a_hang_on_the_device_shows_its_grid(tmp_path: Path) -> None:
    package = make_manifest(
        site("loop_kernel_0", arg("x"), kind=Kind.TRITON), kernels=[triton_kernel("loop_kernel")], device="cuda"
    )
    writer = JournalWriter(crumb_every=1)
    writer.call_begin()
    writer.launch_begin(0, 0, tensor(8, device="cuda:0"))
    writer.grid(0, 0, (16, 2, 1), 0x1000, 0x2000, 8)
    writer.launch_end(0)
    exit_ = Exit(ExitKind.TIMEOUT, "no progress for 30 s", RunStage.SYNCHRONISE)
    run = open_run(run_directory(tmp_path, package, writer, exit=exit_, crumbs=factories.crumbs(0)))
    assert lines(run)[:6] == [
        "HANG loop_kernel_0 did not end: no progress for 30 s",
        "  in launch 0.0  loop_kernel_0",
        "  model    /home/u/model.py:12 in forward",
        "             y = torch.relu(x)",
        "  grid     loop_kernel 16 × 2 × 1, 4 warps",
        "  args     in      x  float32[8] cuda:0",
    ]


def test_a_killed_process(tmp_path: Path) -> None:
    exit_ = Exit(ExitKind.ABORTED, "killed by SIGKILL", RunStage.CALL, "SIGKILL")
    assert lines(crash(tmp_path, exit_=exit_))[:2] == [
        "FAULT the process was ended by SIGKILL while cpp_fused_0 ran",
        "  while launch 0.0  cpp_fused_0 was running",
    ]


def test_a_long_type_of_a_number_does_not_touch_its_name(tmp_path: Path) -> None:
    found = lines(crash(tmp_path, "x", provenance=INFERRED, number="const int64_t"))
    assert found[4:6] == ["  args     in            x    bfloat16[2] cpu", "           const int64_t ks0  -8"]


def test_many_arguments_are_cut_short(tmp_path: Path) -> None:
    printed = lines(crash(tmp_path, *(f"buf{n}" for n in range(20))))
    assert sum("bfloat16[2]" in line for line in printed) == 12
    assert "           and 9 more: aoti-debug show 0.0" in printed


def test_nothing_to_name(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.call_begin()
    run = open_run(run_directory(tmp_path, make_manifest(), writer, exit=SEGV))
    assert lines(run) == [
        "FAULT invalid memory access before the first launch",
        "  in no launch that can be named",
        "  error    SIGSEGV (Segmentation fault)",
        "  because  it happened before the first launch",
        "  next     aoti-debug run m.pt2 --level 1",
    ]


def test_a_message_of_many_lines_shows_its_first(tmp_path: Path) -> None:
    exit_ = Exit(ExitKind.FAULT, "\n ValueError: no\nAt:\n  x.py(3)", RunStage.CALL, exception="ValueError")
    run = open_run(run_directory(tmp_path, make_manifest(), JournalWriter(), exit=exit_))
    assert lines(run)[0] == "FAULT ValueError: no"


def test_long_lines_are_wrapped(tmp_path: Path) -> None:
    printed = lines(crash(tmp_path, "a_name_of_more_than_thirty_columns"), width=60)
    assert printed[4:6] == [
        "  args     in      a_name_of_more_than_thirty_columns",
        "                   bfloat16[2] cpu",
    ]
