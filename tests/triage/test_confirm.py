from __future__ import annotations

from pathlib import Path

from aoti_debug.diagnosis import findings
from aoti_debug.diagnosis.findings import Finding
from aoti_debug.repro.evidence import Evidence, Mode
from aoti_debug.triage import confirm
from aoti_debug.triage.confirm import Confirmation, Trial

FAULT = Finding(findings.FAULT, "SIGSEGV")


def trial(name: str, outcome: str, what: str = "", code: int = 11) -> Trial:
    return Trial(Mode(name, ()), Evidence("0.0 k", name, "", "", outcome, code, what, (), ()), 1.0)


def confirmed(*trials: Trial) -> Confirmation:
    return Confirmation(Path("triage/repro"), trials, ())


def test_a_fault_that_comes_again_is_confirmed() -> None:
    found = confirm.of_fault(FAULT, confirmed(trial("native", "fault", "SIGSEGV"), trial("checked", "as recorded")))
    assert found.confirmed_by == ("native: SIGSEGV",)
    assert found.contradicted_by == ("checked: the same values again",)
    assert (found.repro, found.next) == ("triage/repro", ("python triage/repro/repro.py",))


def test_values_that_come_again_are_confirmed() -> None:
    found = confirm.of_values(FAULT, confirmed(trial("cubin", "as recorded", code=0)))
    assert (found.confirmed_by, found.contradicted_by) == (("cubin: the same values again",), ())


def test_a_trial_that_failed_says_nothing_either_way() -> None:
    found = confirm.of_fault(FAULT, confirmed(trial("checked", "failed", "it does not compile", 1)))
    assert (found.confirmed_by, found.contradicted_by) == ((), ())
    assert found.warnings == ("checked: it does not compile",)


def test_a_repro_without_an_end_confirms_a_hang() -> None:
    found = confirm.of_hang(FAULT, confirmed(trial("native", "failed", "no end within 5 s", -9)))
    assert found.confirmed_by == ("native: no end within 5 s",)
    assert confirm.of_hang(FAULT, confirmed(trial("native", "as recorded"))).confirmed_by == ()


def test_without_a_repro_there_is_nothing_to_type() -> None:
    found = confirm.of_fault(FAULT, Confirmation(None, (), ("launches of kind item cannot be replayed",)))
    assert (found.repro, found.next) == ("", ())
