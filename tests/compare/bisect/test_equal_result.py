"""The answer of `aoti-debug equal`, as lines and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from aoti_debug.compare.bisect.build_changes import LeaveOut, Part, SettingChange
from aoti_debug.compare.bisect.build_trials import BuildFault, BuildTrial
from aoti_debug.compare.bisect.equal_result import (
    EqualEnd,
    EqualSearch,
    EqualStep,
    equal_document,
    equal_lines,
    exit_code,
    why_unequal,
)
from aoti_debug.compare.bisect.equality import Equality, UnequalLaunch
from aoti_debug.instrument.frontend.protocol.messages import Applied
from aoti_debug.runs.run.timed_pairs import PairedTimes
from tests.schema import DOCS, problems

GELU = UnequalLaunch(
    launch="0.1",
    kernel="cpp_fused_gelu_1",
    line="model.py:7",
    values=("aten.erf.default",),
    operators=("aten.erf.default",),
)
BASELINE = BuildTrial(
    name="baseline",
    equality=Equality(launches=(GELU,), compared=2, outputs=("output 0: 3 of 8 elements differ",)),
    applied=Applied((), ("aten.gelu.default",), ("aten.mm.default",)),
    seconds=9.0,
)
EQUAL = BuildTrial(name="changed", changes=("a",), equality=Equality(compared=2), seconds=8.0)
PRICE = PairedTimes(before=1e-3, after=1.2e-3, ratio=1.2, low=1.1, high=1.3, pairs=21)
STEPS = (
    EqualStep(change=LeaveOut(Part.DECOMPOSITION, "aten.gelu.default"), without=BASELINE, price=PRICE),
    EqualStep(change=LeaveOut(Part.PASS, "pass_b"), without=EQUAL, price=replace(PRICE, low=0.9)),
)
FOUND = EqualSearch(
    end=EqualEnd.EQUAL, trials=(BASELINE, EQUAL), known=1, steps=STEPS, best=EQUAL, price=replace(PRICE, ratio=1.4)
)


def test_an_answer_says_what_heals_what_and_at_which_price() -> None:
    assert equal_lines(FOUND) == [
        "baseline     9.0 s  1 launch not equal; output 0: 3 of 8 elements differ",
        "note: the first 1 build had been made before",
        "",
        "EQUAL with 2 changes, each is needed: without it the outputs differ; 2 builds",
        "  torch._inductor.decomposition.decompositions.pop(torch.ops.aten.gelu.default)",
        "    heals 0.1 cpp_fused_gelu_1 (model.py:7)",
        "    time  1.2 ms a call, without 1 ms: 1.20 times as long (quartiles 1.10 to 1.30 of 21 pairs)",
        "  --inductor-config disabled_passes=pass_b",
        "    heals no launch: the graph that kernels are generated from may differ",
        "    time  1.2 ms a call, without 1 ms: 1.20 times as long (quartiles 0.90 to 1.30 of 21 pairs; "
        "no clear difference)",
        "  lines of Python go into a module for --import",
        "  time    all together: 1.2 ms a call, without 1 ms: 1.40 times as long (quartiles 1.10 to 1.30 of 21 pairs)",
        "  proved  by a build with these changes: what it returned and kept was eager's, bit for bit",
        "  kind    rounding, likely: no launch that was compared is wrong; operators that Inductor computes otherwise "
        "may round otherwise",
    ]


@pytest.mark.parametrize(
    ("end", "first", "code"),
    [
        (EqualEnd.ALREADY, "EQUAL ALREADY: what the package returns and keeps is eager's, bit for bit; 2 builds", 0),
        (EqualEnd.CANNOT, "CANNOT BE MADE EQUAL: not with all changes together either; 2 builds", 1),
        (EqualEnd.UNFINISHED, "NOT FINISHED: no build is equal yet: it is late; 2 builds", 7),
        (EqualEnd.NOT_REPEATABLE, "NOT REPEATABLE it is late: nothing can be made equal to it; 2 builds", 7),
        (EqualEnd.UNKNOWN, "NOT COMPARABLE it is late; 2 builds", 7),
        (EqualEnd.NOT_MINIMAL, "EQUAL with 2 changes, some of which may not be needed: it is late; 2 builds", 1),
    ],
)
def test_how_a_search_ends(end: EqualEnd, first: str, code: int) -> None:
    found = replace(FOUND, end=end, reason="it is late", known=0, best=BASELINE)
    assert equal_lines(found)[0] == first
    assert exit_code(found) == code
    assert problems(equal_document(found), json.loads((DOCS / "equal.schema.json").read_text())) == []


def test_a_finding_of_the_baseline_is_a_bug_and_says_may() -> None:
    wrong = replace(BASELINE, finding=BuildFault.LAUNCH, wrong="0.1 cpp_1 is wrong")
    (line,) = [line for line in equal_lines(replace(FOUND, trials=(wrong, EQUAL))) if line.startswith("  kind")]
    assert line == (
        "  kind    a bug may be the cause: in the baseline, 0.1 cpp_1 is wrong; aoti-debug triage looks into it"
    )


def test_settings_alone_are_a_switch() -> None:
    step = EqualStep(change=SettingChange("pattern_matcher", "False", "the pattern matcher"), without=BASELINE)
    assert replace(FOUND, steps=(step,)).kind == "switch"


@pytest.mark.parametrize(
    ("launch", "why"),
    [
        (replace(GELU, same_code=True), "it calls the operator as eager does"),
        (GELU, "generated code cannot call aten.erf.default as it is"),
        (
            replace(GELU, values=("aten.mm.default",), operators=("aten.mm.default",)),
            "no change that was tried gives eager's bits",
        ),
    ],
)
def test_why_a_launch_stays_unequal(launch: UnequalLaunch, why: str) -> None:
    assert why in why_unequal(launch, FOUND)
