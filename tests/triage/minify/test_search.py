"""The search through a start whose values are empty files: no model, no compiler, no scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from aoti_debug.base import wording
from aoti_debug.runs.diagnosis.findings import FAULT, NONFINITE, Finding, Place
from aoti_debug.triage.minify import minify as module
from aoti_debug.triage.minify.minified import minified_lines
from aoti_debug.triage.minify.minify import Confirm, minify
from aoti_debug.triage.minify.script_results import Run, ScriptTrial, ScriptVerdict, TriageAnswer
from aoti_debug.triage.minify.start_parts import MinifyOptions, Start
from aoti_debug.triage.results.triage_directory import Record, TriageDir
from tests.triage.minify import parts

RELU, ADD = "aten.relu.default", "aten.add.Tensor"
SIGNAL = Finding(FAULT, "SIGSEGV")
Search = Callable[..., list[str]]


@pytest.fixture
def search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Search:
    """Searches through a start for a finding, and returns the result as text."""
    program = tmp_path / "program.pt2"
    torch.export.save(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)), program)
    out = tmp_path / "out"

    def starts(start: Start, folder: Path) -> Iterator[Start]:
        folder.mkdir(parents=True, exist_ok=True)
        for value in start.values.values():
            (folder / value.file).touch()
        yield replace(start, folder=folder)

    def searched(
        start: Start, run: Run, finding: Finding = SIGNAL, confirm: Confirm = confirms, **options: Any
    ) -> list[str]:
        triaged = TriageDir(tmp_path, Record(finding))
        monkeypatch.setattr(module, "known_finding", lambda *_: (finding, triaged))
        monkeypatch.setattr(module, "starts_of", lambda _options, _finding, _run, folder, _note: starts(start, folder))
        return minified_lines(minify(MinifyOptions(program, out=out, **options), run=run, confirm=confirm))

    return searched


def confirms(script: Path, *_: object) -> ScriptVerdict:
    return ScriptVerdict(TriageAnswer.YES, "FAULT SIGSEGV")


class Triage:
    """Confirms programs of at least so many operators."""

    def __init__(self, operators: int) -> None:
        self.operators = operators
        self.asked: list[int] = []

    def __call__(self, script: Path, *_: object) -> ScriptVerdict:
        count = script.read_text().count("torch.ops")
        self.asked.append(count)
        script.with_name("program.pt2").write_text(str(count))
        return confirms(script) if count >= self.operators else ScriptVerdict(TriageAnswer.NO, "CLEAN nothing is wrong")


def shows(trial: ScriptTrial, shown: int) -> ScriptTrial:
    return replace(trial, observed="SIGSEGV", shown=shown)


def test_a_look_that_cannot_be_judged_is_no_look(search: Search) -> None:
    def run(path: Path, trial: ScriptTrial, stall: float) -> ScriptTrial:
        return shows(trial, 1) if trial.runs == 1 else replace(trial, failure="no end within 1860 s")

    assert "  shown    in 1 of 1 run, every time" in search(parts.start(RELU), run)


def test_many_looks_that_cannot_be_judged_leave_the_few(search: Search) -> None:
    def run(path: Path, trial: ScriptTrial, stall: float) -> ScriptTrial:
        return shows(trial, 1) if trial.runs < 20 else replace(trial, failure="no end within 1860 s")

    assert "  shown    in 2 of 5 runs, FLAKY: not every time" in search(parts.start(RELU), run)


def test_values_of_the_program_are_deleted_at_the_end(search: Search, tmp_path: Path) -> None:
    search(parts.start(RELU, ADD), lambda path, trial, stall: shows(trial, trial.runs))
    (folder,) = (tmp_path / "out").iterdir()
    assert sorted(path.name for path in folder.iterdir()) == ["minify.json", "repro"]


def test_inputs_of_nan_stay_the_recorded_ones(search: Search, tmp_path: Path) -> None:
    finding = Finding(NONFINITE, "NaN")
    search(parts.start(RELU), lambda path, trial, stall: shows(trial, trial.runs), finding)
    (script,) = tmp_path.glob("out/*/repro/repro.py")
    assert "rand" not in script.read_text()


def test_no_more_scripts_than_allowed(search: Search) -> None:
    def run(path: Path, trial: ScriptTrial, stall: float) -> ScriptTrial:
        return shows(trial, trial.runs) if path.read_text().count("torch.ops") > 1 else trial

    start = parts.start(*[RELU, ADD] * 4)
    lines = search(start, run, most_scripts=2)
    assert "note: ended after 2 scripts; a larger --most-scripts resumes" in lines
    assert any(line.startswith("SMALLEST 4 calls of 8") for line in lines)
    lines = search(start, run)
    assert "note: the first 2 scripts had been run before" in lines
    assert any(line.startswith("SMALLEST 2 calls of 8") for line in lines)


@pytest.mark.parametrize(("needed", "asked"), [(1, [1]), (2, [1, 1, 2]), (4, [1, 1, 2, 4])])
def test_the_next_larger_part_where_a_triage_does_not_confirm_it(
    needed: int, asked: list[int], search: Search, tmp_path: Path
) -> None:
    triage = Triage(needed)
    lines = search(parts.start(*[RELU, ADD] * 4), lambda path, trial, stall: shows(trial, trial.runs), confirm=triage)
    assert triage.asked == asked  # the smallest first with random inputs, then with the recorded ones
    assert any(line.startswith(f"SMALLEST {wording.pluralize(needed, 'call')} of 8") for line in lines)
    assert sum(line.startswith("  refused  ") for line in lines) == len(asked) - 1
    (result,) = tmp_path.glob("out/*/repro")
    assert (result / "repro.py").read_text().count("torch.ops") == needed
    assert (result / "program.pt2").read_text() == str(needed)


def test_no_more_parts_are_triaged_than_four(search: Search, tmp_path: Path) -> None:
    triage = Triage(9)
    lines = search(parts.start(*[RELU, ADD] * 4), lambda path, trial, stall: shows(trial, trial.runs), confirm=triage)
    assert triage.asked == [1, 1, 2, 4]
    assert "  verdict  NOT CONFIRMED: CLEAN nothing is wrong" in lines
    assert "  note     none of 4 parts was confirmed by a triage" in lines
    (folder,) = (tmp_path / "out").iterdir()
    assert sorted(path.name for path in folder.iterdir()) == ["minify.json", "repro"]
    assert (folder / "repro" / "program.pt2").read_text() == "1"


def test_a_triage_that_is_interrupted_is_not_asked_again_of_smaller_parts(search: Search) -> None:
    triage = Triage(2)

    def interrupted(script: Path, *_: object) -> ScriptVerdict:
        if len(triage.asked) == 2:
            raise KeyboardInterrupt
        return triage(script)

    def run(path: Path, trial: ScriptTrial, stall: float) -> ScriptTrial:
        return shows(trial, trial.runs)

    start = parts.start(*[RELU, ADD] * 4)
    with pytest.raises(KeyboardInterrupt):
        search(start, run, confirm=interrupted)
    assert any(line.startswith("SMALLEST 2 calls") for line in search(start, run, confirm=triage))
    assert triage.asked == [1, 1, 2]


def test_the_operator_that_a_finding_names_is_not_confirmed_alone(search: Search) -> None:
    finding = Finding(FAULT, "SIGSEGV", Place("0.2", operator=RELU))
    triage = Triage(3)
    start = parts.start(ADD, RELU, ADD)
    lines = search(start, lambda path, trial, stall: shows(trial, trial.runs), finding, confirm=triage)
    assert triage.asked == [1, 1, 2, 3]  # with the calls that it reads, then all
    assert any(line.startswith("SMALLEST 3 calls of 3") for line in lines)
