"""`aoti-debug replay` as it is called, on a model whose two launches of relu are wrong: 0.2 and 0.4."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from aoti_debug.app.cli.main import group
from aoti_debug.base.abi import Phase
from aoti_debug.base.errors import AotiDebugError, ArtifactError, RunDirError, UsageError
from aoti_debug.package.manifest import Role
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir.run_directory import open_run
from aoti_debug.runs.rundir.run_json import ExitKind
from tests.schema import DOCS, problems
from tests.wrong_model import Wrong

BOTH = ("0.2=eager", "0.4=eager")


@pytest.fixture(scope="module")
def recorded(wrong: Wrong, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the wrong model at level 1."""
    return runner.run(RunOptions(wrong.bad, level=1, out=tmp_path_factory.mktemp("runs"))).run.path


def replay(run: Path, folder: Path, *substitutions: str) -> Result:
    words = [word for text in substitutions for word in ("--substitute", text)]
    return CliRunner().invoke(group, ["replay", str(run), *words, "--out", str(folder / "replays")])


def rows(result: Result) -> list[list[str]]:
    lines = [line.replace("same bytes", "0") for line in result.stdout.splitlines() if line.startswith("output ")]
    return [line.split()[-2:] for line in lines]


@pytest.mark.parametrize("substitutions", [BOTH, ("0.4=eager", "0.2=eager"), ("0.2=fp64", "0.4=fp64")])
def test_outputs_match_again_with_what_the_program_gives(
    recorded: Path, tmp_path: Path, substitutions: tuple[str, ...]
) -> None:
    result = replay(recorded, tmp_path, *substitutions)
    assert result.exit_code == 0, result.output
    (first, _) = rows(result)
    assert float(first[0]) > 0.1
    assert float(first[1]) < 1e-5
    last = result.stdout.splitlines()[-1]
    assert last.startswith("RECOVERED with ")
    assert last.endswith(": the outputs match again")


def test_outputs_match_again_with_the_results_of_another_package(recorded: Path, wrong: Wrong, tmp_path: Path) -> None:
    result = replay(recorded, tmp_path, f"0.2={wrong.good}", f"0.4={wrong.good}")
    assert result.exit_code == 0, result.output
    assert "RECOVERED" in result.stdout


def test_one_of_two_wrong_launches_is_not_enough(recorded: Path, tmp_path: Path) -> None:
    result = invoke(recorded, tmp_path, "--substitute", "0.2=eager", "--json")
    assert result.exit_code == 1, result.output
    found = json.loads(result.stdout)
    assert problems(found, json.loads((DOCS / "replay.schema.json").read_text())) == []
    assert (found["conclusion"], found["substitutions"][0]["by"]) == ("unchanged", "eager")
    assert [output["after"]["is_right"] for output in found["outputs"]] == [False, True]


def test_a_launch_that_is_skipped(recorded: Path, tmp_path: Path) -> None:
    result = replay(recorded, tmp_path, "0.2=skip")
    assert result.exit_code == 1, result.output
    assert "with 0.2=skip" in result.stdout


def test_a_run_without_tensors_is_repeated(wrong: Wrong, tmp_path: Path) -> None:
    run = runner.run(RunOptions(wrong.bad, level=3, out=tmp_path / "runs")).run
    result = replay(run.path, tmp_path, *BOTH)
    assert result.exit_code == 0, result.output
    assert "run level 1" in result.stderr


def invoke(run: Path, folder: Path, *words: str, input_: str = "") -> Result:
    command = ["replay", str(run), *words, "--out", str(folder / "replays")]
    return CliRunner().invoke(group, command, input=input_)


def test_stopping_before_a_launch(recorded: Path, tmp_path: Path) -> None:
    result = invoke(recorded, tmp_path, "--to", "0.4")
    assert result.exit_code == 0, result.output
    assert "STOPPED before 0.4 cpp_fused_relu_2, after " in result.stdout
    run = open_run(next((tmp_path / "replays/latest/runs").glob("*/run.json")).parent)
    assert (run.state, len(run.launches)) == (ExitKind.STOPPED, 5)
    (before,) = run.launch("0.4").args[0].files.values()
    (original,) = (open_run(recorded).launch("0.4").args[0].files[phase] for phase in (Phase.BEFORE,))
    assert before.hash == original.hash


def test_the_process_waits_until_enter_is_pressed(recorded: Path, tmp_path: Path) -> None:
    result = invoke(recorded, tmp_path, "--to", "0.4", "--wait", "--json", input_="\n")
    assert result.exit_code == 0, result.output
    assert "stands before the launch: gdb -p " in result.stderr
    found = json.loads(result.stdout)
    assert problems(found, json.loads((DOCS / "replay.schema.json").read_text())) == []
    assert found["stopped_before"]["id"] == "0.4"


def test_what_is_before_a_launch_is_not_launched(recorded: Path, tmp_path: Path) -> None:
    result = invoke(recorded, tmp_path, "--from", "0.4", "--to", "0.5")
    assert result.exit_code == 0, result.output
    assert "launches skipped: 4" in result.stderr
    run = open_run(next((tmp_path / "replays/latest/runs").glob("*/run.json")).parent)
    original = open_run(recorded).launch("0.5")
    hashes = [
        {a.name: a.files[Phase.BEFORE].hash for a in launch.args if a.role is Role.IN}
        for launch in (run.launch("0.5"), original)
    ]
    assert hashes[0] == hashes[1]


def test_from_a_launch_on_with_a_result_replaced(recorded: Path, tmp_path: Path) -> None:
    result = invoke(recorded, tmp_path, "--from", "0.2", "--substitute", "0.2=eager", "--substitute", "0.4=eager")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1].endswith(", from 0.2 on: the outputs match again")


@pytest.mark.parametrize(
    ("substitutions", "error", "problem"),
    [
        ((), UsageError, "there is nothing to do otherwise"),
        (("0.2=wrong",), UsageError, "'wrong' is not known"),
        (("0.99=eager",), RunDirError, "has no launch 0.99"),
        (("0.2=missing.pt2",), ArtifactError, "missing.pt2 does not exist"),
    ],
)
def test_bad_input(
    recorded: Path, tmp_path: Path, substitutions: tuple[str, ...], error: type[AotiDebugError], problem: str
) -> None:
    result = replay(recorded, tmp_path, *substitutions)
    assert isinstance(result.exception, error)
    assert problem in str(result.exception)
    assert not (tmp_path / "replays").exists()
