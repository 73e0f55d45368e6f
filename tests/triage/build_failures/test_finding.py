"""The findings of failed builds, together with the finding of what was built without the parts that fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import aoti_debug
from aoti_debug.instrument.frontend.protocol.build_failure import BuildFailure, BuildStage, Position
from aoti_debug.runs.diagnosis.findings import CLEAN, FAULT, UNFINISHED, Finding
from aoti_debug.runs.show.finding import finding_lines
from aoti_debug.triage.build_failures.finding import all_failures, finding_of, with_failures
from aoti_debug.triage.build_failures.proof_script import Replay
from aoti_debug.triage.results.finding_kinds import BUILD_FAILURE
from tests.triage.build_failures import failures

FOLDER = Path("/triages/1/build_failure")


def found(failure: BuildFailure, what: str = "", *, is_same: bool = True) -> Finding:
    return finding_of(failure, Replay(FOLDER, what or failure.what, is_same))


def test_a_lowering() -> None:
    finding = found(failures.LOWERING)
    assert finding.kind is BUILD_FAILURE
    assert finding.what == "lowering of aten.erf.default: RuntimeError: no such layout"
    assert finding.where is not None
    assert finding.where.operator == "aten.erf.default"
    assert finding.evidence == (
        "node node_1 of the graph that Inductor lowers: the exception came out of it",
        "innermost Python frame: /site-packages/torch/a.py:1 in f",
        "innermost frame outside of installed packages: /home/u/ops.py:4 in broken",
    )
    assert finding.confirmed_by == ("repro.py: RuntimeError: no such layout",)
    assert finding.next == (f"python {FOLDER}/repro.py",)


def test_a_pass_a_kernel_and_a_candidate() -> None:
    assert found(failures.PASS).what == "graph pass my_pass: no end within 30 s"
    assert found(failures.PASS).evidence[0] == "it was at work when the time limit passed"
    kernel = found(failures.KERNEL)
    assert kernel.where is not None
    assert kernel.where.kernel == "cpp_fused_erf_1"
    assert kernel.evidence[-1] == "the kernel computes aten.relu.default, aten.erf.default"
    assert found(failures.CANDIDATE).what == "autotuning triton_mm_3 with BLOCK_M=128: SIGSEGV"


def test_code_of_a_kernel_blames_no_operator() -> None:
    finding = found(failures.CODE)
    assert finding.what == "code generation of nodes node_1, node_0: RuntimeError: no such code"
    assert finding.where is None
    assert finding.evidence == (
        "code of nodes node_1, node_0 of the graph that Inductor lowers: the exception came out of it",
        "the kernel computes aten.erf.default (model.py:2), aten.relu.default (model.py:1)",
        "innermost Python frame: /site-packages/torch/a.py:1 in f",
    )


def test_code_of_a_kernel_blames_the_operator_that_fails_alone() -> None:
    erf = Position(BuildStage.CODE, "aten.erf.default", "node_1")
    finding = finding_of(failures.CODE, Replay(FOLDER, failures.CODE.what, True, erf, ("node node_0 alone: no",)))
    assert finding.what == "code generation of aten.erf.default: RuntimeError: no such code"
    assert finding.where is not None
    assert (finding.where.operator, finding.where.frame) == ("aten.erf.default", failures.LINES[1])
    assert finding.evidence[0] == "the call of aten.erf.default alone, node node_1, fails in the same way"
    assert "node node_0 alone: no" in finding.evidence


def test_code_blames_the_operator_that_was_at_work() -> None:
    position = Position(BuildStage.CODE, "aten.erf.default", "node_1", nodes=("node_1", "node_0"))
    finding = found(replace(failures.CODE, position=position), "it compiles", is_same=False)
    assert finding.what == "code generation of aten.erf.default: RuntimeError: no such code"
    assert finding.where is not None
    assert finding.where.operator == "aten.erf.default"
    assert finding.evidence[0] == (
        "code of node node_1 of the graph that Inductor lowers: the exception came out of it"
    )
    assert finding.contradicted_by == ("repro.py: it compiles",)


def test_frames_of_aoti_debug_are_not_blamed() -> None:
    own = f"{Path(aoti_debug.__file__).parent}/instrument/frontend/worker/lower.py:3 in _lower"
    finding = found(replace(failures.LOWERING, stack=(failures.LOWERING.stack[0], own)))
    assert not any("aoti_debug" in sentence for sentence in finding.evidence)


def test_a_repro_that_does_not_fail_contradicts() -> None:
    finding = found(failures.LOWERING, "it compiles", is_same=False)
    assert (finding.confirmed_by, finding.contradicted_by) == ((), ("repro.py: it compiles",))
    missing = finding_of(failures.CANDIDATE, Replay(None, "no repro: its graph was not recorded"))
    assert (missing.repro, missing.next, missing.warnings) == ("", (), ("no repro: its graph was not recorded",))


def test_a_clean_rest_is_evidence() -> None:
    clean = Finding(CLEAN, "3 launches in 1 call: no fault", warnings=("a note",))
    finding = with_failures(clean, [found(failures.LOWERING)], "without the lowering of aten.erf.default")
    assert finding.also == ()
    assert finding.evidence[-1].endswith("the model has no other finding: 3 launches in 1 call: no fault")
    assert finding.warnings == ("a note",)


def test_a_rest_that_was_not_looked_into_to_the_end() -> None:
    late = Finding(UNFINISHED, "ended after 9 min 0 s")
    finding = with_failures(late, [found(failures.LOWERING)], "without the lowering of aten.erf.default")
    assert finding.evidence[-1].endswith("the model was not looked into to the end: ended after 9 min 0 s")


def test_other_findings_follow_and_say_what_they_are_of() -> None:
    fault = Finding(FAULT, "SIGSEGV")
    finding = with_failures(fault, [found(failures.LOWERING), found(failures.PASS)], "without the pass my_pass")
    assert [other.kind.value for other in finding.also] == ["build_failure", "fault"]
    assert finding.also[1].warnings == ("this is of the package built without the pass my_pass",)
    headings = [line for line in finding_lines(finding, 100) if line and not line.startswith(" ")]
    assert headings == [
        "BUILD FAILURE lowering of aten.erf.default: RuntimeError: no such layout",
        "BUILD FAILURE graph pass my_pass: no end within 30 s",
        "FAULT SIGSEGV",
    ]
    assert all_failures([fault]).also == ()
