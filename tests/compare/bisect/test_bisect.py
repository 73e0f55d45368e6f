"""`aoti-debug bisect` on a model whose launches 0.2 and 0.4 are wrong; `--settings` from what an earlier one left."""

from __future__ import annotations

import importlib
import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from aoti_debug.app.cli.main import group
from aoti_debug.base.errors import ArtifactError, RunDirError, TargetError, UsageError
from aoti_debug.base.machine.steps import Step, StepListener
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.compare.bisect.bisect import bisect_settings
from aoti_debug.compare.bisect.build_changes import Change, LeaveOut, Part, SettingChange, asked_for, suspects
from aoti_debug.compare.bisect.build_trials import (
    BASELINE,
    NAME,
    BuildFault,
    BuildTrial,
    BuildTrials,
    SettingsOptions,
    key_of,
    result_text,
)
from aoti_debug.compare.bisect.delta_debugging import SetOutcome
from aoti_debug.compare.bisect.equality import Equality
from aoti_debug.compare.bisect.text import settings_document, settings_lines
from aoti_debug.compare.compare import CompareOptions
from aoti_debug.compare.measure.output_errors import OutputError
from aoti_debug.instrument.frontend.protocol.build_failure import (
    BuildFailure,
    BuildFailureError,
    BuildStage,
    Ending,
    Position,
)
from aoti_debug.instrument.frontend.protocol.messages import Applied
from tests.compare import chains
from tests.wrong_model import CONFIGS, Wrong

UNCHANGED = BuildTrial(
    name="baseline",
    finding=BuildFault.LAUNCH,
    wrong="0.1 relu is wrong",
    applied=Applied(("remove_noop_ops",), (), ("aten.relu.default",)),
    suspects=("aten.relu.default",),
    seconds=2.5,
)
OTHER = BuildTrial(name="without a and b", changes=("a", "b"))


def test_an_interrupted_bisection_goes_on(tmp_path: Path) -> None:
    first = BuildTrials(tmp_path, "key", {"freezing": True})
    first.add(UNCHANGED)
    first.add(OTHER)
    again = BuildTrials(tmp_path, "key", {"freezing": True})
    assert (again.all, again.earlier) == ((UNCHANGED, OTHER), 2)
    assert again.find(()) == UNCHANGED
    assert again.find(("b", "a")) == OTHER
    assert again.find(("a",)) is None


@pytest.mark.parametrize(("key", "is_done"), [("other", False), ("key", True)])
def test_another_or_a_finished_bisection_begins_anew(tmp_path: Path, key: str, is_done: bool) -> None:
    first = BuildTrials(tmp_path, "key", {})
    first.add(UNCHANGED)
    if is_done:
        first.finish()
    assert BuildTrials(tmp_path, key, {}).all == ()


def test_a_damaged_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text('{"format": 3, "key": 3}')
    with pytest.raises(RunDirError, match="is damaged"):
        BuildTrials(tmp_path, "key", {})


@pytest.mark.parametrize(
    ("trial", "of_numbers", "of_a_crash"),
    [
        (BuildTrial(name="x"), SetOutcome.YES, SetOutcome.YES),
        (BuildTrial(name="x", failure="it does not compile"), SetOutcome.UNKNOWN, SetOutcome.UNKNOWN),
        (
            BuildTrial(name="x", finding=BuildFault.OUTPUT, wrong="output 0 is wrong"),
            SetOutcome.NO,
            SetOutcome.UNKNOWN,
        ),
        (BuildTrial(name="x", finding=BuildFault.END, wrong="it was killed"), SetOutcome.UNKNOWN, SetOutcome.NO),
        (
            BuildTrial(name="x", finding=BuildFault.BUILD, wrong="lowering of a: no"),
            SetOutcome.UNKNOWN,
            SetOutcome.UNKNOWN,
        ),
    ],
)
def test_what_a_trial_tells(trial: BuildTrial, of_numbers: SetOutcome, of_a_crash: SetOutcome) -> None:
    assert trial.outcome(UNCHANGED) is of_numbers
    assert trial.outcome(BuildTrial(name="baseline", finding=BuildFault.END, wrong="it was killed")) is of_a_crash


