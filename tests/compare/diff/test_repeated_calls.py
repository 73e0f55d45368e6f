from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from click.testing import CliRunner

from aoti_debug.app.cli.main import group
from aoti_debug.base.abi import Level
from aoti_debug.base.errors import RunDirError
from aoti_debug.compare.diff.pair_launches import launches_by_call
from aoti_debug.compare.diff.repeated_calls import (
    CallPairs,
    DifferenceKind,
    FirstDifference,
    RepeatedCalls,
    adds_to_unwritten,
    compare_calls,
    draws_numbers,
    overlapping,
)
from aoti_debug.compare.diff.text import repeat_lines
from aoti_debug.package.manifest import Kind, Role
from aoti_debug.package.program_graphs import FORMAT, MODEL, Graph, Node, NodeKind, Reference
from aoti_debug.runs.rundir import run_directory
from aoti_debug.runs.rundir.run_directory import RunDir
from tests.compare.chains import attach, chain
from tests.factories import arg, triton_kernel
from tests.triage.recorder import Recorder

X = torch.arange(4.0)


def compared(base: Path, results: list[list[torch.Tensor]], *, state: bool = False, source: str = "") -> RepeatedCalls:
    """Calls of two launches, the second of which reads what the first one wrote.

    Args:
        results: what the two launches wrote, of each call.
        state: the first launch reads another state in each call.
    """
    kernels = (replace(triton_kernel("triton_first"), source=source),) if source else ()
    recorder = Recorder(base, inputs=("x",), kernels=kernels)
    for call, (first, second) in enumerate(results):
        recorder.journal.call_begin(call=call)
        recorder.launch("triton_first", {"x": X + call if state else X}, {"buf0": first}, call=call)
        recorder.launch("triton_second", {"buf0": first}, {"buf1": second}, call=call)
        recorder.journal.call_end(launches=2, call=call)
    recorder.journal.run_end()
    return compare_calls(recorder.run())


def test_calls_that_repeat(tmp_path: Path) -> None:
    found = compared(tmp_path, [[X, X + 1]] * 3)
    assert (found.calls, found.launches, found.changed_state) == (3, (), 0)
    assert repeat_lines(found) == ["REPEATABLE in 3 calls: equal bytes from equal bytes"]


def test_the_launch_that_does_not_repeat_and_not_its_reader(tmp_path: Path) -> None:
    found = compared(tmp_path, [[X, X + 1], [X, X + 1], [X * 2, X * 2 + 1], [X * 3, X * 3 + 1]])
    (only,) = found.launches
    assert (only.launch.id, only.calls) == ("0.0", (2, 3))
    assert (found.changed_state, found.following) == (0, 1)
    lines = repeat_lines(found)
    assert lines[0] == "NOT REPEATABLE from 0.0 triton_first on"
    assert lines[1] == "0.0 triton_first read the same inputs and wrote different results in 2 of 3 later calls"
    assert (
        "  may be   a race, or a read of memory that nothing has written: its operator and its source do not say"
        in lines
    )
    assert lines[-2] == "next: aoti-debug triage --guards looks for uninitialised reads"
    assert lines[-1].endswith("then repro.py --repeat 100 look for races")


def test_a_state_that_changes_is_no_cause(tmp_path: Path) -> None:
    found = compared(tmp_path, [[X, X + 1], [X + 1, X + 2]], state=True)
    assert (found.launches, found.changed_state, found.following) == ((), 1, 1)
    assert repeat_lines(found)[1] == "note: 1 launch read an input or a state that an earlier call has changed"


def test_atomic_additions_are_told(tmp_path: Path) -> None:
    source = "def triton_first(in_ptr0, out_ptr0):\n    tl.store(out_ptr0, 0)\n    tl.atomic_add(out_ptr0 + x0, tmp1)\n"
    found = compared(tmp_path, [[X, X + 1], [X * 2, X * 2 + 1]], source=source)
    assert found.launches[0].causes == ("atomics: the order of its additions may change",)
    assert "  may be   atomics: the order of its additions may change" in repeat_lines(found)


def test_threads_may_race(tmp_path: Path) -> None:
    source = "void triton_first(float* out_ptr0) {\n    #pragma omp parallel num_threads(2)\n}\n"
    found = compared(tmp_path, [[X, X + 1], [X * 2, X * 2 + 1]], source=source)
    assert found.launches[0].causes == ("threads: they compute parts of it, and may race",)
    assert repeat_lines(found)[-1].endswith("then repro.py --repeat 100 look for races")


