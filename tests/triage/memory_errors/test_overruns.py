"""Writes outside of buffers: recorded damage to guards, and a model whose operator causes it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.base.abi import NoteCode
from aoti_debug.package.argument_values import Tensor
from aoti_debug.package.manifest import Allocation, Role
from aoti_debug.runs.diagnosis.findings import Finding
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir.run_directory import open_run
from aoti_debug.triage.memory_errors import overruns
from aoti_debug.triage.results.finding_kinds import OVERRUN
from tests.built_model import Built, build_model
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, tensor

INPUT, FIRST, SECOND = tensor(8, 8, data_ptr=0x1000), tensor(8, 8, data_ptr=0x8000), tensor(8, 8, data_ptr=0x20000)
ONE = struct.pack("<f", 1.0)


def find(
    base: Path, damage: Callable[[JournalWriter], None], *, read: Tensor = FIRST, written: Tensor = SECOND
) -> Finding | None:
    """The finding of a run of two launches: relu(arg0_1) -> buf0, add(buf0) -> buf1."""
    manifest = replace(
        make_manifest(
            site("relu", arg("arg0_1"), arg("buf0", Role.OUT)),
            site("add", arg("buf0"), arg("buf1", Role.OUT), op="mylib::add.default", line=30),
        ),
        allocations=(
            Allocation("buf0", 7, True),
            Allocation("buf1", 9, True),
            Allocation("buf2", 12, False, "mylib::sort.default allocates it itself"),
        ),
    )
    journal = JournalWriter()
    journal.call_begin()
    journal.launch(0, 0, INPUT, read)
    journal.launch(1, 1, read, written)
    damage(journal)
    journal.call_end(launches=2)
    return overruns.find(open_run(run_directory(base, manifest, journal, guards=True, poison=255)))


def require(finding: Finding | None) -> Finding:
    assert finding is not None
    assert finding.kind is OVERRUN
    assert finding.where is not None
    return finding


def test_intact_guards_are_no_finding(tmp_path: Path) -> None:
    assert find(tmp_path, lambda journal: None) is None


def test_one_element_past_the_end(tmp_path: Path) -> None:
    finding = require(find(tmp_path, lambda j: j.damage(1, 256, ONE, at=0x20000, size=256, allocation=1)))
    assert finding.what == "add writes 4 bytes past the end of buf1"
    place = finding.where
    assert place is not None
    assert (place.launch, place.kernel, place.operator) == ("0.1", "add", "mylib::add.default")
    assert (place.argument, place.element) == ("buf1", 64)
    assert place.frame is not None
    assert place.frame.line == 30
    assert finding.evidence == (
        "writes 4 bytes at element 64 of 64 of buf1, 0 bytes past the end of its buffer",
        "buf1, float32[8,8], lies in a buffer of 256 bytes that was allocated for it; "
        "the guard zones around it were intact before the launch",
        "values in the guard zone: 1",
    )
    assert finding.possible == ("without guards it may overwrite what lies after buf1",)
    assert finding.warnings == (
        "writes around model inputs and weights are not checked, nor around buffers without guards: "
        "buf2 (mylib::sort.default allocates it itself)",
    )


def test_elements_before_the_start_are_negative(tmp_path: Path) -> None:
    finding = require(find(tmp_path, lambda j: j.damage(1, -12, ONE * 2, at=0x20000, size=256, allocation=1)))
    assert finding.where is not None
    assert (finding.where.argument, finding.where.element) == ("buf1", -2)
    assert finding.what == "add writes 8 bytes before the start of buf1"
    assert finding.evidence[0] == "writes 8 bytes at element -2 of 64 of buf1, 4 bytes before the start of its buffer"
    assert finding.evidence[2] == "values in the guard zone: 1, 1"


def test_an_input_may_be_what_is_written_past(tmp_path: Path) -> None:
    finding = require(find(tmp_path, lambda j: j.damage(1, 260, ONE, at=0x8000, size=256, allocation=0)))
    assert finding.where is not None
    assert (finding.where.argument, finding.where.element) == ("buf0", 65)


def test_a_view_in_a_reused_buffer(tmp_path: Path) -> None:
    """buf1 is the second half of memory that was allocated for buf0."""
    half = tensor(4, 8, data_ptr=0x8000 + 128, storage_offset=32)
    other = tensor(8, 8, data_ptr=0x40000)
    finding = require(find(tmp_path, lambda j: j.damage(1, 256, ONE, at=0x8000, size=256), read=other, written=half))
    assert finding.where is not None
    assert (finding.where.argument, finding.where.element) == ("buf1", 32)
    assert finding.evidence[1].startswith(
        "buf1, float32[4,8], lies in a buffer of 256 bytes that was allocated for buf0;"
    )


def test_an_address_far_outside_hits_a_buffer_that_is_no_argument(tmp_path: Path) -> None:
    finding = require(find(tmp_path, lambda j: j.damage(0, 256, b"\x01\x02\x03", at=0x20000, size=256, allocation=1)))
    assert finding.where is not None
    assert (finding.where.launch, finding.where.argument, finding.where.element) == ("0.0", "buf1", None)
    assert finding.evidence == (
        "writes 3 bytes, 0 bytes past the end of buf1; the guard zones around it were intact before the launch",
        "buf1 is not one of its arguments: the address is far from everything that it writes (buf0)",
    )


def test_parts_of_elements_are_shown_as_bytes(tmp_path: Path) -> None:
    finding = require(find(tmp_path, lambda j: j.damage(1, 257, b"\x01\x02", at=0x20000, size=256, allocation=1)))
    assert "bytes in the guard zone: 01 02" in finding.evidence


def test_the_first_launch_is_blamed_and_the_others_are_listed(tmp_path: Path) -> None:
    def damage(journal: JournalWriter) -> None:
        """A device may report damage late and out of order."""
        journal.damage(1, 256, ONE, at=0x20000, size=256, allocation=1)
        journal.damage(0, 300, ONE, at=0x8000, size=256)
        journal.damage(0, -4, ONE, at=0x8000, size=256)

    finding = require(find(tmp_path, damage))
    assert finding.where is not None
    assert (finding.where.launch, finding.where.argument, finding.where.element) == ("0.0", "buf0", -1)
    assert finding.evidence[-1] == "the same launch writes 4 bytes past the end of buf0, 44 bytes away from it"
    assert finding.warnings[0] == "1 later launch wrote outside of buffers too: 0.1 add"


def test_a_buffer_without_guards_at_run_time_is_listed(tmp_path: Path) -> None:
    def damage(journal: JournalWriter) -> None:
        journal.note(NoteCode.GUARDS, "no guards around buf0: no memory for its guards")
        journal.damage(1, 256, ONE, at=0x20000, size=256, allocation=1)

    assert require(find(tmp_path, damage)).warnings[-1] == "no guards around buf0: no memory for its guards"


# ---- a model


@pytest.fixture(scope="module")
def spilling(tmp_path_factory: pytest.TempPathFactory) -> Built:
    torch = pytest.importorskip("torch")
    from tests import memory_ops

    with torch.no_grad():
        program = torch.export.export(memory_ops.Spilling(64, 1).eval(), memory_ops.inputs())
    return build_model(program, tmp_path_factory.mktemp("spilling"), {}, "tests.memory_ops")


def test_an_operator_that_writes_into_its_neighbour(spilling: Built, tmp_path: Path) -> None:
    result = runner.run(RunOptions(spilling.package, level=3, out=tmp_path, guards=True))
    assert result.verdict is None
    finding = require(overruns.find(result.run))
    place = finding.where
    assert place is not None
    assert place.kernel == "memoryops::spill.default"
    assert place.launch == [launch.id for launch in result.run.launches_of("memoryops::spill.default")][1]
    assert place.element == 64
    assert place.frame is not None
    assert "self.first, self.count" in place.frame.text
    assert "values in the guard zone: 1.5" in finding.evidence
    assert (result.run.info.guards, result.run.info.poison) == (True, 0xFF)
    assert "--guards" in result.run.info.command


def test_the_same_without_guards_looks_clean(spilling: Built, tmp_path: Path) -> None:
    result = runner.run(RunOptions(spilling.package, level=3, out=tmp_path))
    assert result.run.timeline.damages == ()
    assert overruns.find(result.run) is None
    assert overruns.without_guards(result.run) == ()
