"""The search for the smallest script: scripts are not compiled, but for the result."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from aoti_debug.app.cli.main import group
from aoti_debug.base.errors import ArtifactError
from aoti_debug.compare.outcome import WRONG_VALUE
from aoti_debug.runs.diagnosis import findings
from aoti_debug.runs.diagnosis.findings import CLEAN, INCOMPLETE, UNFINISHED, Finding, FindingKind, Place
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.triage.minify.minified import minified_lines
from aoti_debug.triage.minify.minify import key_of, minify
from aoti_debug.triage.minify.script_results import Known, ScriptTrial, ScriptTrials, ScriptVerdict, TriageAnswer
from aoti_debug.triage.minify.start_parts import MinifyOptions
from aoti_debug.triage.results import triage_directory
from aoti_debug.triage.results.triage_directory import Record
from tests.paths import ROOT
from tests.wrong_model import CONFIGS, Wrong

RELU, ARGMAX = "aten.relu.default", "aten.argmax.default"
# Runs a script whose wrapper Inductor compiles with what the tests have compiled already.
SCRIPT = """
import runpy, sys
sys.path.insert(0, sys.argv[1])
from tests import wrapper_templates
wrapper_templates.share()
runpy.run_path(sys.argv[2], run_name="__main__")
"""
OF_LAUNCH = Finding(WRONG_VALUE, "256 of 256 elements of buf3 are wrong", Place("0.2", "cpp_fused_relu_1"))
OF_OUTPUTS = Finding(WRONG_VALUE, "output 0 is wrong")


@pytest.fixture(scope="module")
def triaged(wrong: Wrong, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of a triage, with a run of the wrong package."""
    folder = triage_directory.create(tmp_path_factory.mktemp("triage"))
    result = runner.run(RunOptions(wrong.bad, level=1, phase="both", filters=(), out=folder / "runs"))
    triage_directory.write(folder, Record(OF_LAUNCH, run=str(result.run.path)))
    return folder


@pytest.fixture
def options(wrong: Wrong, tmp_path: Path) -> MinifyOptions:
    return MinifyOptions(wrong.program, inductor_configs=CONFIGS, out=tmp_path)


def know(options: MinifyOptions, finding: Finding, triaged: Path) -> None:
    """Leaves what a minimisation does that is interrupted after the triage."""
    key = key_of(options)
    folder = options.out / key[:12]
    folder.mkdir()
    ScriptTrials(folder, key).know(Known(str(triaged), findings.to_json(finding)))


class Scripts:
    """Runs scripts: each shows the finding if it holds all of these words."""

    def __init__(self, *words: str) -> None:
        self.words = words
        self.count = 0

    def __call__(self, path: Path, trial: ScriptTrial, stall: float) -> ScriptTrial:
        self.count += 1
        text = path.read_text()
        is_shown = all(word in text for word in self.words)
        return replace(trial, observed="relu: not close", shown=trial.runs) if is_shown else trial


def confirms(*_: object) -> ScriptVerdict:
    return ScriptVerdict(TriageAnswer.YES, "WRONG VALUE")


def test_one_operator_of_the_guilty_launch(options: MinifyOptions, triaged: Path) -> None:
    know(options, OF_LAUNCH, triaged)
    found = minify(options, run=Scripts(RELU), confirm=confirms)
    assert found.smallest is not None
    assert (found.smallest.operators, found.smallest.start) == ((RELU,), "launch 0.2")
    assert found.smallest.shown == found.smallest.runs
    text = found.smallest.script.read_text()
    assert found.smallest.lines == len(text.splitlines()) <= 40
    assert "torch.randn([2, 2])" in text
    assert "aoti_debug" not in text
    command = [sys.executable, "-c", SCRIPT, str(ROOT), str(found.smallest.script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines()[-1].startswith("observed: relu: Tensor-likes are not close!")


def test_operators_that_only_the_whole_program_holds(options: MinifyOptions, triaged: Path) -> None:
    know(options, OF_OUTPUTS, triaged)
    found = minify(options, run=Scripts(RELU, ARGMAX), confirm=confirms)
    assert found.smallest is not None
    assert set(found.smallest.operators) == {RELU, ARGMAX}
    assert found.smallest.start == "the program"


def test_an_interrupted_search_goes_on(options: MinifyOptions, triaged: Path) -> None:
    know(options, OF_OUTPUTS, triaged)
    scripts = Scripts(RELU, ARGMAX)

    def interrupted(path: Path, trial: ScriptTrial, stall: float) -> ScriptTrial:
        if scripts.count == 3:
            raise KeyboardInterrupt
        return scripts(path, trial, stall)

    with pytest.raises(KeyboardInterrupt):
        minify(options, run=interrupted)
    found = minify(options, run=scripts, confirm=confirms)
    assert (found.earlier, len(found.trials)) == (3, scripts.count)
    assert "note: the first 3 scripts had been run before" in minified_lines(found)


def flaky(path: Path, trial: ScriptTrial, stall: float) -> ScriptTrial:
    shown = 1 if trial.runs == 1 else trial.runs // 2
    return replace(trial, observed="relu: not close", shown=shown)


def never(path: Path, trial: ScriptTrial, stall: float) -> ScriptTrial:
    return trial


@pytest.mark.parametrize(
    ("run", "line"),
    [
        (flaky, "  shown    in 10 of 20 runs, FLAKY: not every time"),
        (never, "NOT SHOWN by a script that needs only torch; 4 scripts"),
    ],
)
def test_what_does_not_show_itself_every_time(
    run: Callable[[Path, ScriptTrial, float], ScriptTrial], line: str, options: MinifyOptions, triaged: Path
) -> None:
    know(options, OF_LAUNCH, triaged)
    found = minify(options, run=run, confirm=confirms)
    assert line in minified_lines(found)
    if found.smallest is not None:
        assert "range(20)" in found.smallest.script.read_text()


@pytest.mark.parametrize(
    ("kind", "code", "said"),
    [
        (CLEAN, 0, "NOTHING WRONG in the baseline"),
        (INCOMPLETE, 8, "NOTHING WRONG in the baseline as far as compared: no fault"),
        (UNFINISHED, 8, "NOT FINISHED no fault"),
    ],
)
def test_a_program_without_a_finding(
    options: MinifyOptions, triaged: Path, kind: FindingKind, code: int, said: str
) -> None:
    know(options, Finding(kind, "no fault"), triaged)
    ((key, value),) = CONFIGS.items()
    words = ["minify", str(options.program), "--out", str(options.out), "--inductor-config", f"{key}={value}"]
    result = CliRunner().invoke(group, words)
    assert (result.exit_code, result.stdout.splitlines()[1]) == (code, said)


def test_bad_input(options: MinifyOptions, wrong: Wrong, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="no parts that could be compiled alone"):
        minify(replace(options, program=wrong.bad))
    with pytest.raises(ArtifactError, match=r"inputs\.pt"):
        minify(replace(options, inputs=tmp_path / "inputs.pt"))
