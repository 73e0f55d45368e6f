from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.app.cli import main
from aoti_debug.runs.run import memory_meter
from aoti_debug.runs.run.memory_meter import CallCounters, LaunchHeap, MeasuredMemory
from aoti_debug.views.memory.lifetimes import call_memory
from aoti_debug.views.memory.storage_timeline import CallMemory, KeptMemory, Memory, growth_per_call, kept_memory
from tests.built_model import build_model
from tests.factories import tensor
from tests.views.memory.small_call import EVENTS, KIB, recorded


def call(base: Path, number: int = 0, made_by: str = "") -> CallMemory:
    """A call whose first launch writes buf0, at an address that depends on the number."""
    run = recorded(base / str(number), buf0=tensor(256, data_ptr=0x20000 + number * 0x1000, storage_bytes=KIB))
    found = call_memory(run.manifest, run.launches, EVENTS)
    storages = tuple(replace(s, made_by=made_by if s.name == "buf0" else "") for s in found.storages)
    return replace(found, storages=storages)


def measured(step: int, *launches: LaunchHeap, calls: int = 8) -> MeasuredMemory:
    """Calls before each of which so much more is allocated; the first two fill caches."""
    heaps = [0, 9000 * KIB, *(10_000 * KIB + step * number for number in range(calls - 2))]
    return MeasuredMemory(tuple(CallCounters(1, 1, heap=heap) for heap in heaps), launches=launches)


def test_what_is_allocated_at_each_call() -> None:
    assert growth_per_call(measured(3000)) == 3000
    assert growth_per_call(measured(0)) == 0
    assert growth_per_call(measured(3000, calls=3)) == 0
    assert growth_per_call(MeasuredMemory()) == 0


def test_the_launch_that_keeps_memory(tmp_path: Path) -> None:
    memory = Memory((call(tmp_path),), ())
    heaps = (LaunchHeap(0, 48, 0, 5), LaunchHeap(1, 3000, 2900, 5), LaunchHeap(2, 900, 0, 5))
    (kept,) = kept_memory(memory, measured(3000, *heaps))
    assert (kept.launch.id, kept.bytes, kept.calls, kept.is_measured) == ("0.1", 3000, 5, True)
    assert kept_memory(memory, measured(0, *heaps)) == ()


def test_results_are_left_out(tmp_path: Path) -> None:
    memory = Memory((call(tmp_path, made_by="mylib::keep"),), ())
    only_result = LaunchHeap(0, KIB + 400, KIB + 400, 5)
    assert kept_memory(memory, measured(4000, only_result)) == ()
    (kept,) = kept_memory(memory, measured(4000, replace(only_result, bytes=5 * KIB, least=5 * KIB)))
    assert kept.bytes == 4 * KIB


def test_what_a_later_launch_frees_is_not_kept(tmp_path: Path) -> None:
    assert kept_memory(Memory((call(tmp_path),), ()), measured(1000, LaunchHeap(1, 9000, 9000, 5))) == ()


def test_a_result_that_is_never_freed_may_be_kept(tmp_path: Path) -> None:
    calls = tuple(call(tmp_path, number, "mylib::keep") for number in range(5))
    expected = KeptMemory(calls[-1].launches[0], KIB, 5, is_measured=False)
    assert kept_memory(Memory(calls, ()), measured(KIB)) == (expected,)
    assert kept_memory(Memory(calls[:4], ()), measured(KIB)) == ()
    assert kept_memory(Memory((*calls, calls[0]), ()), measured(KIB)) == ()


def test_the_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = recorded(tmp_path, calls=8)
    memory_meter.write_memory(measured(40 * KIB, LaunchHeap(1, 40 * KIB, 40 * KIB, 5)), run.path)
    assert main.run(["memory", str(run.path)]) == 1, "a launch keeps memory"
    assert (
        "  keeps    40.0 KiB per call in 7.1 cpp_fused_1, model.py:12: more was allocated after it than before it, its "
        "results left out, in each of 5 calls"
    ) in capsys.readouterr().out.splitlines()
    memory_meter.write_memory(measured(40 * KIB), run.path)
    assert main.run(["memory", str(run.path)]) == 0
    assert "  keeps    no launch was seen to keep it" in capsys.readouterr().out.splitlines()


@pytest.mark.slow
def test_operators_that_keep_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    from tests import growing_ops

    with torch.no_grad():
        program = torch.export.export(growing_ops.Growing(), growing_ops.inputs())
    package = build_model(program, tmp_path, {}, "tests.growing_ops").package
    assert main.run(["memory", str(package), "--calls", "8", "--out", str(tmp_path / "out")]) == 1
    keeps = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("  keeps")]
    keeps = [words for words in keeps if words[1] != "it"]  # it may be another: what the allocator adds varies
    assert [(round(float(words[1])), words[6]) for words in keeps] == [(39, "7.5"), (16, "7.3")]