def test_a_custom_operator_may_have_a_state_of_its_own(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, inputs=("x",))
    for call in range(2):
        recorder.journal.call_begin(call=call)
        recorder.launch("mine", {"x": X}, {"buf0": X + call}, op="mine::noisy.default", kind=Kind.PROXY, call=call)
        recorder.journal.call_end(launches=1, call=call)
    recorder.journal.run_end()
    found = compare_calls(recorder.run())
    (only,) = found.launches
    assert [cause.partition(":")[0] for cause in only.causes] == [
        "a generator or a state of its own",
        "a race, or a read of memory that nothing has written, in that operator",
    ]
    assert not only.is_explained
    assert repeat_lines(found)[-1].endswith("then repro.py --repeat 100 look for races")


@pytest.mark.parametrize(("results", "named"), [(("buf0", "buf1"), []), (("buf1",), ["0.0"])])
def test_a_result_that_nothing_uses_may_change_beside_others(
    results: Sequence[str], named: list[str], tmp_path: Path
) -> None:
    recorder = Recorder(tmp_path, inputs=("x",))
    for call in range(2):
        recorder.journal.call_begin(call=call)
        written = {"buf0": X * 2, "buf1": X + call}
        recorder.launch("attention", {"x": X}, {name: written[name] for name in results}, call=call, unread=("buf1",))
        recorder.journal.call_end(launches=1, call=call)
    recorder.journal.run_end()
    assert [found.launch.id for found in compare_calls(recorder.run()).launches] == named


ATTENTION = "aten._scaled_dot_product_flash_attention_for_cpu.default"
READ = {"node": "x"}


@pytest.mark.parametrize(
    ("target", "args", "is_random"),
    [
        ("aten.rand_like.default", (READ,), True),
        ("prims.inductor_seeds.default", (), True),
        ("prims.inductor_lookup_seed.default", (READ, 0), True),
        ("prims.inductor_force_stride_order.default", (READ, [1]), False),
        (ATTENTION, (READ, READ, READ), False),
        (ATTENTION, (READ, READ, READ, 0.5), True),
    ],
)
def test_an_operator_that_may_draw_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, args: tuple[object, ...], *, is_random: bool
) -> None:
    """The package has the graph, which says whether attention has dropout; without the graph it may."""
    run = chain(tmp_path, ("aten.sin.default",))
    (launch,) = run.launches
    provenance = replace(launch.site.provenance, post_grad_nodes=("drawn",))
    site = replace(launch.site, op=target, provenance=provenance)
    monkeypatch.setattr(type(run.manifest), "operator", lambda *_: SimpleNamespace(random=True))
    assert draws_numbers(replace(site, provenance=replace(provenance, post_grad_nodes=())), run)
    graph = Graph("", MODEL, (Node("drawn", NodeKind.CALL, target, args),), ())
    attach(run.path, Reference(FORMAT, torch.__version__, (graph,)))
    assert draws_numbers(site, run) is is_random
    monkeypatch.setattr(type(run.manifest), "operator", lambda *_: None)
    assert not draws_numbers(site, run)


@pytest.mark.parametrize(("node", "is_random"), [("inductor_random_default_1", True), ("random_table", False)])
def test_a_kernel_that_draws_numbers(tmp_path: Path, node: str, *, is_random: bool) -> None:
    run = chain(tmp_path, ("aten.sin.default",))
    site = run.launches[0].site
    drawn = replace(site, provenance=replace(site.provenance, post_grad_nodes=("add", node)))
    assert draws_numbers(drawn, run) is is_random


def test_atomics_explain_nothing_where_memory_may_be_unwritten(tmp_path: Path) -> None:
    source = "def triton_first(in_ptr0, out_ptr0):\n    tl.store(out_ptr0, 0)\n    tl.atomic_add(out_ptr0 + x0, tmp1)\n"
    found = compared(tmp_path, [[X, X + 1], [X * 2, X * 2 + 1]], source=source)
    (only,) = found.launches
    assert only.is_explained
    assert not any(line.startswith("next: ") for line in repeat_lines(found))
    fresh = "memory that nothing has written: it may read buf0 before it writes there"
    both = replace(only, causes=(fresh, *only.causes))
    assert not both.is_explained
    assert "next: aoti-debug triage --guards looks for uninitialised reads" in repeat_lines(
        replace(found, launches=(both,))
    )


