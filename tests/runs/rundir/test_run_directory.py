from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from aoti_debug.base import abi
from aoti_debug.base.abi import FaultDomain, LaunchFlag, NoteCode, Phase, SaveStatus, StatsFlag
from aoti_debug.base.errors import RunDirError, UsageError
from aoti_debug.package.argument_values import Absent, Number
from aoti_debug.package.manifest import CType, Form, Role
from aoti_debug.runs.rundir import breadcrumbs
from aoti_debug.runs.rundir import run_directory as rundir
from aoti_debug.runs.rundir.formats import shared_files
from aoti_debug.runs.rundir.formats.statistics import Statistics
from aoti_debug.runs.rundir.launch import LaunchStatus
from aoti_debug.runs.rundir.run_directory import open_run
from aoti_debug.runs.rundir.run_json import Exit, ExitKind, RunStage
from tests import crashed_run, cut_journals, factories
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, tensor, triton_kernel

X = tensor(8, 32)
Y = tensor(8, 64, data_ptr=0x9000)
PACKAGE = make_manifest(
    site("aoti_torch_cpu_addmm_out", arg("buf0", Role.OUT), arg("x")),
    site("cpp_fused_relu_0", arg("buf0", Role.INOUT, Form.POINTER), arg("n", Role.NONE, Form.SCALAR)),
    site("triton_poi_fused_0", arg("x"), arg("buf1", Role.OUT, Form.OUTPUT_SLOT)),
    kernels=[triton_kernel("triton_poi_fused_0")],
)


def two_launches() -> JournalWriter:
    writer = JournalWriter(pid=os.getpid())
    writer.call_begin()
    writer.launch(0, 0, Y, X)
    writer.launch(1, 1, Y, Number(8, CType.I64), loops=(2,))
    writer.call_end(launches=2)
    return writer


def test_launches_of_a_run(tmp_path: Path) -> None:
    run = open_run(run_directory(tmp_path, PACKAGE, two_launches()))
    first, second = run.launches
    assert [launch.id for launch in run.launches] == ["0.0", "0.1"]
    assert (first.kernel, first.status, first.returned) == ("aoti_torch_cpu_addmm_out", LaunchStatus.RETURNED, 0)
    assert [(a.name, a.role, a.before, a.after) for a in first.args] == [
        ("buf0", Role.OUT, Y, Y),
        ("x", Role.IN, X, X),
    ]
    assert second.loops == (2,)
    assert [a.before for a in second.args] == [Y, Number(8, CType.I64)]
    assert second.argument("n") is second.args[1]
    assert second.argument("m") is None
    (call,) = run.timeline.calls
    assert (str(call), call.ended, call.failed) == ("0", True, False)
    assert (run.state, run.level) == (ExitKind.CLEAN, 3)


