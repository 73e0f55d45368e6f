"""What a finding of NaN says of eager, and of memory that the program does not write; a search that is cut off."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from aoti_debug.base.abi import Phase
from aoti_debug.base.machine.steps import OutOfTime
from aoti_debug.compare.measure.output_errors import OutputError
from aoti_debug.compare.outcome import REFUSED
from aoti_debug.compare.protocol.messages import Refusal
from aoti_debug.compare.suspects import Alteration, LostOperator, UndefinedOperator
from aoti_debug.package.manifest import ModelLine, Role
from aoti_debug.runs.diagnosis.findings import NONFINITE, Finding, Place
from aoti_debug.triage.checks import nonfinite, wrong_value
from aoti_debug.triage.investigation import confirm_by_repro as replay
from aoti_debug.triage.investigation.investigation import Outcome
from aoti_debug.triage.nonfinite import nonfinite as search
from aoti_debug.triage.results import wrong_value_finding

FOUND = Finding(NONFINITE, "NaN in buf0", Place("0.0", "kernel"), possible=("it may come from x",))


CUMSUM = Place("0.0", "a", "aten.cumsum.default")


def error(misplaced: int) -> OutputError:
    return OutputError(
        index=0, dtype="float32", elements=4, different=misplaced, relative=0.0, misplaced=misplaced, computed="float32"
    )


@pytest.mark.parametrize(
    ("misplaced", "what"),
    [(0, "your model computes NaN in eager, too: NaN in buf0"), (3, "not as in eager: NaN in buf0")],
)
def test_the_headline_says_what_eager_returns(misplaced: int, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nonfinite, "output_values", lambda _: SimpleNamespace(what="NaN"))
    run: Any = SimpleNamespace(timeline=SimpleNamespace(calls=[0]))
    assert nonfinite._also_in_eager(FOUND, run, [error(misplaced)]).what == what
    assert nonfinite._also_in_eager(FOUND, run, []) == FOUND, "it was not called"
    run.timeline.calls.append(1)
    assert nonfinite._also_in_eager(FOUND, run, [error(misplaced)]) == FOUND, "only the last call was compared"


def test_nan_that_was_seen_is_told_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: object) -> None:
        raise OutOfTime

    measured = SimpleNamespace(verdict=None, diagnosed=SimpleNamespace(dataflow=None))
    options = SimpleNamespace(infinities=None)
    investigation: Any = SimpleNamespace(seen=["no fault"], options=options, run_measured=lambda: measured)
    monkeypatch.setattr(wrong_value, "begin", lambda _: None)
    monkeypatch.setattr(search, "find", lambda *_: search.NonFinite(FOUND))
    monkeypatch.setattr(nonfinite, "_with_origin", late)
    with pytest.raises(OutOfTime):
        nonfinite.look(investigation)
    assert investigation.seen == ["no fault", "NaN in buf0 (0.0 kernel), which may do no harm"]


def test_memory_that_is_not_written_is_the_origin() -> None:
    line = ModelLine("model.py", 7, "forward", "y = torch.empty(3)")
    seen = "gives memory that is read before it is written"
    unwritten = UndefinedOperator(node="y", operator="aten.empty.memory_format", seen=seen, outputs=(0,), line=line)
    differing = SimpleNamespace(index=0, misplaced=3)
    comparison: Any = SimpleNamespace(undefined=(unwritten,), outputs=(differing,))
    finding = nonfinite._of_unwritten(FOUND, comparison)
    assert finding.what == "your program reads memory that it does not write: NaN in buf0"
    assert finding.origin == Place(operator="aten.empty.memory_format", frame=line)
    assert finding.evidence[0] == f"aten.empty.memory_format (y) at model.py:7 {seen}"
    assert finding.possible == ()
    for outputs in ((), (SimpleNamespace(index=0, misplaced=0),), (differing, SimpleNamespace(index=1, misplaced=1))):
        elsewhere: Any = SimpleNamespace(undefined=(unwritten,), outputs=outputs)
        found = nonfinite._of_unwritten(FOUND, elsewhere)
        assert (found.what, found.origin, found.possible) == (FOUND.what, FOUND.origin, FOUND.possible)
        assert found.evidence[-1] == unwritten.text
    other: Any = SimpleNamespace(undefined=(UndefinedOperator(node="op", operator="mine.op", seen="overwrites x"),))
    assert nonfinite._of_unwritten(FOUND, other) == FOUND
    chooses = UndefinedOperator(node="sort", operator="aten.sort.default", seen="leaves open which", outputs=(0,))
    choosing: Any = SimpleNamespace(undefined=(chooses,), outputs=(differing,))
    assert nonfinite._of_unwritten(FOUND, choosing) == FOUND, "it is not about memory"


@pytest.mark.parametrize(("launch", "origin"), [("0.0", CUMSUM), ("0.1", None)])
def test_what_comes_into_a_launch_that_is_wrong_is_not_the_origin(launch: str, origin: Place | None) -> None:
    given = Place(input="x", element=0)
    finding = replace(FOUND, what="NaN in buf0, from +Inf in x[0], an input of the model", origin=given)
    assert finding.where is not None
    finding = replace(finding, where=replace(finding.where, launch="0.0"))
    wrong: Any = SimpleNamespace(launch=SimpleNamespace(id=launch), finding=SimpleNamespace(origin=CUMSUM))
    found = nonfinite._made_by_launch(finding, wrong)
    assert (found.what, found.origin) == ("NaN in buf0", origin)
    made = replace(finding, origin=Place(launch="0.0", kernel="a"))
    unsure: Any = SimpleNamespace(launch=SimpleNamespace(id="0.0"), finding=SimpleNamespace(origin=None))
    assert nonfinite._made_by_launch(made, unsure) == made


def test_the_operators_of_a_launch_that_is_wrong_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    row = SimpleNamespace(launch=SimpleNamespace(id="0.0"))
    monkeypatch.setattr(wrong_value_finding, "operators_of", lambda _: ("it is computed by div, relu",))
    comparison: Any = SimpleNamespace(is_program_altered=False, first_wrong=row)
    wrong: Any = SimpleNamespace(launch=row.launch, finding=SimpleNamespace(what="15 of 30 elements"))
    said = "from the same inputs, its program computes something else: 15 of 30 elements"
    assert nonfinite._of_program(comparison, wrong, "0.0") == (said, "it is computed by div, relu")
    assert nonfinite._of_program(comparison, wrong, "0.1") == ()


def test_a_program_that_a_pass_has_changed_is_evidence() -> None:
    changed: Any = SimpleNamespace(is_program_altered=True, alteration=Alteration(math.inf))
    (sentence,) = nonfinite._of_program(changed, None, "0.0")
    assert sentence.startswith("a graph pass or a decomposition of Inductor changed the program")
    unchanged: Any = SimpleNamespace(is_program_altered=False, alteration=Alteration(math.inf))
    assert nonfinite._of_program(unchanged, None, "0.0") == ()


def test_the_operator_whose_value_a_pass_has_lost_is_the_origin() -> None:
    line = ModelLine("model.py", 7, "forward", "y = y + zeros")
    lost = LostOperator("add", "aten.add.Tensor", "add = aten.add.Tensor(y, zeros)", line)
    changed: Any = SimpleNamespace(is_program_altered=True, alteration=Alteration(math.inf, lost=(lost,)))
    assert nonfinite._of_lost(FOUND, changed).origin == Place(operator="aten.add.Tensor", frame=line)
    unchanged: Any = SimpleNamespace(is_program_altered=False, alteration=Alteration(1e-9, lost=(lost,)))
    assert nonfinite._of_lost(FOUND, unchanged) == FOUND


def test_what_eager_refuses_is_told_beside() -> None:
    refusal = Refusal(error="RuntimeError", words="value cannot be converted", operator="aten.clamp_min.default")
    comparison: Any = SimpleNamespace(refusal=refusal, refusal_line=None, run=SimpleNamespace(launches=[0]))
    (found,) = nonfinite._besides(comparison, None, "0.0")
    assert (found.kind, found.what) == (REFUSED, "value cannot be converted")
    wrong: Any = SimpleNamespace(needed=("0.0",), finding=FOUND)
    comparison.refusal = None
    assert list(nonfinite._besides(comparison, wrong, "0.0")) == []
    assert list(nonfinite._besides(comparison, wrong, "0.1")) == [FOUND]


def test_what_eager_refuses_is_told_beside_a_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    of_input = replace(FOUND, where=Place(input="x", element=0))
    refusal = Refusal(error="RuntimeError", words="it should be between 0 and 1", operator="aten.bce.default")
    comparison = SimpleNamespace(refusal=refusal, refusal_line=None, run=SimpleNamespace(launches=[0]))
    outcome = Outcome(of_input, None)
    monkeypatch.setattr(search, "explain", lambda finding, _: finding)
    monkeypatch.setattr(nonfinite, "_with_operator", lambda _, finding, __: finding)
    monkeypatch.setattr(replay, "same_values", lambda *_: outcome)
    monkeypatch.setattr(wrong_value, "with_program", lambda _: (comparison, None))
    saved: Any = SimpleNamespace(run=None, diagnosed=None)
    suspicion: Any = SimpleNamespace(saved=saved, finding=of_input)
    investigation: Any = None
    (also,) = nonfinite.confirm(investigation, suspicion).finding.also
    assert (also.kind, also.what) == (REFUSED, "it should be between 0 and 1")


class Gain(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = torch.nn.Parameter(torch.tensor([[1.0, math.nan], [math.inf, 2.0]]))
        self.shift = torch.nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gain + self.shift


def test_weights_of_a_program_that_are_not_finite(tmp_path: Path) -> None:
    program = tmp_path / "program.pt2"
    torch.export.save(torch.export.export(Gain(), (torch.ones(2, 2),)), program)
    said = ["gain[0, 1], a weight of the program, is nan (and 1 more of its elements)"]
    assert list(nonfinite._nonfinite_weights(program)) == said


@pytest.mark.parametrize("is_measured", [True, False])
def test_what_a_launch_may_read_packed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, is_measured: bool) -> None:
    monkeypatch.setattr(nonfinite, "_nonfinite_weights", lambda _: iter(["gain[7], a weight of the program, is nan"]))
    argument = SimpleNamespace(role=Role.IN, stats={})
    if is_measured:
        argument.stats[Phase.BEFORE] = SimpleNamespace(uninitialised=False, statistics=object())
    run: Any = SimpleNamespace(launch=lambda _: SimpleNamespace(args=[argument]))
    finding = Finding(NONFINITE, "NaN in buf0", Place(launch="0.0", kernel="linear"))
    found = nonfinite._of_folded(finding, run, tmp_path)
    said = ("gain[7], a weight of the program, is nan, which it may read folded or packed",)
    assert found.possible == (() if is_measured else said)
    assert nonfinite._of_folded(replace(finding, origin=Place(input="x")), run, tmp_path).possible == ()
