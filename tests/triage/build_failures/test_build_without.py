"""Building without the parts that fail; the builds and the scripts are made up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aoti_debug.base.errors import ToolchainError
from aoti_debug.base.machine.steps import Steps
from aoti_debug.instrument.builder import build as builder
from aoti_debug.instrument.builder.options import BuildOptions
from aoti_debug.instrument.frontend.protocol.build_failure import (
    BuildFailure,
    BuildFailureError,
    BuildStage,
    Ending,
    Position,
)
from aoti_debug.instrument.frontend.protocol.messages import LeftOut, TunedChoice
from aoti_debug.triage.build_failures import build_without as build
from aoti_debug.triage.build_failures.build_without import BuiltWithout, build_without
from aoti_debug.triage.build_failures.proof_script import Replay
from tests.triage.build_failures import failures

OPTIONS = BuildOptions(Path("model.pt2"), inductor_configs={"max_autotune": True})
BUILT: Any = SimpleNamespace(stages={})


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[BuiltWithout, list[BuildOptions]]]:
    """Builds a model whose builds end in failures, one after the other, and at last succeed."""

    def built(
        *ends: BuildFailure | None, is_same: bool = True, unconfirmed: tuple[BuildFailure, ...] = ()
    ) -> tuple[BuiltWithout, list[BuildOptions]]:
        asked: list[BuildOptions] = []

        def build_report(options: BuildOptions) -> Any:
            asked.append(options)
            end = ends[len(asked) - 1]
            if end is not None:
                raise BuildFailureError("Inductor cannot lower the model", end, hint="aoti-debug triage")
            return BUILT

        monkeypatch.setattr(builder, "build_report", build_report)

        def replay(failure: BuildFailure, *_: object) -> Replay:
            return Replay(tmp_path, failure.what, is_same and failure not in unconfirmed)

        monkeypatch.setattr(build, "replay", replay)
        return build_without(OPTIONS, tmp_path, Steps(), lambda _: "44 launch sites"), asked

    return built


Builds = Callable[..., tuple[BuiltWithout, list[BuildOptions]]]


def test_a_build_that_succeeds_is_as_it_was_asked_for(builds: Builds) -> None:
    result, asked = builds(None)
    assert result == BuiltWithout(BUILT, (), "")
    assert asked == [OPTIONS]


def test_each_part_that_fails_is_left_out(builds: Builds) -> None:
    result, asked = builds(failures.LOWERING, failures.PASS, failures.CANDIDATE, None)
    assert result.summary is BUILT
    assert [finding.what.partition(":")[0] for finding in result.failures] == [
        "lowering of aten.erf.default",
        "graph pass my_pass",
        "autotuning triton_mm_3 with BLOCK_M=128",
    ]
    assert result.left_out == (
        "without the pass my_pass and without the lowering of aten.erf.default and without the candidate triton_mm_3"
    )
    assert [options.left_out for options in asked[:2]] == [None, LeftOut(lowerings=("aten.erf.default",))]
    assert asked[3].inductor_configs == {"max_autotune": True, "disabled_passes": "my_pass"}
    assert asked[3].left_out == LeftOut((), ("aten.erf.default",), (TunedChoice("triton_mm_3", "BLOCK_M=128"),))


def test_a_kernel_is_left_out_with_all_its_operators(builds: Builds) -> None:
    _, asked = builds(failures.KERNEL, None)
    assert asked[1].left_out == LeftOut(lowerings=("aten.relu.default", "aten.erf.default"))


def test_code_is_left_out_with_the_operator_that_was_at_work_or_with_all(builds: Builds) -> None:
    at_work = replace(failures.CODE, position=replace(failures.CODE.position, name="aten.erf.default", node="node_1"))
    assert builds(at_work, None)[1][1].left_out == LeftOut(lowerings=("aten.erf.default",))
    assert builds(failures.CODE, None)[1][1].left_out == LeftOut(lowerings=failures.CODE.operators)


def test_code_of_no_operator_is_a_finding_where_the_graph_fails_again(builds: Builds) -> None:
    failure = replace(failures.CODE, position=Position(BuildStage.CODE), operators=())
    result, _ = builds(failure)
    (finding,) = result.failures
    assert finding.what == "code generation: RuntimeError: no such code"
    assert finding.warnings[0] == "the model cannot be built: it was not run"


def test_a_part_that_fails_again_ends_in_its_finding(builds: Builds) -> None:
    result, asked = builds(failures.LOWERING, failures.LOWERING)
    assert (result.summary, result.left_out, len(asked)) == (None, "", 2)
    (finding,) = result.failures
    note = "the model cannot be built, also without the lowering of aten.erf.default: it was not run"
    assert finding.warnings == (note, "built with --inductor-config max_autotune=True")


def test_what_does_not_fail_alone_and_does_not_help_stays_an_error(builds: Builds) -> None:
    with pytest.raises(ToolchainError, match="Inductor cannot lower the model") as caught:
        builds(failures.LOWERING, failures.LOWERING, failures.LOWERING, is_same=False)
    assert not isinstance(caught.value, BuildFailureError)
    assert caught.value.hint.startswith("see whether torch._inductor")


def test_what_the_build_has_found_out_is_a_finding_without_a_script(builds: Builds) -> None:
    position = Position(BuildStage.TRACING, "while_loop", "while_loop")
    failure = BuildFailure(position, Ending.EXCEPTION, "RuntimeError: refused", note="mylib.add_ overwrites arg1_1")
    result, asked = builds(failure, failure, is_same=False)
    assert (result.summary, len(asked)) == (None, 2)
    (finding,) = result.failures
    assert finding.what == "tracing of while_loop: RuntimeError: refused"
    assert finding.evidence[0] == "mylib.add_ overwrites arg1_1"


def test_what_tracing_refuses_twice_is_a_finding_though_its_call_alone_compiles(builds: Builds) -> None:
    position = Position(BuildStage.TRACING, "aten.abs_.default", "abs_")
    failure = BuildFailure(position, Ending.EXCEPTION, "RuntimeError: internal overlap")
    result, asked = builds(failure, failure, is_same=False)
    assert (result.summary, len(asked), result.notes) == (None, 2, ())
    (finding,) = result.failures
    assert finding.what == "tracing of aten.abs_.default: RuntimeError: internal overlap"
    assert finding.evidence[0] == "a second build of the program ended in the same way"
    assert (finding.repro, finding.next, finding.confirmed_by) == ("", (), ())
    assert any(text.startswith("no repro: of a program of that call alone") for text in finding.warnings)
    with pytest.raises(ToolchainError):  # no operator is known
        builds(*2 * [replace(failure, position=Position(BuildStage.TRACING))], is_same=False)


DEATH = replace(failures.LOWERING, ending=Ending.DEATH, what="SIGKILL")
ONCE = "the build failed once: lowering of aten.erf.default: SIGKILL; a second one did not fail in this way"


def test_what_fails_once_is_no_finding(builds: Builds) -> None:
    result, asked = builds(DEATH, None, is_same=False)
    assert result == BuiltWithout(BUILT, (), "", (ONCE,))
    assert asked == [OPTIONS, OPTIONS]


def test_what_fails_twice_is_a_finding_though_its_repro_compiles(builds: Builds) -> None:
    result, asked = builds(DEATH, DEATH, None, is_same=False)
    assert (len(result.failures), result.left_out) == (1, "without the lowering of aten.erf.default")
    assert result.notes == ()
    assert asked[:2] == [OPTIONS, OPTIONS]


def test_another_failure_of_the_second_build_is_told_with_the_first(builds: Builds) -> None:
    result, asked = builds(DEATH, failures.PASS, None, unconfirmed=(DEATH,))
    assert [finding.what for finding in result.failures] == ["graph pass my_pass: no end within 30 s"]
    assert (result.left_out, result.notes, len(asked)) == ("without the pass my_pass", (ONCE,), 3)


def test_a_part_that_fails_in_another_way_without_it_is_told_once(builds: Builds) -> None:
    result, asked = builds(failures.LOWERING, DEATH, unconfirmed=(DEATH,))
    assert (result.summary, len(result.failures), result.notes, len(asked)) == (None, 1, (), 2)


def test_deaths_that_wander_end_in_an_error(builds: Builds) -> None:
    deaths = [
        replace(DEATH, position=Position(BuildStage.PASS, f"pass_{number}")) for number in range(build.MAX_LEFT_OUT + 1)
    ]
    with pytest.raises(ToolchainError, match="Inductor cannot lower the model"):
        builds(*deaths, *deaths[-1:], is_same=False)


def test_one_confirmed_failure_is_enough_and_comes_first(builds: Builds) -> None:
    result, _ = builds(DEATH, DEATH, failures.PASS, failures.PASS, unconfirmed=(DEATH,))
    assert result.summary is None
    assert [finding.what.partition(":")[0] for finding in result.failures] == [
        "graph pass my_pass",
        "lowering of aten.erf.default",
    ]
    assert result.failures[0].warnings[0].startswith("the model cannot be built, also without the pass my_pass")


def test_only_so_many_parts_are_left_out(builds: Builds) -> None:
    others = [
        BuildFailure(
            failures.LOWERING.position.__class__(failures.LOWERING.position.stage, f"aten.op{number}.default"),
            failures.LOWERING.ending,
            "ValueError: no",
        )
        for number in range(build.MAX_LEFT_OUT + 2)
    ]
    result, asked = builds(*others)
    assert (result.summary, len(result.failures), len(asked)) == (None, build.MAX_LEFT_OUT + 1, build.MAX_LEFT_OUT + 1)
