from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aoti_debug.base.machine.steps import Steps
from aoti_debug.compare.measure.output_errors import OutputError
from aoti_debug.compare.what_if.what_if import Recovery
from aoti_debug.repro.run_repro import Evidence, Mode
from aoti_debug.runs.diagnosis import findings
from aoti_debug.runs.diagnosis.findings import Finding
from aoti_debug.triage.investigation import confirm_by_repro
from aoti_debug.triage.investigation.confirm_by_repro import Confirmation, ReproTrial

FAULT = Finding(findings.FAULT, "SIGSEGV")


def trial(name: str, outcome: str, what: str = "", code: int = 11) -> ReproTrial:
    return ReproTrial(Mode(name, ()), Evidence("0.0 k", name, "", "", outcome, code, what, (), ()), 1.0)


def confirmed(*trials: ReproTrial) -> Confirmation:
    return Confirmation(Path("triage/repro"), trials, ())


def test_a_fault_that_comes_again_is_confirmed() -> None:
    found = confirm_by_repro.of_fault(
        FAULT, confirmed(trial("native", "fault", "SIGSEGV"), trial("checked", "as recorded"))
    )
    assert found.confirmed_by == ("native: SIGSEGV",)
    assert found.contradicted_by == ("checked: it reproduces the recorded values",)
    assert (found.repro, found.next) == ("triage/repro", ("python triage/repro/repro.py",))


def test_values_that_come_again_are_confirmed() -> None:
    found = confirm_by_repro.of_values(FAULT, confirmed(trial("cubin", "as recorded", code=0)))
    assert (found.confirmed_by, found.contradicted_by) == (("cubin: it reproduces the recorded values",), ())


def test_a_trial_that_failed_says_nothing_either_way() -> None:
    found = confirm_by_repro.of_fault(FAULT, confirmed(trial("checked", "failed", "it does not compile", 1)))
    assert (found.confirmed_by, found.contradicted_by) == ((), ())
    assert found.warnings == ("checked: it does not compile",)


def test_where_there_is_no_repro_the_reason_is_a_warning() -> None:
    refused = Confirmation(None, (), ("no repro: x was not saved",))
    for made in (confirm_by_repro.of_fault, confirm_by_repro.of_values, confirm_by_repro.of_hang):
        found = made(FAULT, refused)
        assert (found.repro, found.warnings) == (FAULT.repro, ("no repro: x was not saved",))
    with_repro = Confirmation(Path("triage/repro"), (), ("memcheck: there is no compute-sanitizer",))
    assert confirm_by_repro.of_fault(FAULT, with_repro).warnings == ()


def test_a_repro_without_an_end_confirms_a_hang() -> None:
    found = confirm_by_repro.of_hang(FAULT, confirmed(trial("native", "failed", "no end within 5 s", -9)))
    assert found.confirmed_by == ("native: no end within 5 s",)
    assert confirm_by_repro.of_hang(FAULT, confirmed(trial("native", "as recorded"))).confirmed_by == ()


@pytest.mark.parametrize(
    ("recovered", "end"), [("", "0 after"), ("eager has it as well", "0 after; eager has it as well")]
)
def test_outputs_that_are_right_with_another_result(recovered: str, end: str) -> None:
    before, after = (
        OutputError(index=0, dtype="float32", elements=4, different=4, relative=r) for r in (math.inf, 0.0)
    )
    outputs = SimpleNamespace(before=(before,), after=(after,), recovery=Recovery.RECOVERED)
    found: Any = SimpleNamespace(
        outputs=outputs, after=SimpleNamespace(refused=()), launches=(SimpleNamespace(id="0.2"),)
    )
    said = confirm_by_repro._sentence(found, "", recovered)
    assert said.startswith("with the result of 0.2 replaced by what its graph gives in eager, the outputs are")
    assert said.endswith(f"relative error inf before, {end}")


def test_without_a_repro_there_is_nothing_to_type() -> None:
    found = confirm_by_repro.of_fault(FAULT, Confirmation(None, (), ("launches of kind item cannot be replayed",)))
    assert (found.repro, found.next) == ("", ())


Replay = Callable[..., tuple[list[str], Steps]]


@pytest.fixture
def replay(monkeypatch: pytest.MonkeyPatch) -> Replay:
    """Runs a repro whose modes have these outcomes, on a machine of two cores; gives the modes that were run.

    What the mode "native" ended in may be given, and a list that takes the seconds that "address" is given.
    """

    def replay(
        outcomes: dict[str, str], native: str = "", limits: list[float] | None = None
    ) -> tuple[list[str], Steps]:
        ran: list[str] = []
        together = threading.Barrier(2)

        def gather(repro: Path, words: tuple[str, ...], seconds: float) -> Evidence:
            (name,) = words
            if name != "address":
                together.wait(30)  # only if both go on at once does either end
            elif limits is not None:
                limits.append(seconds)
            ran.append(name)
            return trial(name, outcomes[name], native if name == "native" else "").evidence

        monkeypatch.setattr(os, "cpu_count", lambda: 2)
        monkeypatch.setattr(confirm_by_repro, "this_machine", lambda *_, **__: None)
        monkeypatch.setattr(confirm_by_repro, "modes", lambda *_: tuple(Mode(name, (name,)) for name in outcomes))
        monkeypatch.setattr(confirm_by_repro, "gather", gather)
        steps = Steps()
        launch = SimpleNamespace(site=SimpleNamespace(kind=None))
        run = SimpleNamespace(manifest=SimpleNamespace(compiler=None, device="cpu"))
        confirm_by_repro.run(Path("repro"), launch, run, confirm_by_repro.FAULT, steps)  # type: ignore[arg-type]
        return ran, steps

    return replay


def test_a_sanitizer_is_not_needed_where_the_others_show_the_fault(replay: Replay) -> None:
    ran, steps = replay({"native": "fault", "checked": "fault", "address": "fault"})
    assert sorted(ran) == ["checked", "native"]
    first, second = steps.done
    assert first.began < second.began + second.seconds
    assert second.began < first.began + first.seconds


@pytest.mark.parametrize("outcome", ["as recorded", "failed"])
def test_a_sanitizer_is_needed_where_one_of_them_does_not(replay: Replay, outcome: str) -> None:
    ran, _ = replay({"native": "fault", "checked": outcome, "address": "fault"})
    assert ran[-1] == "address"
    assert len(ran) == 3


def test_a_sanitizer_is_not_needed_where_the_kernel_throws(replay: Replay) -> None:
    """Where it cannot be compiled with checked pointers; a signal alone does not say what is wrong."""
    outcomes = {"native": "fault", "checked": "failed", "address": "fault"}
    assert sorted(replay(outcomes, "RuntimeError: index out of bounds: 0 <= tmp2 < 64L")[0]) == ["checked", "native"]
    assert len(replay(outcomes, "SIGSEGV")[0]) == 3


def test_a_sanitizer_may_take_a_few_times_as_long_as_the_others(replay: Replay) -> None:
    limits: list[float] = []
    replay({"native": "fault", "checked": "as recorded", "address": "fault"}, limits=limits)
    assert limits == [30.0]
