from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aoti_debug.base.abi import CallKind, Phase, StatsFlag
from aoti_debug.package.manifest import Constant, Role
from aoti_debug.package.recording.values import Tensor
from aoti_debug.runs.diagnosis.dataflow import Dataflow
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from aoti_debug.triage.nonfinite import harmful_sinks
from aoti_debug.triage.nonfinite.observed_values import Occurrence, Special
from aoti_debug.triage.nonfinite.trace_roots import Root, RootKind, RootSearch
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, statistics, tensor
from tests.triage.recorder import Recorder

NAN = float("nan")


def values(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers)


def roots_of(run: RunDir, launch: str, argument: str, special: Special = Special.NAN) -> list[Root]:
    found = run.launch(launch).argument(argument)
    assert found is not None
    return RootSearch(Dataflow(run)).trace([Occurrence(run.launch(launch), found, special)])


def test_roots_are_ordered_by_time_those_that_came_in_first(tmp_path: Path) -> None:
    """A launch that reads NaN from an input and from memory, and one that produced it later."""
    recorder = Recorder(tmp_path, inputs=("arg0",), outputs=("buf9",))
    recorder.launch("first", {"arg0": values(NAN)}, {"buf0": values(NAN)})
    recorder.launch("second", {"arg1": values(1)}, {"buf1": values(NAN)})
    recorder.launch("sum", {"buf1": values(NAN), "buf0": values(NAN)}, {"buf9": values(NAN)})
    found = roots_of(recorder.run(), "0.2", "buf9")
    assert [(root.kind, root.occurrence.launch.id, root.occurrence.argument.name) for root in found] == [
        (RootKind.EXTERNAL, "0.0", "arg0"),
        (RootKind.PRODUCED, "0.1", "buf1"),
    ]
    assert [[step.argument.name for step in root.path] for root in found] == [
        ["arg0", "buf0", "buf9"],
        ["buf1", "buf9"],
    ]


BAD = statistics(n_nan=1)
HERE, ELSEWHERE = tensor(4, data_ptr=0x1000), tensor(4, data_ptr=0x2000)


@pytest.mark.parametrize(
    ("folded", "name", "address", "kind", "launch"),
    [
        (True, "w", HERE, RootKind.PRODUCED, "c0.0"),
        (True, "w", ELSEWHERE, RootKind.UNEXPLAINED, "0.0"),
        (True, "w", tensor(4, data_ptr=0), RootKind.UNEXPLAINED, "0.0"),
        (True, "other", HERE, RootKind.UNEXPLAINED, "0.0"),
        (False, "w", HERE, RootKind.EXTERNAL, "0.0"),
    ],
)
def test_a_folded_weight_is_followed_to_the_launch_that_computed_it(
    tmp_path: Path, folded: bool, name: str, address: Tensor, kind: RootKind, launch: str
) -> None:
    fold = site("fold", arg("source"), arg("result", Role.OUT))
    use = site("use", arg("w"), arg("buf0", Role.OUT))
    constant = Constant(name, "l.weight", "float32", (4,), (1,), folded)
    manifest = replace(make_manifest(fold, use), constants=(constant,), outputs=("buf0",))
    journal = JournalWriter(level=2)
    journal.launch_begin(0, 0, tensor(4, data_ptr=0x7000), HERE, kind=CallKind.CONSTANT)
    journal.launch_end(0, kind=CallKind.CONSTANT)
    journal.tensor_stats(0, 1, Phase.AFTER, BAD, kind=CallKind.CONSTANT)
    journal.launch_begin(0, 1, address, tensor(4, data_ptr=0x9000))
    journal.tensor_stats(0, 0, Phase.BEFORE, BAD)
    journal.tensor_stats(0, 1, Phase.BEFORE, None, flags=StatsFlag.UNINITIALISED)
    journal.launch_end(0)
    journal.tensor_stats(0, 1, Phase.AFTER, BAD)
    run = open_run(run_directory(tmp_path, manifest, journal))
    (root,) = roots_of(run, "0.0", "buf0")
    assert (root.kind, root.occurrence.launch.id) == (kind, launch)


def test_a_view_of_an_output_leaves_the_model_under_its_name(tmp_path: Path) -> None:
    view = site("k", arg("x"), arg("buf1_view", Role.OUT, base="buf1"), arg("x", Role.OUT))
    manifest = replace(make_manifest(view), inputs=("x",), outputs=("", "buf1"))
    journal = JournalWriter(level=2)
    journal.launch_begin(0, 0, HERE, ELSEWHERE, HERE)
    journal.launch_end(0)
    journal.tensor_stats(0, 1, Phase.AFTER, BAD)
    journal.tensor_stats(0, 2, Phase.AFTER, BAD)
    run = open_run(run_directory(tmp_path, manifest, journal))
    found = harmful_sinks.outputs(run, RootSearch(Dataflow(run)), Special.NAN)
    assert {sink.harm for sink in found} >= {"leaves the model as output 1 (buf1)"}


@pytest.mark.parametrize(
    ("outputs", "harmful"),
    [
        (("buf8", "buf9"), True),  # buf9 is assigned without a launch
        (("buf8",), False),
        (("buf8", ""), False),
        (("buf8", "true_graph_0_buf0"), True),
    ],
)
def test_results_of_a_branch_leave_the_model_if_an_output_is_no_launch_s(
    tmp_path: Path, outputs: tuple[str, ...], harmful: bool
) -> None:
    recorder = Recorder(tmp_path, inputs=("arg0",), outputs=outputs)
    recorder.launch("k", {"arg0": values(0)}, {"true_graph_0_buf0": values(NAN)}, subgraph="true_graph_0")
    recorder.launch("l", {"arg0": values(0)}, {"buf8": values(1)})
    run = recorder.run()
    assert bool(harmful_sinks.outputs(run, RootSearch(Dataflow(run)), Special.NAN)) is harmful