def test_of_a_build_that_fails_another_one_that_does_tells_that_it_is_not_fixed() -> None:
    failed = BuildTrial(name="x", finding=BuildFault.BUILD, wrong="lowering of a: no")
    assert failed.outcome(failed) is SetOutcome.NO
    assert OTHER.outcome(failed) is SetOutcome.YES
    assert UNCHANGED.outcome(failed) is SetOutcome.UNKNOWN


module = importlib.import_module("aoti_debug.compare.bisect.build_trials")
WRONG = BuildTrial(name=BASELINE, finding=BuildFault.LAUNCH, wrong="0.2 cpp_fused_relu_1 is wrong")


def search_settings(folder: Path, *words: str | Path) -> Result:
    return CliRunner().invoke(group, ["bisect", *map(str, words), "--settings", "--out", str(folder)])


def interrupted(options: SettingsOptions, *trials: BuildTrial) -> Path:
    """The folder of a bisection that has made these builds."""
    key = key_of(options)
    folder = options.out / f"settings-{key[:12]}"
    folder.mkdir(parents=True)
    state = BuildTrials(folder, key, options.inductor_configs)
    for trial in trials:
        state.add(trial)
    return folder


def tried(*changes: Change, like: BuildTrial = WRONG) -> BuildTrial:
    """A build with changes."""
    return replace(like, name="changed", changes=tuple(change.option for change in changes))


def test_a_setting_that_was_asked_for(wrong: Wrong, tmp_path: Path) -> None:
    folder = interrupted(SettingsOptions(program=wrong.program, inductor_configs=CONFIGS, out=tmp_path), WRONG)
    ((key, value),) = CONFIGS.items()
    result = search_settings(tmp_path, wrong.program, "--inductor-config", f"{key}={value}")
    assert result.exit_code == 1, result.output
    assert f"FIXED by  without --inductor-config {key}" in result.stdout
    assert "note: the first 1 build had been made before" in result.stdout
    assert json.loads((folder / NAME).read_text())["is_done"]


def test_the_lowering_of_an_operator(wrong: Wrong, tmp_path: Path) -> None:
    options = SettingsOptions(program=wrong.program, out=tmp_path, user_code=UserCode(("tests.wrong_lowering",)))
    relu, argmax = "aten.relu.default", "aten.argmax.default"
    baseline = replace(WRONG, applied=Applied((), (), (argmax, relu)), suspects=(relu,))
    interrupted(options, baseline, tried(*suspects({}, "cpu")))
    result = search_settings(tmp_path, wrong.program, "--import", "tests.wrong_lowering")
    assert result.exit_code == 1, result.output
    line = "torch._inductor.lowering.make_fallback(torch.ops.aten.relu.default, override_decomp=True)"
    assert f"FIXED by  {line}" in result.stdout
    assert "without the lowering of aten.relu.default" in result.stderr
    assert "without the lowering of aten.relu.default" not in result.stdout


PASSES = (LeaveOut(Part.PASS, "first"), LeaveOut(Part.PASS, "second"))
RIGHT = BuildTrial(name="right")
FAILED = BuildTrial(name="failed", failure="it cannot be lowered")
CRASHED = BuildTrial(name="crashed", finding=BuildFault.END, wrong="it was killed")


@pytest.mark.parametrize(
    ("trials", "found"),
    [
        ((tried(*PASSES, like=RIGHT), tried(PASSES[0]), tried(PASSES[1], like=RIGHT)), PASSES[1:]),
        ((tried(*PASSES, like=RIGHT), tried(PASSES[0]), tried(PASSES[1])), PASSES),
        ((tried(*PASSES, like=FAILED), tried(PASSES[0]), tried(PASSES[1], like=RIGHT)), PASSES[1:]),
        ((tried(*PASSES, like=CRASHED), tried(PASSES[0], like=RIGHT)), PASSES[:1]),
        ((tried(*PASSES), tried(*suspects({}, "cpu"))), ()),
    ],
)
def test_wrong_outputs_without_a_wrong_launch_are_searched_in_the_passes(
    wrong: Wrong, tmp_path: Path, trials: tuple[BuildTrial, ...], found: tuple[Change, ...]
) -> None:
    options = SettingsOptions(program=wrong.program, out=tmp_path)
    baseline = BuildTrial(
        name=BASELINE,
        finding=BuildFault.OUTPUT,
        wrong="output 0 is wrong",
        applied=Applied(("first", "second")),
    )
    interrupted(options, baseline, *trials)
    bisection = bisect_settings(options)
    assert bisection.changes == found
    assert len(bisection.trials) == bisection.known == len(trials) + 1


