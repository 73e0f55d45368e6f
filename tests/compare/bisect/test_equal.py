"""`aoti-debug equal`: the search, on builds that are simulated, and one program end to end."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from aoti_debug.app.cli.main import group
from aoti_debug.base.errors import ArtifactError, UsageError
from aoti_debug.compare.bisect import build_changes
from aoti_debug.compare.bisect.build_changes import Change, LeaveOut, Part, SettingChange
from aoti_debug.compare.bisect.build_trials import NAME, BuildFault, BuildTrial, BuildTrials
from aoti_debug.compare.bisect.equal import EqualOptions, find_equal
from aoti_debug.compare.bisect.equal_result import EqualEnd
from aoti_debug.compare.bisect.equality import Equality, UnequalLaunch
from aoti_debug.instrument.frontend.protocol.messages import Applied
from tests.schema import DOCS, problems
from tests.wrong_model import CONFIGS, Wrong

module = importlib.import_module("aoti_debug.compare.bisect.equal")
NORM = "aten.native_layer_norm.default"
SOFTMAX = "aten._softmax.default"
MEAN, EXP = "aten.mean.dim", "aten.exp.default"
APPLIED = Applied(("pass_a", "pass_b"), (NORM, SOFTMAX, "aten.t.default"), (MEAN, EXP, "aten.permute.default"))
CASTS = SettingChange("emulate_precision_casts", True, "")
NORM_KEPT, SOFTMAX_KEPT = (LeaveOut(Part.DECOMPOSITION, name) for name in (NORM, SOFTMAX))
MEAN_CALLED = LeaveOut(Part.LOWERING, MEAN)
PASS_LEFT = LeaveOut(Part.PASS, "pass_b")

World = Callable[[frozenset[str]], Equality]


def launch(number: int, kernel: str, *operators: str, is_low: bool = False) -> UnequalLaunch:
    return UnequalLaunch(launch=f"0.{number}", kernel=kernel, values=operators[:1], operators=operators, is_low=is_low)


LAUNCHES = {  # what heals a launch
    NORM_KEPT.option: launch(1, "cpp_fused_native_layer_norm_1", "aten.var_mean.correction"),
    SOFTMAX_KEPT.option: launch(2, "cpp_fused__softmax_2", EXP),
    MEAN_CALLED.option: launch(3, "cpp_fused_mean_3", MEAN),
    CASTS.option: launch(4, "cpp_fused_add_mul_4", "aten.mul.Tensor", is_low=True),
}


def needing(*changes: Change) -> World:
    """Builds in which the launches of those changes that are missing are not equal, and then the output is not."""

    def equality(made: frozenset[str]) -> Equality:
        missing = [change.option for change in changes if change.option not in made]
        found = tuple(LAUNCHES[option] for option in missing if option in LAUNCHES)
        return Equality(launches=found, outputs=("output 0: 3 of 8 elements differ",) if missing else (), compared=4)

    return equality


@pytest.fixture
def simulate(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[frozenset[str]]]:
    """Has builds follow a world in place of being made; what it returns fills with the sets that were built."""

    def with_world(world: World, device: str = "cpu") -> list[frozenset[str]]:
        built: list[frozenset[str]] = []

        class Simulated:
            def __init__(self, options: Any, folder: Path, trials: BuildTrials, *_: object) -> None:
                self._trials = trials

            def tried(self, changes: Sequence[Change]) -> BuildTrial:
                lines = build_changes.options_of(changes)
                known = self._trials.find(lines)
                if known is not None:
                    return known
                built.append(frozenset(lines))
                equality = world(frozenset(lines))
                trial = BuildTrial(
                    name=str(len(built)), changes=lines, equality=equality, applied=APPLIED, device=device
                )
                self._trials.add(trial)
                return trial

        monkeypatch.setattr(module, "TrialBuilds", Simulated)
        return built

    return with_world


def options(wrong: Wrong, out: Path, **members: Any) -> EqualOptions:
    return replace(EqualOptions(program=wrong.program, out=out, pairs=0), **members)


@pytest.mark.parametrize(
    "needed",
    [
        (NORM_KEPT,),
        (CASTS,),
        (PASS_LEFT,),
        (NORM_KEPT, SOFTMAX_KEPT),
        (NORM_KEPT, MEAN_CALLED, CASTS),
        (SOFTMAX_KEPT, PASS_LEFT),
        (NORM_KEPT, SOFTMAX_KEPT, MEAN_CALLED, CASTS, PASS_LEFT),
    ],
)
def test_the_changes_that_are_needed_are_found(
    wrong: Wrong, tmp_path: Path, simulate: Callable[[World], list[frozenset[str]]], needed: tuple[Change, ...]
) -> None:
    built = simulate(needing(*needed))
    found = find_equal(options(wrong, tmp_path))
    assert found.end is EqualEnd.EQUAL
    chosen = {step.change.option for step in found.steps}
    assert chosen == {change.option for change in needed}
    assert all(chosen - {option} in [*built, frozenset()] for option in chosen)  # each was left out
    for step in found.steps:
        expected = [LAUNCHES[step.change.option]] if step.change.option in LAUNCHES else []
        assert list(step.heals) == expected


@pytest.mark.parametrize("has_it", [True, False])
def test_strict_numerics_of_a_gpu_are_tried_where_torch_has_them(
    wrong: Wrong,
    tmp_path: Path,
    simulate: Callable[..., list[frozenset[str]]],
    monkeypatch: pytest.MonkeyPatch,
    *,
    has_it: bool,
) -> None:
    strict = SettingChange("numerics", "strict", "")
    monkeypatch.setitem(LAUNCHES, strict.option, LAUNCHES[MEAN_CALLED.option])
    monkeypatch.setattr(module, "has_setting", lambda key: has_it and key == "numerics")
    built = simulate(needing(strict), device="cuda")
    found = find_equal(options(wrong, tmp_path))
    assert (found.end is EqualEnd.EQUAL) is has_it
    assert found.lines == ((strict.option,) if has_it else ())
    assert (frozenset({strict.option}) in built) is has_it


def test_a_setting_that_makes_it_worse_does_not_stay(
    wrong: Wrong, tmp_path: Path, simulate: Callable[[World], list[frozenset[str]]]
) -> None:
    def world(made: frozenset[str]) -> Equality:
        found = needing(PASS_LEFT)(made)
        spoilt = "--inductor-config cpp.simdlen=1" in made or "--inductor-config pattern_matcher=False" in made
        return replace(found, outputs=("output 0",), launches=(launch(9, "cpp_9", EXP),)) if spoilt else found

    simulate(world)
    found = find_equal(options(wrong, tmp_path))
    assert [step.change for step in found.steps] == [PASS_LEFT]


def test_a_part_of_a_fused_launch_counts(
    wrong: Wrong, tmp_path: Path, simulate: Callable[[World], list[frozenset[str]]]
) -> None:
    def world(made: frozenset[str]) -> Equality:  # one launch, as long as any of both is missing
        left = [SOFTMAX] * (SOFTMAX_KEPT.option not in made) + [MEAN] * (MEAN_CALLED.option not in made)
        fused = launch(0, "cpp_fused__softmax_mean_0", *left)
        return Equality(launches=(fused,), outputs=("output 0",)) if left else Equality()

    built = simulate(world)
    found = find_equal(options(wrong, tmp_path))
    assert {step.change for step in found.steps} == {SOFTMAX_KEPT, MEAN_CALLED}
    assert len(built) <= 5


def test_where_nothing_helps_what_stays_unequal_is_said(
    wrong: Wrong, tmp_path: Path, simulate: Callable[[World], list[frozenset[str]]]
) -> None:
    stays = launch(7, "aoti_torch_cpu_mm_out", "aten.mm.default")

    def world(made: frozenset[str]) -> Equality:
        found = needing(NORM_KEPT)(made)
        return replace(found, launches=(*found.launches, stays), outputs=("output 0",))

    simulate(world)
    found = find_equal(options(wrong, tmp_path))
    assert found.end is EqualEnd.CANNOT
    assert found.best is not None
    assert found.best.equality is not None
    assert found.best.equality.launches == (stays,)
    assert found.best.changes == (NORM_KEPT.option, SOFTMAX_KEPT.option) or NORM_KEPT.option in found.best.changes


def test_builds_are_bounded_and_the_search_goes_on(
    wrong: Wrong, tmp_path: Path, simulate: Callable[[World], list[frozenset[str]]]
) -> None:
    needed = (NORM_KEPT, MEAN_CALLED)
    built = simulate(needing(*needed))
    first = find_equal(options(wrong, tmp_path, max_builds=2))
    assert first.end is EqualEnd.UNFINISHED
    assert "--max-builds" in first.reason
    assert len(built) == 2
    second = find_equal(options(wrong, tmp_path, max_builds=1))
    assert second.end is EqualEnd.NOT_MINIMAL
    assert second.known == 2
    third = find_equal(options(wrong, tmp_path))
    assert third.end is EqualEnd.EQUAL
    assert third.known == 3
    assert len(built) == len(set(built))


def test_no_build_is_begun_after_the_time(
    wrong: Wrong, tmp_path: Path, simulate: Callable[[World], list[frozenset[str]]]
) -> None:
    built = simulate(needing(NORM_KEPT))
    found = find_equal(options(wrong, tmp_path, time_limit=1e-9))
    assert (found.end, len(built)) == (EqualEnd.UNFINISHED, 1)
    assert "--time-limit" in found.reason


@pytest.mark.parametrize(
    ("equality", "end"),
    [
        (Equality(compared=3), EqualEnd.ALREADY),
        (Equality(unknown="the program draws random numbers"), EqualEnd.UNKNOWN),
    ],
)
def test_there_is_nothing_to_search(
    wrong: Wrong,
    tmp_path: Path,
    simulate: Callable[[World], list[frozenset[str]]],
    equality: Equality,
    end: EqualEnd,
) -> None:
    built = simulate(lambda _: equality)
    found = find_equal(options(wrong, tmp_path))
    assert (found.end, len(built), found.kind) == (end, 1, "")


@pytest.mark.parametrize(
    ("changes", "wrong_text", "kind"),
    [((CASTS,), "", "switch"), ((NORM_KEPT,), "", "rounding"), ((CASTS,), "0.4 is wrong", "bug")],
)
def test_the_kind_of_the_difference(
    wrong: Wrong,
    tmp_path: Path,
    simulate: Callable[[World], list[frozenset[str]]],
    changes: tuple[Change, ...],
    wrong_text: str,
    kind: str,
) -> None:
    simulate(needing(*changes))
    found = find_equal(options(wrong, tmp_path))
    baseline = replace(found.trials[0], wrong=wrong_text, finding=BuildFault.LAUNCH if wrong_text else BuildFault.NONE)
    assert replace(found, trials=(baseline, *found.trials[1:])).kind == kind


def equal(folder: Path, *words: str | Path) -> Result:
    return CliRunner().invoke(group, ["equal", *map(str, words), "--out", str(folder)])


def test_a_program_end_to_end(wrong: Wrong, tmp_path: Path) -> None:
    ((key, value),) = CONFIGS.items()
    result = equal(tmp_path, wrong.program, "--inductor-config", f"{key}={value}", "--pairs", "5", "--json")
    assert result.exit_code == 1, result.output
    document = json.loads(result.stdout)
    assert problems(document, json.loads((DOCS / "equal.schema.json").read_text())) == []
    assert (document["end"], document["kind"]) == ("equal", "bug")
    (change,) = document["changes"]
    assert change["line"] == f"without --inductor-config {key}"
    assert [healed["launch"] for healed in change["heals"]] == ["0.2", "0.4"]
    assert change["price"]["pairs"] == 5
    assert change["price"]["seconds_with"] > 0
    assert "run again" in result.stderr
    folder = next(tmp_path.glob("equal-*"))
    assert json.loads((folder / NAME).read_text())["is_done"]
    assert not (folder / "packages").exists()


@pytest.mark.parametrize(
    ("words", "error", "problem"),
    [
        (("{good}",), ArtifactError, "its settings cannot be changed"),
        (("{program}", "--inputs", "{program}", "--inputs", "nothing.pt"), UsageError, "there is no file nothing.pt"),
    ],
)
def test_bad_input(wrong: Wrong, tmp_path: Path, words: tuple[str, ...], error: type[Exception], problem: str) -> None:
    result = equal(tmp_path, *(word.format(good=wrong.good, program=wrong.program) for word in words))
    assert isinstance(result.exception, error)
    assert problem in str(result.exception)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"max_builds": 0}, "--max-builds takes a number from 1"),
        ({"pairs": -1}, "--pairs takes a number from 0"),
        ({"further_inputs": (Path("nothing.pt"),)}, "--inputs takes a .pt or .safetensors file"),
    ],
)
def test_options_that_are_wrong(wrong: Wrong, tmp_path: Path, options: dict[str, Any], hint: str) -> None:
    with pytest.raises(UsageError) as raised:
        find_equal(EqualOptions(program=wrong.program, out=tmp_path, **options))
    assert raised.value.hint == hint
    assert not list(tmp_path.iterdir())