def test_a_run_of_one_call(tmp_path: Path) -> None:
    with pytest.raises(RunDirError, match="has no second call"):
        compared(tmp_path, [[X, X]])


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--repeat", "3", "--calls", "2"), "--repeat and --calls exclude each other"),
        (("--repeat", "3", "--level", "3"), "--repeat compares hashes, and level 3 records none"),
        (("--repeat", "3", "--launch", "0.3"), "--repeat compares all launches"),
    ],
)
def test_wrong_usage(words: tuple[str, ...], problem: str) -> None:
    result = CliRunner().invoke(group, ["run", "package.pt2", *words])
    assert problem in str(result.exception)


def test_a_package(faulty_package: Path, tmp_path: Path) -> None:
    words = ["run", str(faulty_package), "--repeat", "3", "--out", str(tmp_path / "runs")]
    result = CliRunner().invoke(group, words)
    assert result.exit_code == 0, result.output
    assert "REPEATABLE in 3 calls" in result.output
    assert run_directory.open_run(tmp_path / "runs" / "latest").level == Level.HASH


INPUT_X = torch.arange(4.0)
RIGHT = {"x": INPUT_X, "buf0": INPUT_X + 1, "read": INPUT_X + 1, "buf1": INPUT_X + 2}


def recorded(base: Path, values: Mapping[str, torch.Tensor]) -> RunDir:
    """A run of one call: a launch that writes buf0 from x, and one that reads that and writes buf1."""
    base.mkdir()
    recorder = Recorder(base, inputs=("x",), outputs=("buf1",))
    recorder.journal.call_begin()
    recorder.launch("first", {"x": values["x"]}, {"buf0": values["buf0"]})
    recorder.launch("second", {"buf0": values["read"]}, {"buf1": values["buf1"]})
    recorder.journal.call_end(launches=2)
    recorder.journal.run_end()
    return recorder.run()


def difference(base: Path, **changed: torch.Tensor) -> FirstDifference | None:
    alone, together = recorded(base / "alone", RIGHT), recorded(base / "together", {**RIGHT, **changed})
    calls = [next(iter(launches_by_call(run).values())) for run in (alone, together)]
    return CallPairs(alone, together).first_difference(calls[0], calls[1])


def test_equal_calls(tmp_path: Path) -> None:
    assert difference(tmp_path) is None


def test_a_launch_that_writes_other_values_and_not_its_reader(tmp_path: Path) -> None:
    found = difference(tmp_path, buf0=INPUT_X, read=INPUT_X, buf1=INPUT_X + 1)
    assert found is not None
    assert (found.kind, found.launch.id, found.names) == (DifferenceKind.WROTE, "0.0", ("buf0",))
    assert found.looked_after


def test_memory_that_changes_between_two_launches(tmp_path: Path) -> None:
    found = difference(tmp_path, read=INPUT_X, buf1=INPUT_X + 1)
    assert found is not None
    assert (found.kind, found.launch.id, found.names) == (DifferenceKind.READ, "0.1", ("buf0",))
    assert found.writer is not None
    assert found.writer.id == "0.0"


def test_an_input_that_changes_while_the_launch_runs(tmp_path: Path) -> None:
    alone = recorded(tmp_path / "alone", RIGHT)
    base = tmp_path / "together"
    base.mkdir()
    recorder = Recorder(base, inputs=("x",), outputs=("buf1",))
    recorder.journal.call_begin()
    recorder.launch("first", {"x": INPUT_X}, {"buf0": INPUT_X}, read_after={"x": INPUT_X + 3})
    recorder.launch("second", {"buf0": INPUT_X}, {"buf1": INPUT_X + 1})
    recorder.journal.call_end(launches=2)
    recorder.journal.run_end()
    calls = [next(iter(launches_by_call(run).values())) for run in (alone, recorder.run())]
    found = CallPairs(alone, recorder.run()).first_difference(calls[0], calls[1])
    assert found is not None
    assert (found.kind, found.launch.id, found.names) == (DifferenceKind.MEANWHILE, "0.0", ("x",))