class Told(StepListener):
    """Keeps the steps that it is told."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def finished(self, step: Step) -> None:
        self.steps.append(step)


def test_the_time_is_over_in_a_build(wrong: Wrong, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fixes it so far is told, and the same bisection goes on with the next build."""

    def never_ends(_: CompareOptions) -> None:
        time.sleep(60)

    monkeypatch.setattr(module, "compare", never_ends)
    options = SettingsOptions(program=wrong.program, out=tmp_path, time_limit=0.5)
    with pytest.raises(TargetError, match="the baseline was not built and compared within 500 ms") as caught:
        bisect_settings(replace(options, out=tmp_path / "first"))
    assert caught.value.hint == "--time-limit SECONDS gives it longer"
    baseline = replace(WRONG, applied=Applied(("first", "second")), finding=BuildFault.OUTPUT, seconds=4.0)
    interrupted(options, baseline, tried(*PASSES, like=RIGHT))
    told = Told()
    bisection = bisect_settings(options, told)
    assert (bisection.ended_after, bisection.changes, len(bisection.trials)) == (0.5, PASSES, 2)
    (plan,) = (step.text for step in told.steps if step.name == "search")
    assert plan.startswith("13 changes in 2 groups: about 8 builds more at most where one of them is to blame; ")
    assert plan.endswith("the first took 4.0 s; ends after 500 ms (--time-limit)")
    assert settings_lines(bisection)[-4:] == [
        "NOT FINISHED after 500 ms: fixed by all of these together, of which some may be enough:",
        "          --inductor-config disabled_passes=first,second",
        "  what    the pass first, the pass second; 2 builds",
        "  next    the same command goes on with the next build; --time-limit SECONDS gives it longer",
    ]
    assert not settings_document(bisection)["is_finished"]


DIFFERS = BuildTrial(name=BASELINE, finding=BuildFault.DIFFERENCE, wrong="output 0 has a relative error of 1")


def test_outputs_that_are_not_eagers_while_no_launch_is_wrong_are_a_finding() -> None:
    error = OutputError(index=0, dtype="float32", elements=4, different=4, relative=1.0)
    comparison: Any = SimpleNamespace(
        first_wrong=None, wrong_states=(), unfinished="", wrong_outputs=(), differing_outputs=(error,)
    )
    finding, wrong = module._finding(comparison)
    assert finding is BuildFault.DIFFERENCE
    assert wrong.startswith("output 0 has a relative error of 1 against what the exported program returns")
    assert (DIFFERS.is_right, DIFFERS.bug) == (False, "")
    assert result_text(replace(DIFFERS, equality=Equality())) == "equal to eager"


@pytest.mark.parametrize(
    ("configs", "trials", "found"),
    [
        (
            {"freezing": True},
            (tried(*asked_for({"freezing": True}), like=RIGHT),),
            (SettingChange("freezing", None, "asked for"),),
        ),
        ({}, (tried(*suspects({}, "cpu"), like=DIFFERS),), ()),
    ],
)
def test_what_only_differs_from_eager_is_searched_in_the_settings(
    wrong: Wrong,
    tmp_path: Path,
    configs: dict[str, Any],
    trials: tuple[BuildTrial, ...],
    found: tuple[Change, ...],
) -> None:
    options = SettingsOptions(program=wrong.program, inductor_configs=configs, out=tmp_path)
    interrupted(options, replace(DIFFERS, applied=Applied(("first", "second"))), *trials)
    bisection = bisect_settings(options)
    assert bisection.changes == found
    assert len(bisection.trials) == bisection.known == len(trials) + 1


