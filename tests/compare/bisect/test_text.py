"""The last line of a bisection: what was found, and whether it is proved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aoti_debug.compare.bisect.bisect import Bisection, SettingsBisection, SuspectLaunch
from aoti_debug.compare.bisect.build_changes import LeaveOut, Part, SettingChange
from aoti_debug.compare.bisect.build_trials import BuildFault, BuildTrial
from aoti_debug.compare.bisect.text import bisection_document, bisection_lines, settings_document, settings_lines
from aoti_debug.compare.diff.pairs import PairedBy
from aoti_debug.compare.measure.output_errors import OutputError
from aoti_debug.compare.measure.verdicts import LaunchVerdict
from aoti_debug.compare.what_if.what_if import Outputs
from tests.compare.chains import chain
from tests.schema import DOCS, problems

HALVES = "by halves: with all results up to it replaced, the outputs are right"
ALL_THE_SAME = "the outputs are within rounding of the good package's all the same"
NOTHING = "the outputs differ, and no launch writes something else from the same inputs"
RIGHT, WRONG = (
    OutputError(index=0, dtype="float32", elements=8, different=8, relative=relative) for relative in (1e-7, 0.5)
)


def found(
    folder: Path, outputs: Outputs, culprits: tuple[int, ...] = (), rounding: tuple[int, ...] = (), between: int = 0
) -> Bisection:
    run = chain(folder, ("aten.add.Tensor",) * 3)
    suspects = [SuspectLaunch(run.launches[i], (), LaunchVerdict.WRONG, True) for i in culprits]
    suspects += [SuspectLaunch(run.launches[i], (), LaunchVerdict.OK, False) for i in rounding]
    return Bisection(
        good=run,
        bad=run,
        by=PairedBy.LAUNCH,
        paired=3,
        same=3 - len(suspects),
        suspects=tuple(suspects),
        between=run.launches[:between],
        outputs=outputs,
        runs=4,
        notes=(),
    )


@pytest.mark.parametrize(
    ("outputs", "culprits", "rounding", "between", "last"),
    [
        ((WRONG, RIGHT), (1,), (), 0, "PROVED with the results of 0.1 replaced, the outputs match again"),
        ((WRONG, WRONG), (0,), (), 0, "NOT PROVED with the results of 0.0 replaced, the outputs still do not match"),
        (
            (WRONG, WRONG),
            (0,),
            (),
            2,
            "NOT RECOVERED with 0.0 replaced; with all results up to 0.1 replaced, the outputs are right: one of 0.0 "
            "to 0.1 may be to blame as well",
        ),
        ((WRONG, WRONG), (), (), 1, f"FOUND 0.0, {HALVES}"),
        ((RIGHT, RIGHT), (1,), (), 0, f"FOUND 0.1: {ALL_THE_SAME}"),
        ((RIGHT, RIGHT), (), (1,), 0, "WITHIN ROUNDING"),
        ((RIGHT, RIGHT), (), (), 0, "SAME"),
        ((WRONG, WRONG), (), (), 0, f"NOT FOUND: {NOTHING}"),
    ],
)
def test_the_conclusion(
    tmp_path: Path,
    outputs: tuple[OutputError, OutputError],
    culprits: tuple[int, ...],
    rounding: tuple[int, ...],
    between: int,
    last: str,
) -> None:
    before, after = outputs
    bisection = found(tmp_path, Outputs((before,), (after,)), culprits, rounding, between)
    assert bisection_lines(bisection)[-1] == f"{last}; 4 runs"
    document = bisection_document(bisection)
    assert problems(document, json.loads((DOCS / "bisect.schema.json").read_text())) == []
    assert (document["conclusion"], document["is_clean"]) == (last, bisection.is_clean)
    assert [suspect["launch"] for suspect in document["suspects"] if suspect["is_culprit"]] == [
        f"0.{number}" for number in culprits
    ]
    assert bisection.is_clean is (last.startswith(("SAME", "WITHIN ROUNDING")))


def test_launches_that_differ_by_rounding_are_counted(tmp_path: Path) -> None:
    lines = bisection_lines(found(tmp_path, Outputs((RIGHT,), (RIGHT,)), rounding=(0, 2)))
    assert lines[:2] == [
        "3 launches paired launch by launch, 1 with the same results from the same inputs",
        "2 launches with others, which rounding suffices to explain: 0.0, 0.2",
    ]


def test_earlier_builds_and_the_change_that_fixes() -> None:
    trials = (
        BuildTrial(name="baseline", finding=BuildFault.LAUNCH, wrong="0.1 relu is wrong", seconds=8.7),
        BuildTrial(name="--inductor-config a=1", changes=("a",), failure="there is no a", seconds=0.4),
        BuildTrial(name="--inductor-config b=1", changes=("b",), seconds=9),
    )
    changes = (SettingChange("b", 1, "the vector width"), LeaveOut(Part.PASS, "c"))
    document = settings_document(SettingsBisection(trials, 2, changes))
    assert problems(document, json.loads((DOCS / "bisect-settings.schema.json").read_text())) == []
    assert (document["cause"], document["known"]) == ("the vector width, the pass c", 2)
    assert document["fixed_by"] == ["--inductor-config disabled_passes=c", "--inductor-config b=1"]
    assert [trial["wrong"] for trial in document["trials"]] == ["0.1 relu is wrong", None, None]
    assert settings_lines(SettingsBisection(trials, 2, changes)) == [
        "baseline                  8.7 s  0.1 relu is wrong",
        "--inductor-config a=1    400 ms  not known: there is no a",
        "note: the first 2 builds had been made before",
        "",
        "FIXED by  --inductor-config disabled_passes=c",
        "          --inductor-config b=1",
        "  what    the vector width, the pass c; 3 builds",
    ]


@pytest.mark.parametrize(("culprits", "after"), [((0,), "0.5"), ((), "-")])
def test_an_error_after_a_replacement_is_that_of_one_that_was_made(
    tmp_path: Path, culprits: tuple[int, ...], after: str
) -> None:
    lines = bisection_lines(found(tmp_path, Outputs((WRONG,), (WRONG,)), culprits, between=1))
    (row,) = [line for line in lines if line.startswith("output 0, float32")]
    assert row.split()[-2:] == ["0.5", after]


@pytest.mark.parametrize(
    ("left", "said"),
    [
        ((), "NOTHING WRONG in the baseline; 1 build"),
        (
            ("flex_attention",),
            "NOTHING WRONG in the baseline as far as compared; not compared: flex_attention; 1 build",
        ),
    ],
)
def test_a_baseline_in_which_nothing_is_wrong(left: tuple[str, ...], said: str) -> None:
    found = SettingsBisection((BuildTrial(name="baseline", not_compared=left),), 0)
    assert settings_lines(found) == [said]
    assert settings_document(found)["not_compared"] == list(left)