def test_an_input_that_differs(tmp_path: Path) -> None:
    found = difference(tmp_path, x=INPUT_X + 5, buf0=INPUT_X + 6, read=INPUT_X + 6, buf1=INPUT_X + 7)
    assert found is not None
    assert (found.kind, found.launch.id, found.names, found.writer) == (DifferenceKind.GIVEN, "0.0", ("x",), None)


def together(base: Path) -> RunDir:
    """A call of thread 1, and later one of thread 2."""
    recorder = Recorder(base, inputs=("x",), outputs=("buf0",))
    journal = recorder.journal
    for call, (thread, begin, begun) in enumerate([(1, 1_000, INPUT_X), (2, 100_000, INPUT_X + 1)]):
        journal.thread, journal.time_ns = thread, begin
        journal.call_begin(call=call)
        recorder.launch("scratch", {"x": INPUT_X}, {"buf0": begun}, call=call)
        journal.call_end(launches=1, call=call)
    journal.run_end()
    return recorder.run()


def test_launches_of_other_threads_at_a_time(tmp_path: Path) -> None:
    run = together(tmp_path)
    other = run.launches[1]
    assert other.end_ns is not None
    for begin, end in [(0, other.begin_ns), (other.begin_ns + 1, other.end_ns - 1), (other.end_ns, other.end_ns + 9)]:
        assert overlapping(run.launches, 1, begin, end) == [other]
        assert other not in overlapping(run.launches, 2, begin, end)
    for begin, end in [(0, other.begin_ns - 1), (other.end_ns + 1, other.end_ns + 9)]:
        assert overlapping(run.launches, 1, begin, end) == []


def test_a_launch_beside_that_writes_to_the_same_memory_is_named(tmp_path: Path) -> None:
    alone = recorded(tmp_path / "alone", RIGHT)
    base = tmp_path / "together"
    base.mkdir()
    recorder = Recorder(base, inputs=("x",), outputs=("buf1",))
    journal = recorder.journal
    journal.call_begin()
    recorder.launch("first", {"x": INPUT_X}, {"buf0": INPUT_X + 1})
    after = journal.time_ns
    journal.thread, journal.time_ns = 2, after + 1
    journal.call_begin(call=1)
    recorder.launch("other", {"x": INPUT_X}, {"buf7": INPUT_X}, call=1)
    recorder.launch("first", {"x": INPUT_X}, {"buf0": INPUT_X}, call=1)
    journal.call_end(launches=2, call=1)
    journal.thread = 1
    recorder.launch("second", {"buf0": INPUT_X}, {"buf1": INPUT_X + 1})
    journal.call_end(launches=2)
    journal.run_end()
    run = recorder.run()
    calls = launches_by_call(run)
    first = min(calls)
    found = CallPairs(alone, run).first_difference(launches_by_call(alone)[first], calls[first])
    assert found is not None
    assert found.kind is DifferenceKind.READ
    assert [(beside.launch.id, beside.shares) for beside in found.beside] == [("1.1", "buf0"), ("1.0", "")]


ZEROS = "    tmp1.store(out_ptr0 + static_cast<int64_t>(x0));\n"
ADDS = "    atomic_add_vec<float, 2, 1>(out_ptr0, tmp15, tmp12);\n"


@pytest.mark.parametrize(
    ("source", "is_added_to"),
    [
        (ADDS, True),
        (ZEROS + ADDS, False),
        ("    atomic_add(&out_ptr0[static_cast<int64_t>(x1)], tmp4);\n", True),
        ("    out_ptr0[static_cast<int64_t>(x1)] += tmp4;\n", True),
        ("    out_ptr0[static_cast<int64_t>(x1)] = tmp4;\n    out_ptr0[x2] += tmp5;\n", False),
        ("    tl.atomic_add(out_ptr0 + (x0), tmp1, None)\n", True),
        ("    tl.store(out_ptr0 + (x0), tmp1)\n", False),
        ("    atomic_add(&out_ptr01[x1], tmp4);\n", False),
    ],
)
def test_results_that_are_added_to_what_nothing_has_written(source: str, is_added_to: bool) -> None:
    result = replace(arg("buf0", Role.OUT), param="out_ptr0")
    assert adds_to_unwritten(result, [source]) is is_added_to
    assert not adds_to_unwritten(replace(result, role=Role.INOUT), [source])
    assert not adds_to_unwritten(replace(result, param=""), [source])