@pytest.fixture
def builds_without_relu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code of relu cannot be generated; what is built without it is right."""
    reference = chains.reference(("aten.relu.default", "aten.erf.default"))
    position = Position(BuildStage.CODE, "aten.relu.default", "node_0", nodes=("node_0", "node_1"))
    failure = BuildFailure(position, Ending.DEATH, "SIGSEGV", (), reference, ("aten.relu.default", "aten.erf.default"))
    run = SimpleNamespace(manifest=SimpleNamespace(device="cpu"))
    right = SimpleNamespace(run=run, coverage=SimpleNamespace(compared=1), outputs=(), directory=Path("nowhere"))

    def compare(options: CompareOptions) -> Any:
        if options.left_out is None or "aten.relu.default" not in options.left_out.lowerings:
            raise BuildFailureError("the process died", failure, hint="triage")
        return right

    monkeypatch.setattr(module, "compare", compare)
    monkeypatch.setattr(module, "_finding", lambda _: (BuildFault.NONE, ""))


@pytest.mark.usefixtures("builds_without_relu")
def test_a_build_that_fails_in_an_operator_is_fixed_without_its_lowering(wrong: Wrong, tmp_path: Path) -> None:
    result = search_settings(tmp_path, wrong.program)
    assert result.exit_code == 1, result.output
    line = "torch._inductor.lowering.make_fallback(torch.ops.aten.relu.default, override_decomp=True)"
    assert f"FIXED by  {line}" in result.stdout


@pytest.mark.usefixtures("builds_without_relu")
def test_each_build_is_told_once(wrong: Wrong, tmp_path: Path) -> None:
    result = search_settings(tmp_path, wrong.program)
    names = [trial["name"] for trial in json.loads(next(tmp_path.rglob(NAME)).read_text())["trials"]]
    assert len(names) > 2
    for name in names:
        assert sum(line.startswith(name[:20]) for line in result.output.splitlines()) == sum(
            other.startswith(name[:20]) for other in names
        )


@pytest.mark.parametrize(
    ("words", "error", "problem"),
    [
        (("{good}",), ArtifactError, "its settings cannot be changed"),
        (("{program}", "{good}"), UsageError, "--settings takes one exported program"),
    ],
)
def test_bad_settings(
    wrong: Wrong, tmp_path: Path, words: tuple[str, ...], error: type[Exception], problem: str
) -> None:
    result = search_settings(tmp_path, *(word.format(good=wrong.good, program=wrong.program) for word in words))
    assert isinstance(result.exception, error)
    assert problem in str(result.exception)


def test_two_packages_are_needed_without_settings(wrong: Wrong, tmp_path: Path) -> None:
    result = CliRunner().invoke(group, ["bisect", str(wrong.good), "--out", str(tmp_path)])
    assert isinstance(result.exception, UsageError)


def search_packages(folder: Path, *words: str | Path) -> Result:
    return CliRunner().invoke(group, ["bisect", *map(str, words), "--out", str(folder / "bisects")])


def test_both_culprits_in_four_runs(wrong: Wrong, tmp_path: Path) -> None:
    result = search_packages(tmp_path, wrong.good, wrong.bad)
    assert result.exit_code == 1, result.output
    lines = result.stdout.splitlines()
    culprits = [line.split()[1] for line in lines if line.startswith("CULPRIT")]
    assert culprits == ["0.2", "0.4"]
    assert "  model    " in result.stdout
    assert lines[-1] == "PROVED with the results of 0.2, 0.4 replaced, the outputs match again; 4 runs"


def test_a_package_and_itself_are_the_same(wrong: Wrong, tmp_path: Path) -> None:
    result = search_packages(tmp_path, wrong.good, wrong.good)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == "SAME; 3 runs"


def test_bad_input(wrong: Wrong, tmp_path: Path) -> None:
    result = search_packages(tmp_path, wrong.good, tmp_path / "missing.pt2")
    assert isinstance(result.exception, ArtifactError)


def test_another_program_is_refused(wrong: Wrong, faulty_package: Path, tmp_path: Path) -> None:
    result = search_packages(tmp_path, wrong.good, faulty_package)
    assert isinstance(result.exception, UsageError | ArtifactError)
