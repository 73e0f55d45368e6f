from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aoti_debug.base.abi import NoteCode, Phase, RunEndFlag
from aoti_debug.package.manifest import Role
from aoti_debug.runs.diagnosis import output_values as module
from aoti_debug.runs.diagnosis.output_values import OutputValues, has_gaps, output_values
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from aoti_debug.runs.rundir.run_json import ExitKind
from aoti_debug.runs.show import overview
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, statistics, tensor
from tests.saved_tensors import save
from tests.triage.recorder import Recorder

NAN, INF = float("nan"), float("inf")


def values(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers)


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path, inputs=("arg0",), outputs=("buf9",), weights=("l_weight",))


def test_finite_outputs(recorder: Recorder) -> None:
    recorder.launch("k", {"arg0": values(1)}, {"buf9": values(2)})
    found = output_values(recorder.run())
    assert found == OutputValues(is_measured=True, outputs=1, recorded=1)
    assert found.text == "outputs finite"


def test_nan_that_the_model_handles_is_no_output(recorder: Recorder) -> None:
    recorder.launch("k", {"arg0": values(1)}, {"buf0": values(NAN)})
    recorder.launch("nan_to_num", {"buf0": values(NAN)}, {"buf9": values(0)})
    assert output_values(recorder.run()).text == "outputs finite"


def test_the_last_write_of_an_output_counts(recorder: Recorder) -> None:
    recorder.launch("k", {"arg0": values(1)}, {"buf9": values(NAN)})
    recorder.launch("fill", {}, {"buf9": values(0)})
    assert output_values(recorder.run()).text == "outputs finite"


def test_outputs_that_are_not_finite(recorder: Recorder) -> None:
    recorder.launch("k", {"arg0": values(1, 2)}, {"buf9": values(NAN, 2)})
    found = output_values(recorder.run())
    assert (found.text, found.what) == ("outputs not finite", "1 of 2 elements of output 0 (buf9) is NaN")


def test_hashes_are_no_values(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, outputs=("buf9",), hashes_only=True)
    recorder.launch("k", {}, {"buf9": values(NAN)})
    assert output_values(recorder.run()).text == "values of outputs not recorded"


OUTPUTS = make_manifest(
    site("k", arg("x"), arg("buf0", Role.OUT)),
    site("l", arg("buf0"), arg("buf1", Role.OUT)),
)


def recorded(base: Path, outputs: tuple[str, ...], *measured: str, calls: int = 1, ended: bool = True) -> RunDir:
    """Calls of two launches whose results may be outputs; of some of these the statistics were recorded."""
    journal = JournalWriter(level=2)
    for call in range(calls):
        journal.call_begin(call)
        for number, name in enumerate(("buf0", "buf1")):
            journal.launch(number, number, tensor(4, data_ptr=0x1000), tensor(4, data_ptr=0x2000), call=call)
            if name in measured:
                journal.tensor_stats(number, 1, Phase.AFTER, statistics(n_nan=call), call=call)
        if ended or call < calls - 1:
            journal.call_end(call, launches=2)
    return open_run(run_directory(base, replace(OUTPUTS, outputs=outputs), journal))


@pytest.mark.parametrize(
    ("outputs", "measured", "text"),
    [
        (("buf0", "buf1"), (), "values not recorded"),
        (("buf1",), ("buf0",), "values of outputs not recorded"),
        (("buf0", "buf1"), ("buf0",), "values of 1 of 2 outputs recorded, finite"),
        (("buf0", "buf1"), ("buf0", "buf1"), "outputs finite"),
        (("buf1", "x"), ("buf1",), "values of 1 of 2 outputs recorded, finite"),  # no launch writes x
        ((), ("buf0",), "no outputs"),
    ],
)
def test_what_was_not_recorded_is_said(
    tmp_path: Path, outputs: tuple[str, ...], measured: tuple[str, ...], text: str
) -> None:
    assert output_values(recorded(tmp_path, outputs, *measured)).text == text


@pytest.mark.parametrize(
    ("note", "is_missing"),
    [
        ("recording stopped: out of memory", True),
        ("the recording was ended while calls were running, which then went on", True),
        ("tensors are no longer saved: No space left on device", False),
        ("the journal cannot grow: File too large; it reuses its blocks", False),
    ],
)
def test_launches_that_are_missing_are_said(tmp_path: Path, note: str, is_missing: bool) -> None:
    journal = JournalWriter(level=2)
    journal.call_begin(0)
    journal.launch(0, 0, tensor(4, data_ptr=0x1000), tensor(4, data_ptr=0x2000))
    journal.call_end(0, launches=1)
    journal.note(NoteCode.RECORDING_STOPPED, note)
    run = open_run(run_directory(tmp_path, replace(OUTPUTS, outputs=("buf0",)), journal))
    missing = "; launches are missing from the records" if is_missing else ""
    assert output_values(run).text == f"values not recorded{missing}"


def test_a_run_that_was_not_recorded_to_its_end_says_so(tmp_path: Path) -> None:
    journal = JournalWriter(level=3)
    journal.run_end(RunEndFlag.CUT_SHORT)
    run = open_run(run_directory(tmp_path, OUTPUTS, journal))
    assert run.state is ExitKind.CLEAN
    assert has_gaps(run)
    (line, *_) = overview.header(run, 120, output_values(run))
    assert line.endswith(": no fault recorded; values not recorded; launches are missing from the records")


def test_a_call_that_did_not_end_has_no_outputs(tmp_path: Path) -> None:
    run = recorded(tmp_path, ("buf1",), "buf1", calls=2, ended=False)
    assert output_values(run).text == "outputs finite"


def test_the_first_call_with_such_values_is_named(tmp_path: Path) -> None:
    found = output_values(recorded(tmp_path, ("buf1",), "buf1", calls=3))
    assert found.what == "1 of 512 elements of output 0 (buf1) is NaN"
    assert found.evidence[-1] == "this is the output of call 1 of 3, counted from 0: the first with such values"


def test_saved_tensors_are_read_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = JournalWriter(level=1)
    journal.launch(0, 0, tensor(2), tensor(2))
    journal.tensor_file(0, 1, Phase.AFTER, "buf0.safetensors", size=8)
    path = run_directory(tmp_path, replace(OUTPUTS, outputs=("buf0",)), journal)
    save(path / "buf0.safetensors", "buf0", values(INF, 1))
    found = output_values(open_run(path))
    assert found.what == "1 of 2 elements of output 0 (buf0) is +Inf"
    monkeypatch.setattr(module, "BUDGET", 7)
    assert output_values(open_run(path)).text == "values of outputs not recorded"


def test_files_that_are_gone_are_said(tmp_path: Path) -> None:
    journal = JournalWriter(level=1)
    journal.launch(0, 0, tensor(2), tensor(2))
    for slot in (0, 1):
        journal.tensor_file(0, slot, Phase.AFTER, f"buf{slot}.safetensors", size=8, content=slot + 1)
    path = run_directory(tmp_path, replace(OUTPUTS, outputs=("buf0",)), journal)
    run = open_run(path)
    assert output_values(run).text == "values of outputs not read"
    lines = overview.overview(run, None, overview.excerpt(run.launches, 10, None), 200)
    assert lines[-1].startswith("not every value can be shown: ")
    assert lines[-1].endswith("buf1.safetensors is missing")
