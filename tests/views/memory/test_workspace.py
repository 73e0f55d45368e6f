from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from aoti_debug.runs.run.memory_meter import MeasuredMemory
from aoti_debug.views.memory.lifetimes import call_memory, workspaces
from tests.views.memory.small_call import EVENTS, KIB, recorded


def test_what_an_operator_allocates_while_it_runs(tmp_path: Path) -> None:
    run = recorded(tmp_path)
    call = call_memory(run.manifest, run.launches, EVENTS)
    second = run.launches[1]
    start = 10**18
    during = start + second.begin_ns + 1
    steps = ((start, KIB), (during - 2, 2 * KIB), (during, 7 * KIB), (during + 1, 2 * KIB))
    found = workspaces(call, MeasuredMemory(steps=steps), start)
    assert found == {1: 5 * KIB}
    counted = replace(call, workspace=found)
    assert (counted.peak, counted.peak_bytes) == (1, 7 * KIB)
    assert counted.taken == (KIB, 7 * KIB, 2 * KIB)
    assert workspaces(call, MeasuredMemory(), start) == {}
