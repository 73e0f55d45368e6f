from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aoti_debug.base.abi import Phase
from aoti_debug.package.manifest import Role
from aoti_debug.runs.diagnosis.dataflow import Dataflow
from aoti_debug.runs.diagnosis.special_values import Special
from aoti_debug.runs.diagnosis.trace_roots import RootSearch
from aoti_debug.runs.rundir.run_directory import open_run
from aoti_debug.triage.nonfinite import harmful_sinks
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, statistics, tensor
from tests.triage.recorder import Recorder

NAN = float("nan")
BAD = statistics(n_nan=1)
HERE, ELSEWHERE = tensor(4, data_ptr=0x1000), tensor(4, data_ptr=0x2000)


def values(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers)


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
