"""Tests of `aoti_debug.triage.investigation.investigation`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from aoti_debug.base.machine.steps import Step, Steps
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.package.manifest import Constant, Role
from aoti_debug.runs.diagnosis.findings import NONFINITE, UNFINISHED, Finding
from aoti_debug.triage.investigation.investigation import SoFar, Suspicion, deeper
from aoti_debug.triage.investigation.triage_runs import TriageOptions
from tests import factories

OPTIONS = TriageOptions(model=Path("model.pt2"), time_limit=540.0)
LONGER = "aoti-debug triage model.pt2 --time-limit 2160"


def steps_at(name: str) -> Steps:
    steps = Steps()
    steps.add(Step("build", 2.0, "3 launch sites, cpu"))
    steps.running = name
    return steps


def test_time_that_is_over_in_the_build() -> None:
    outcome = SoFar().outcome(OPTIONS, steps_at("build"))
    assert outcome.run is None
    assert outcome.finding.kind == UNFINISHED
    assert outcome.finding.what == "ended after 9 min 0 s, in: build; no run of the model was looked at"
    assert outcome.finding.warnings == ("build: 3 launch sites, cpu",)
    assert outcome.finding.next == (LONGER,)


def test_a_longer_triage_looks_at_the_same_calls() -> None:
    options = replace(OPTIONS, inputs=Path("x.pt"), calls=3, guards=True, user_code=UserCode(("ops",)))
    (longer,) = SoFar().outcome(options, steps_at("build")).finding.next
    assert longer == ("aoti-debug triage model.pt2 --inputs x.pt --import ops --calls 3 --guards --time-limit 2160")


def test_time_that_is_over_after_the_last_check() -> None:
    so_far = SoFar()
    run: Any = SimpleNamespace(launches=(1,))
    so_far.run, so_far.seen = run, ["no fault"]
    assert so_far.outcome(OPTIONS, steps_at("run")).finding.what == (
        "1 launch: no fault; ended after 9 min 0 s, in: run"
    )


def test_time_that_is_over_between_checks() -> None:
    so_far = SoFar()
    run: Any = SimpleNamespace(launches=(1, 2, 3))
    so_far.run, so_far.seen, so_far.left = run, ["no fault", "outputs finite"], ["wrong value", "wrong under threads"]
    outcome = so_far.outcome(replace(OPTIONS, time_limit=8.0), steps_at("evaluate"))
    assert outcome.run is run
    assert outcome.finding.what == (
        "3 launches: no fault, outputs finite; ended after 8.0 s, in: evaluate; not looked for to the end: wrong "
        "value, wrong under threads"
    )
    assert not outcome.finding.kind.is_fault


def test_what_checks_have_told_is_kept() -> None:
    so_far = SoFar()
    run: Any = SimpleNamespace(launches=(1,))
    so_far.run, so_far.seen, so_far.left = run, ["no fault"], ["wrong value"]
    so_far.open, so_far.warnings = ["2 tensors were not saved"], ("inf in buf3 may be meant",)
    finding = so_far.outcome(OPTIONS, steps_at("evaluate")).finding
    assert finding.what == (
        "1 launch: no fault; 2 tensors were not saved; ended after 9 min 0 s, in: evaluate; not looked for to the end: "
        "wrong value"
    )
    assert finding.warnings == ("build: 3 launch sites, cpu", "inf in buf3 may be meant")


def test_a_finding_that_was_being_confirmed_is_kept() -> None:
    so_far = SoFar()
    so_far.warnings = ("a note", "of an earlier check")
    run: Any = SimpleNamespace(launches=())
    diagnosed: Any = SimpleNamespace(run=run)
    so_far.suspicion = Suspicion(Finding(NONFINITE, "NaN in buf1", warnings=("a note",)), diagnosed)
    outcome = so_far.outcome(OPTIONS, steps_at("repro, native"))
    assert (outcome.finding.kind, outcome.finding.what, outcome.run) == (NONFINITE, "NaN in buf1", run)
    unconfirmed = "not confirmed: ended after 9 min 0 s, in: repro, native"
    assert outcome.finding.warnings == ("a note", "of an earlier check", unconfirmed)
    assert outcome.finding.next == (LONGER,)


def test_a_triage_that_found_nothing_names_one_that_looks_further() -> None:
    cursor = Constant("cursor", "cursor", "int64", (1,), (1,), folded=False, kind="Buffer")
    reads = replace(factories.make_manifest(factories.site("k", factories.arg("cursor"))), constants=(cursor,))
    advances = factories.site("k", factories.arg("view", Role.INOUT, base="cursor"))
    writes = replace(factories.make_manifest(advances), constants=(cursor,))
    guarded = replace(OPTIONS, guards=True)
    assert deeper(OPTIONS, reads) == ("aoti-debug triage model.pt2 --guards",)
    assert deeper(OPTIONS, writes) == ("aoti-debug triage model.pt2 --calls 4 --guards",)
    assert deeper(guarded, writes) == ("aoti-debug triage model.pt2 --guards --calls 4",)
    assert deeper(guarded, reads) == ()
    assert deeper(replace(guarded, calls=2), writes) == ()
