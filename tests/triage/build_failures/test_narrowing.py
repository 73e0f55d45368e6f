"""The smallest part that fails as a build did; which parts fail is made up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.instrument.frontend.protocol.build_failure import BuildFailure, BuildStage, Position
from aoti_debug.triage.build_failures.build_without import MAX_ALONE, proved
from aoti_debug.triage.build_failures.proof_script import Replay
from tests.triage.build_failures import failures

NODES = ("node_1", "node_0")
WHOLE = Position(BuildStage.CODE)
KERNEL = replace(WHOLE, nodes=NODES)
RELU = replace(WHOLE, name="aten.relu.default", node="node_0")
ERF = replace(WHOLE, name="aten.erf.default", node="node_1")
AT_WORK = replace(ERF, nodes=NODES)


def failing(*parts: Position) -> Callable[[BuildFailure], Replay]:
    """Runs scripts of which those of some parts fail."""

    def run(failure: BuildFailure) -> Replay:
        is_same = failure.position in parts
        return Replay(Path("repro"), "RuntimeError: no" if is_same else "it compiles", is_same, failure.position)

    return run


@pytest.mark.parametrize(
    ("failed", "fails", "part", "evidence"),
    [
        (AT_WORK, [ERF, KERNEL], ERF, ()),
        (AT_WORK, [KERNEL, RELU], RELU, ("node node_1 alone: it compiles",)),
        (AT_WORK, [KERNEL], KERNEL, ("node node_1 alone: it compiles", "node node_0 alone: it compiles")),
        (KERNEL, [KERNEL, RELU], RELU, ("node node_1 alone: it compiles",)),
        (KERNEL, [KERNEL, ERF, RELU], ERF, ()),
        (KERNEL, [WHOLE], WHOLE, ("nodes node_1, node_0 alone: it compiles",)),
        (WHOLE, [WHOLE], WHOLE, ()),
    ],
)
def test_the_smallest_part_that_fails_in_the_same_way_is_the_proof(
    failed: Position, fails: list[Position], part: Position, evidence: tuple[str, ...]
) -> None:
    done = proved(replace(failures.CODE, position=failed), failing(*fails))
    assert (done.is_same, done.position, done.evidence) == (True, part, evidence)


def test_what_does_not_fail_again_is_the_first_part() -> None:
    done = proved(replace(failures.CODE, position=AT_WORK), failing())
    assert (done.is_same, done.position) == (False, ERF)


def test_other_stages_have_one_part() -> None:
    asked = []

    def run(failure: BuildFailure) -> Replay:
        asked.append(failure)
        return Replay(None, "no repro: no graph")

    proved(failures.LOWERING, run)
    assert asked == [failures.LOWERING]


def test_of_a_large_kernel_not_every_call_is_tried() -> None:
    asked = []
    kernel = replace(KERNEL, nodes=NODES * 10)

    def run(failure: BuildFailure) -> Replay:
        asked.append(failure.position)
        return Replay(Path("repro"), "", failure.position == kernel, failure.position)

    assert proved(replace(failures.CODE, position=kernel), run).position == kernel
    assert len(asked) == 1 + MAX_ALONE