def test_grids_and_output_slots(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.launch_begin(0, 2, X, Absent.UNSET)
    writer.grid(0, 0, (4, 1, 1), 0x1000, 0x2000, (1 << 64) - 5)
    writer.launch_end(0, {1: Y})
    launch = open_run(run_directory(tmp_path, PACKAGE, writer)).launch("0")
    assert [a.before for a in launch.args] == [X, Absent.UNSET]
    assert [a.after for a in launch.args] == [X, Y]
    assert launch.args[1].tensor == Y
    assert launch.args[1].written
    assert not launch.args[0].written
    assert launch.grid
    assert (launch.grid.kernel, launch.grid.grid) == ("triton_poi_fused_0", (4, 1, 1))
    assert [(a.name, a.ctype, a.value.value) for a in launch.grid.arguments] == [
        ("in_ptr0", "CUdeviceptr", 0x1000),
        ("out_ptr0", "CUdeviceptr", 0x2000),
        ("xnumel", "int32_t", -5),
    ]


def test_what_became_of_a_launch(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.launch(0, 0, Y, X)
    writer.launch_begin(1, 2, X, Absent.UNSET)
    writer.launch_end(1, flags=LaunchFlag.NOT_STARTED)
    writer.launch_begin(2, 0, Y, X)
    writer.fault(2, FaultDomain.SHIM, 1, "index_put failed")
    writer.launch_end(2, status=1)
    writer.launch_begin(3, 0, Y, X)
    run = open_run(run_directory(tmp_path, PACKAGE, writer))
    assert [launch.status for launch in run.launches] == [
        LaunchStatus.RETURNED,
        LaunchStatus.NOT_STARTED,
        LaunchStatus.FAILED,
        LaunchStatus.OPEN,
    ]
    assert run.launches[2].fault == run.timeline.faults[0]
    assert run.launches[3].returned is None


def test_files_and_statistics_of_an_argument(tmp_path: Path) -> None:
    statistics = Statistics(256, 0, 0, 0, 0, 0.0, 1.0, 0, 1, 0.5, 0.1)
    writer = JournalWriter(level=2)
    writer.launch_begin(0, 0, Y, X)
    writer.tensor_file(0, 1, Phase.BEFORE, "tensors/a", size=1024, content=3)
    writer.tensor_file(0, 0, Phase.AFTER, "", status=SaveStatus.SKIPPED, reason="too large")
    writer.tensor_stats(0, 1, Phase.BEFORE, statistics, layout=X.layout)
    writer.tensor_stats(0, 0, Phase.BEFORE, None, flags=StatsFlag.UNINITIALISED)
    run = open_run(run_directory(tmp_path, PACKAGE, writer))
    buf0, x = run.launch("0").args
    assert run.tensor_path(x.files[Phase.BEFORE]) == run.path / "tensors/a"
    assert (x.files[Phase.BEFORE].bytes, x.files[Phase.BEFORE].hash) == (1024, (3, 3))
    assert x.stats[Phase.BEFORE].statistics == statistics
    assert buf0.stats[Phase.BEFORE].uninitialised
    with pytest.raises(RunDirError, match="too large"):
        run.tensor_path(buf0.files[Phase.AFTER])


@pytest.mark.parametrize("path", ["/etc/passwd", "tensors/../../x"])
def test_a_journal_cannot_lead_out_of_its_run(tmp_path: Path, path: str) -> None:
    writer = JournalWriter(level=1)
    writer.launch_begin(0, 0, Y, X)
    writer.tensor_file(0, 0, Phase.BEFORE, path)
    run = open_run(run_directory(tmp_path, PACKAGE, writer))
    with pytest.raises(RunDirError, match="outside of the directory"):
        run.tensor_path(run.launch("0").args[0].files[Phase.BEFORE])


def test_launches_whose_beginning_was_overwritten_are_left_out(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.launch_end(7)
    writer.launch(8, 0, Y, X)
    assert [launch.id for launch in open_run(run_directory(tmp_path, PACKAGE, writer)).launches] == ["0.8"]


def test_finding_launches(tmp_path: Path) -> None:
    run = open_run(run_directory(tmp_path, PACKAGE, two_launches()))
    assert run.launch("1") is run.launch("0.1") is run.launches[1]
    assert run.launches_of("cpp_fused_relu_0") == (run.launches[1],)
    assert run.launches_of("*_out") == (run.launches[0],)
    assert run.launches_of("nothing") == ()
    assert run.kernels() == ("aoti_torch_cpu_addmm_out", "cpp_fused_relu_0")
    with pytest.raises(RunDirError, match=r"has no launch 0\.2") as caught:
        run.launch("2")
    assert caught.value.hint == "it has 2, 0.0 to 0.1: aoti-debug show"
    with pytest.raises(UsageError, match="'x1' is no launch"):
        run.launch("x1")


@pytest.mark.parametrize(
    ("id_", "found"), [("0.1", True), ("1", False), ("0.01", False), ("0.2", False), ("c0.1", False), ("", False)]
)
def test_the_launch_of_an_id(tmp_path: Path, id_: str, found: bool) -> None:
    run = open_run(run_directory(tmp_path, PACKAGE, two_launches()))
    assert run.find_launch(id_) is (run.launches[1] if found else None)


def test_a_manifest_of_another_package(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.launch_begin(0, 9)
    run = open_run(run_directory(tmp_path, PACKAGE, writer))
    with pytest.raises(RunDirError, match="names site 9, but the manifest has 3"):
        _ = run.launches


def test_level_0_has_no_journal(tmp_path: Path) -> None:
    run = open_run(run_directory(tmp_path, PACKAGE))
    assert (run.journal, tuple(run.launches), run.level) == (None, (), 0)


# How a run ended


def test_a_run_that_is_going_on(tmp_path: Path) -> None:
    now = datetime.now(timezone.utc).isoformat()
    fields: dict[str, Any] = {"pid": os.getpid(), "started": now, "exit": Exit(ExitKind.RUNNING)}
    assert open_run(run_directory(tmp_path, PACKAGE, two_launches(), **fields)).state is ExitKind.RUNNING


def test_a_run_whose_process_vanished(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    path = run_directory(tmp_path, PACKAGE, two_launches(), pid=child.pid, exit=Exit(ExitKind.RUNNING))
    assert open_run(path).state is ExitKind.ABORTED


def test_a_process_that_got_the_number_of_an_older_one(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        started = (datetime.now(timezone.utc) - timedelta(hours=1)).isoformat()
        fields: dict[str, Any] = {"pid": child.pid, "started": started, "exit": Exit(ExitKind.RUNNING)}
        assert open_run(run_directory(tmp_path, PACKAGE, two_launches(), **fields)).state is ExitKind.ABORTED
    finally:
        child.communicate(b"\n")


@pytest.mark.parametrize(("faulty", "state"), [(False, ExitKind.CLEAN), (True, ExitKind.FAULT)])
def test_a_host_without_our_parent_that_unloaded_in_order(tmp_path: Path, faulty: bool, state: ExitKind) -> None:
    writer = two_launches()
    if faulty:
        writer.fault(1, FaultDomain.SHIM, 1)
    writer.run_end()
    path = run_directory(tmp_path, PACKAGE, writer, pid=1 << 22, exit=Exit(ExitKind.RUNNING), host="embedded")
    assert open_run(path).state is state


def test_run_json_of_the_runtime(tmp_path: Path) -> None:
    path = run_directory(tmp_path, PACKAGE, two_launches())
    text = """{"format": 1, "tool_version": null, "torch_version": null, "pid": 1,
     "started": "2026-11-20T23:15:01+01:00",
     "level": 3, "filters": ["a*"], "phase": null, "device": "cpu", "command": ["./host"], "host": "embedded",
     "exit": {"kind": "clean", "detail": null}}"""
    (path / "run.json").write_text(text)
    info = open_run(path).info
    assert (info.filters, info.phase, info.command, info.host) == (("a*",), "", ("./host",), "embedded")
    assert info.exit == Exit(ExitKind.CLEAN)


def test_exit_details_come_back(tmp_path: Path) -> None:
    exit_ = Exit(ExitKind.FAULT, "SIGSEGV", RunStage.CALL, "SIGSEGV", "", None, 0.25)
    assert open_run(run_directory(tmp_path, PACKAGE, exit=exit_)).info.exit == exit_


# Finding a run


def test_latest_by_default_names_and_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = tmp_path / "aoti-debug/runs"
    old = run_directory(base, PACKAGE, name="20261120-000000-1")
    new = run_directory(base, PACKAGE, name="20261120-000000-2")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AOTI_DEBUG_DIR", raising=False)
    assert open_run().path == new
    assert open_run("latest").path == new
    assert open_run("20261120-000000-1").path == old
    assert open_run("aoti-debug/runs/20261120-000000-1").path == old
    assert open_run(base).path == new
    assert open_run(old, base=tmp_path / "elsewhere").path == old
    monkeypatch.setenv("AOTI_DEBUG_DIR", str(base))
    monkeypatch.chdir("/")
    assert open_run().path == new


def test_no_runs_at_all(tmp_path: Path) -> None:
    with pytest.raises(RunDirError) as caught:
        open_run(base=tmp_path)
    assert str(caught.value) == f"no runs in {tmp_path}"
    assert "aoti-debug run PACKAGE.pt2" in caught.value.hint


def test_an_unknown_run_lists_those_there_are(tmp_path: Path) -> None:
    run_directory(tmp_path, PACKAGE, name="20261120-000000-1")
    with pytest.raises(RunDirError, match="no run '20261120-000000-7'") as caught:
        open_run("20261120-000000-7", base=tmp_path)
    assert caught.value.hint == "there is 20261120-000000-1"


def test_latest_that_leads_nowhere(tmp_path: Path) -> None:
    run_directory(tmp_path, PACKAGE, name="20261120-000000-1", latest=False)
    (tmp_path / "latest").symlink_to("gone")
    with pytest.raises(RunDirError, match="is a broken link") as caught:
        open_run(base=tmp_path)
    assert "20261120-000000-1" in caught.value.hint


# Damage


def damaged(path: Path) -> RunDirError:
    with pytest.raises(RunDirError) as caught:
        _ = open_run(path).launches
    assert caught.value.exit_code == 6
    assert caught.value.hint
    return caught.value


def test_another_format_version(tmp_path: Path) -> None:
    path = run_directory(tmp_path, PACKAGE, two_launches())
    data = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps(data | {"format": 2}))
    assert str(damaged(path)) == f"{path}/run.json has format 2; this aoti-debug reads format 1"


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_run_json_that_is_no_object(tmp_path: Path, text: str) -> None:
    path = run_directory(tmp_path, PACKAGE, two_launches())
    (path / "run.json").write_text(text)
    damaged(path)


@pytest.mark.parametrize("field", ["exit", "started", "pid"])
def test_run_json_without_a_field(tmp_path: Path, field: str) -> None:
    path = run_directory(tmp_path, PACKAGE, two_launches())
    data = json.loads((path / "run.json").read_text())
    del data[field]
    (path / "run.json").write_text(json.dumps(data))
    assert str(path / "run.json") in str(damaged(path))


def test_a_manifest_that_is_cut_off(tmp_path: Path) -> None:
    path = run_directory(tmp_path, PACKAGE, two_launches())
    text = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(text[:100])
    assert str(path / "manifest.json") in str(damaged(path))


def test_a_manifest_that_is_no_text(tmp_path: Path) -> None:
    path = run_directory(tmp_path, PACKAGE, two_launches())
    (path / "manifest.json").write_bytes(b"{\xff}")
    assert str(path / "manifest.json") in str(damaged(path))


def test_no_manifest(tmp_path: Path) -> None:
    path = run_directory(tmp_path, PACKAGE, two_launches())
    (path / "manifest.json").unlink()
    assert "has no readable manifest.json" in str(damaged(path))


def test_a_journal_that_is_cut_off(tmp_path: Path) -> None:
    path = run_directory(tmp_path, PACKAGE, two_launches())
    (path / "journal.bin").write_bytes(b"AOTIDBJ1")
    assert "is truncated" in str(damaged(path))


def test_notes(tmp_path: Path) -> None:
    writer = two_launches()
    writer.note(NoteCode.RECORDING_STOPPED, "the disk is full")
    (note,) = open_run(run_directory(tmp_path, PACKAGE, writer)).timeline.notes
    assert (note.code, note.text) == (NoteCode.RECORDING_STOPPED, "the disk is full")


# Breadcrumbs


def test_crumbs(tmp_path: Path) -> None:
    path = run_directory(tmp_path, PACKAGE, two_launches(), crumbs=factories.crumbs(7, 3, every=16))
    crumbs = open_run(path).crumbs
    assert crumbs == breadcrumbs.Crumbs(16, (breadcrumbs.Crumb(0, 0, 7, 0), breadcrumbs.Crumb(1, 16, 3, 0)))


def test_a_run_without_crumbs(tmp_path: Path) -> None:
    path = run_directory(tmp_path, PACKAGE, two_launches())
    assert open_run(path).crumbs is None
    (path / "crumbs.bin").symlink_to("/dev/shm/aoti_debug-that-is-gone")
    assert open_run(path).crumbs is None


@pytest.mark.parametrize("data", [b"", factories.crumbs(1)[:70], b"X" + factories.crumbs(1)[1:]])
def test_damaged_crumbs(tmp_path: Path, data: bytes) -> None:
    path = run_directory(tmp_path, PACKAGE, two_launches(), crumbs=data)
    with pytest.raises(RunDirError, match=r"crumbs\.bin"):
        _ = open_run(path).crumbs


def test_crumbs_outlive_their_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_files, "DIRECTORY", tmp_path)
    path = run_directory(tmp_path, PACKAGE, two_launches())
    shared = tmp_path / "aoti_debug-1-1-crumbs.bin"
    shared.write_bytes(factories.crumbs(5).ljust(4096, b"\0") + str(path).encode().ljust(4096, b"\0"))
    (path / "crumbs.bin").symlink_to(shared)
    breadcrumbs.preserve(path)
    assert not shared.exists()
    assert not (path / "crumbs.bin").is_symlink()
    breadcrumbs.preserve(path)
    crumbs = open_run(path).crumbs
    assert crumbs
    assert crumbs.crumbs[0].completed == 5


def test_near_names() -> None:
    known = ["triton_poi_fused_0", "triton_red_fused_1", "aoti_torch_cpu_addmm_out"]
    assert rundir.name_hint("triton_poi_fused_9", known).startswith("there is triton_poi_fused_0")
    assert rundir.name_hint("addmm", known) == "there is aoti_torch_cpu_addmm_out"
    assert rundir.name_hint("x", []) == "there are none"


@pytest.mark.parametrize("begun", [b"", bytes(4096)])
def test_a_process_that_was_killed_before_it_wrote_the_header_has_no_journal(begun: bytes, tmp_path: Path) -> None:
    path = run_directory(tmp_path, make_manifest(), JournalWriter())
    (path / "journal.bin").write_bytes(begun)
    run = open_run(path)
    assert run.journal is None
    assert tuple(run.launches) == ()


def test_a_run_whose_journal_ends_anywhere(tmp_path: Path) -> None:
    run = crashed_run.crashed(tmp_path, None)
    path = run / "journal.bin"
    data, whole = path.read_bytes(), cut_journals.parts(path)
    for cut in range(abi.JOURNAL_HEADER.size, max(part.end for part in whole), 9):
        assert cut_journals.problem(path, data, whole, cut, killed=True) == "", cut
        assert cut_journals.problem_of_run(run) == "", cut
