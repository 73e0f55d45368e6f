"""Uninitialised reads: two runs with different poison, synthetic ones and of models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aoti_debug.runs.diagnosis.dataflow import Dataflow
from aoti_debug.runs.diagnosis.findings import Finding
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.triage.memory_errors import uninitialised
from aoti_debug.triage.results.finding_kinds import UNINITIALISED
from tests.built_model import Built, build_model
from tests.triage.recorder import Recorder

POISONS = (0xFF, 0x3B)
Scenario = Callable[[Recorder, int], None]


def runs(base: Path, scenario: Scenario, *, again: bool = False) -> list[RunDir]:
    """The runs of one scenario with each poison; `again`: and once more with the first."""
    recorded_runs = []
    for number, poison in enumerate((*POISONS, *POISONS[:1]) if again else POISONS):
        recorder = Recorder(base / str(number), inputs=("arg0_1",), outputs=("buf9",))
        recorder.journal.call_begin()
        scenario(recorder, poison)
        run = recorder.run()
        recorded_runs.append(replace(run, info=replace(run.info, guards=True, poison=poison)))
    return recorded_runs


def find(first: RunDir, second: RunDir, again: RunDir | None = None) -> Finding | None:
    return uninitialised.find(Dataflow(first), second, again)


def require(finding: Finding | None) -> Finding:
    assert finding is not None
    assert finding.kind is UNINITIALISED
    assert finding.where is not None
    return finding


def fresh(count: int, poison: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.full((count * dtype.itemsize,), poison, dtype=torch.uint8).view(dtype).clone()


def part(count: int, written: int, poison: int) -> torch.Tensor:
    """The first elements written, the others as they were."""
    value = fresh(count, poison)
    value[:written] = torch.linspace(-2, 2, count)[:written]
    return value


X = torch.linspace(-1, 1, 1000)


def test_a_read_of_unwritten_elements(tmp_path: Path) -> None:
    def scenario(recorder: Recorder, poison: int) -> None:
        rows = part(1000, 600, poison)
        recorder.launch("fill", {"arg0_1": X}, {"buf0": rows}, op="mylib::fill.default")
        recorder.launch("scale", {"arg0_1": X}, {"buf1": X * 2})
        recorder.launch("reduce", {"buf0": rows}, {"buf9": rows.reshape(10, 100).sum(1)})

    finding = require(find(*runs(tmp_path, scenario)))
    assert finding.what == "reduce is suspected of reading memory that no launch had written"
    assert finding.where is not None
    assert (finding.where.launch, finding.where.argument) == ("0.2", "buf0")
    assert finding.origin is not None
    assert (finding.origin.launch, finding.origin.operator) == ("0.0", "mylib::fill.default")
    assert finding.evidence[0].startswith("its result buf9 differs between two runs")
    assert finding.evidence[1:] == (
        "it reads buf0, in which 400 of 1000 elements are still unwritten",
        "0.0 fill was the last to write to it, but did not write them",
    )


def test_a_read_of_a_buffer_that_no_launch_wrote(tmp_path: Path) -> None:
    def scenario(recorder: Recorder, poison: int) -> None:
        recorder.launch("add", {"arg0_1": X, "buf0": fresh(1000, poison)}, {"buf9": X + fresh(1000, poison)})

    finding = require(find(*runs(tmp_path, scenario)))
    assert finding.where is not None
    assert (finding.where.launch, finding.where.argument) == ("0.0", "buf0")
    assert finding.origin is None
    assert finding.evidence[-1] == "no launch wrote to buf0 before it"


def test_an_accumulation_into_an_output_without_zeroing_it(tmp_path: Path) -> None:
    def scenario(recorder: Recorder, poison: int) -> None:
        recorder.launch("scatter_add", {"arg0_1": X}, {"buf9": fresh(1000, poison) + X})

    finding = require(find(*runs(tmp_path, scenario)))
    assert finding.where is not None
    assert (finding.where.launch, finding.where.argument) == ("0.0", "buf9")


def test_a_concatenation_in_pieces_is_clean(tmp_path: Path) -> None:
    def scenario(recorder: Recorder, poison: int) -> None:
        stages = [part(1000, written, poison) for written in (0, 300, 600, 1000)]
        recorder.launch("cat_0", {"arg0_1": X}, {"buf9": stages[1]})
        for number in (1, 2):
            recorder.launch(f"cat_{number}", {"arg0_1": X}, {}, changes={"buf9": (stages[number], stages[number + 1])})
        recorder.launch("use", {"buf9": stages[3]}, {"buf2": stages[3].cos()})

    assert find(*runs(tmp_path, scenario)) is None


def test_padding_that_is_masked_is_clean(tmp_path: Path) -> None:
    def scenario(recorder: Recorder, poison: int) -> None:
        rows = part(1000, 600, poison)
        recorder.launch("fill", {"arg0_1": X}, {"buf0": rows})
        recorder.launch("masked", {"buf0": rows}, {"buf9": rows[:600].cos()})

    assert find(*runs(tmp_path, scenario)) is None


@pytest.mark.parametrize("kernel", ["aten.bernoulli_.float", "triton_poi_fused_rand_3", "aoti_torch_cpu_randint_out"])
def test_random_numbers_are_clean(tmp_path: Path, kernel: str) -> None:
    seeds = iter(range(10))

    def scenario(recorder: Recorder, poison: int) -> None:
        torch.manual_seed(next(seeds))
        value = torch.rand(1000)
        recorder.launch(kernel, {"arg0_1": X}, {"buf0": value})
        recorder.launch("use", {"buf0": value}, {"buf9": value.cos()})

    assert find(*runs(tmp_path, scenario)) is None


@pytest.mark.parametrize("again", [True, False])
def test_a_nondeterministic_launch_is_clean(tmp_path: Path, again: bool) -> None:
    """Sums of atomic additions come out in any order."""
    noise = iter(range(10))

    def scenario(recorder: Recorder, poison: int) -> None:
        rows = part(1000, 600, poison)
        recorder.launch("fill", {"arg0_1": X}, {"buf0": rows})
        value = X.exp() * (1 + 1e-6 * next(noise))
        recorder.launch("index_add", {"buf0": rows}, {"buf1": value})
        recorder.launch("use", {"buf1": value}, {"buf9": value.log()})

    assert find(*runs(tmp_path, scenario, again=again)) is None


def test_integers_need_a_third_run(tmp_path: Path) -> None:
    def scenario(recorder: Recorder, poison: int) -> None:
        recorder.launch("accumulate", {"arg0_1": X}, {"buf9": fresh(1000, poison, torch.int32) + 1})

    assert find(*runs(tmp_path / "two", scenario)) is None
    assert require(find(*runs(tmp_path / "three", scenario, again=True))).where is not None


def test_an_output_that_was_not_completely_written(tmp_path: Path) -> None:
    def scenario(recorder: Recorder, poison: int) -> None:
        recorder.launch("fill", {"arg0_1": X}, {"buf9": part(1000, 990, poison)})

    finding = require(find(*runs(tmp_path, scenario)))
    assert finding.what == "the model returns buf9, in which 10 of 1000 elements are never written"


def test_runs_with_equal_poison_or_none_have_no_finding(tmp_path: Path) -> None:
    def scenario(recorder: Recorder, poison: int) -> None:
        recorder.launch("add", {"buf0": fresh(1000, poison)}, {"buf9": fresh(1000, poison) + X})

    first, second = runs(tmp_path, scenario)
    assert find(first, replace(second, info=first.info)) is None
    assert find(first, replace(second, info=replace(second.info, poison=None))) is None


# ---- models


@pytest.fixture(scope="module")
def unwritten(tmp_path_factory: pytest.TempPathFactory) -> Built:
    from tests import memory_ops

    with torch.no_grad():
        program = torch.export.export(memory_ops.Unwritten(5).eval(), memory_ops.inputs())
    return build_model(program, tmp_path_factory.mktemp("unwritten"), {}, "tests.memory_ops")


def poisoned_runs(package: Path, out: Path) -> list[RunDir]:
    return [runner.run(RunOptions(package, level=2, out=out, guards=True, poison=poison)).run for poison in POISONS]


def test_a_model_that_sums_unwritten_rows(unwritten: Built, tmp_path: Path) -> None:
    finding = require(find(*poisoned_runs(unwritten.package, tmp_path)))
    assert finding.where is not None
    assert finding.where.kernel.startswith("cpp_fused_cos_sum")
    assert finding.origin is not None
    assert finding.origin.operator == "memoryops::fill_rows.default"
    assert "24 of 64 elements are still unwritten" in finding.evidence[1]


@pytest.mark.parametrize("name", ["mixed", "control", "views", "mutation"])
def test_no_false_alarm(built: Callable[[str], Built], tmp_path: Path, name: str) -> None:
    first, second = poisoned_runs(built(name).package, tmp_path)
    assert find(first, second) is None
    assert first.timeline.damages == second.timeline.damages == ()
    assert [note.text for note in first.timeline.notes] == []
