"""Runs that have to end well."""

from __future__ import annotations

from pathlib import Path

import pytest

from aoti_debug.base.errors import ModelFaultError
from aoti_debug.runs.diagnosis.diagnosed_run import require_end
from aoti_debug.runs.rundir.run_directory import open_run
from aoti_debug.runs.rundir.run_json import Exit, ExitKind, RunStage
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, tensor


@pytest.mark.parametrize(
    ("end", "what"),
    [
        (Exit(ExitKind.FAULT, "killed by SIGSEGV", RunStage.CALL, "SIGSEGV"), "0.0: invalid memory access in "),
        (
            Exit(ExitKind.TIMEOUT, "no progress for 5 s", RunStage.CALL),
            "0.0: cpp_fused_0 did not end: no progress for 5 s",
        ),
    ],
)
def test_a_command_that_needs_the_end_names_the_launch_and_the_triage(tmp_path: Path, end: Exit, what: str) -> None:
    journal = JournalWriter()
    journal.call_begin()
    journal.launch_begin(0, 0, tensor(2))
    opened = open_run(run_directory(tmp_path, make_manifest(site("cpp_fused_0", arg("buf0"))), journal, exit=end))
    with pytest.raises(ModelFaultError) as raised:
        require_end(opened, Path("a b/m.pt2"), "alone")
    assert str(raised.value).startswith(f"m.pt2 does not end well (alone): {what}")
    assert "\n" not in str(raised.value)
    assert (raised.value.exit_code, raised.value.hint) == (1, "aoti-debug triage 'a b/m.pt2'")
    (opened.path / "inputs.pt").touch()
    with pytest.raises(ModelFaultError) as raised:
        require_end(opened, Path("m.pt2"))
    assert raised.value.hint == f"aoti-debug triage m.pt2 --inputs {opened.path}/inputs.pt"
    with pytest.raises(ModelFaultError) as raised:
        require_end(opened, opened.path)
    assert raised.value.hint == f"aoti-debug show --run {opened.path}"  # its package is gone
    with pytest.raises(ModelFaultError) as raised:
        require_end(opened, Path("m.pt2"), "all rounded", "aoti-debug show --run there")
    assert raised.value.hint == "aoti-debug show --run there"


def test_a_run_that_ended_well_is_no_fault(tmp_path: Path) -> None:
    require_end(
        open_run(run_directory(tmp_path, make_manifest(), JournalWriter(), exit=Exit(ExitKind.CLEAN))), Path("m.pt2")
    )
