"""`aoti-debug diff` as it is called: runs, models, bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from aoti_debug.app.cli.main import group
from aoti_debug.base.errors import AotiDebugError, ArtifactError, RunDirError, UsageError
from aoti_debug.base.machine.steps import Steps
from aoti_debug.compare.diff import diff as diff_module
from aoti_debug.compare.diff.diff import DiffOptions
from aoti_debug.compare.modules import WHOLE
from aoti_debug.instrument.builder.options import BuildOptions
from aoti_debug.runs.rundir.run_directory import RunDir
from tests import archives
from tests.built_model import Built
from tests.compare.chains import chain
from tests.schema import DOCS, problems

ADD = ("aten.add.Tensor",) * 3


def diff(*words: str | Path) -> Result:
    return CliRunner().invoke(group, ["diff", *map(str, words)])


def test_two_runs_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    a, b = chain(tmp_path / "a", ADD), chain(tmp_path / "b", ADD, wrong=1)
    before = sorted(tmp_path.iterdir())
    result = diff(a.path, b.path)
    assert result.exit_code == 1
    assert "0.1 cpp_fused_add_1 parts: it read the same inputs, and wrote different results" in result.stdout
    assert diff(a.path, a.path).exit_code == 0
    assert sorted(tmp_path.iterdir()) == before


def test_modules_of_two_runs(tmp_path: Path) -> None:
    a, b = (chain(tmp_path / name, ADD, wrong=wrong) for name, wrong in (("a", -1), ("b", 1)))
    command = (a.path, b.path, "--by", "module", "--out", tmp_path / "diffs")
    found = json.loads(diff(*command, "--json").stdout)
    assert problems(found, json.loads((DOCS / "diff.schema.json").read_text())) == []
    (module,) = found["modules"]
    assert (module["name"], module["launches"], module["different"]) == (WHOLE, ["0.0", "0.1", "0.2"], ["0.1", "0.2"])
    assert module["largest"]["launch"] == "0.1"
    row = diff(*command, "--no-reference").stdout.splitlines()[8].split()
    assert row[:3] == [WHOLE, "3", "2"]


def test_a_gate(tmp_path: Path) -> None:
    a, b = chain(tmp_path / "a", ADD), chain(tmp_path / "b", ADD, wrong=1)
    gate = tmp_path / "budget.toml"
    gate.write_text("[[tensor]]\natol = 1\n")
    assert diff(a.path, b.path, "--gate", gate).exit_code == 0
    gate.write_text("[[tensor]]\natol = 0.5\n")
    result = diff(a.path, b.path, "--gate", gate, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["excesses"][0] == "0.1 cpp_fused_add_1 buf1: atol 1 is more than 0.5"


def test_the_page_of_two_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    a, b = chain(tmp_path / "a", ADD), chain(tmp_path / "b", ADD, wrong=1)
    result = diff(a.path, b.path, "--report")
    assert result.exit_code == 1
    page = tmp_path / "aoti-debug/diffs" / "latest" / "report" / "index.html"
    assert f"  report   {page.resolve()}" in result.stdout
    assert "Different from 0.1 cpp_fused_add_1 on" in page.read_text()


def test_the_page_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = chain(tmp_path / "a", ADD)
    result = diff(run.path, run.path, "--report", "-o", "page.html", "--json")
    assert json.loads(result.stdout)["same"]
    assert "<h1" in (tmp_path / "page.html").read_text()
    assert not (tmp_path / "aoti-debug/diffs").exists()
    alone = diff(run.path, run.path, "-o", "page.html")
    assert isinstance(alone.exception, UsageError)
    assert "-o needs --report" in str(alone.exception)


def test_a_run_and_its_package(built: Callable[[str], Built], saved: Callable[[str], RunDir], tmp_path: Path) -> None:
    run, package = saved("half"), built("half").package
    result = diff(run.path, package, "--out", tmp_path / "diffs", "--json", "--import", "tests.models")
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert data["same"]
    assert data["launches"]["same"] == data["launches"]["paired"] == len(run.launches)
    assert Path(data["b"]["run"]).parent.parent == (tmp_path / "diffs" / "latest").resolve()


def test_a_program_is_built_and_run_like_the_run_beside_it(
    built: Callable[[str], Built], saved: Callable[[str], RunDir], tmp_path: Path
) -> None:
    run = saved("half")
    result = diff(built("half").program, run.path, "--out", tmp_path / "diffs", "--json", "--import", "tests.models")
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert data["launches"]["same"] == len(run.launches)
    assert (tmp_path / "diffs" / "latest" / "a.pt2").is_file()


def test_level_2_is_enough_to_say_that_they_are_the_same(
    built: Callable[[str], Built], saved: Callable[[str], RunDir], tmp_path: Path
) -> None:
    words = ("--level", "2", "--out", tmp_path / "diffs", "--json", "--report", "--import", "tests.models")
    result = diff(saved("half").path, built("half").package, *words)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "diffs" / "latest" / "report" / "index.html").is_file()
    assert json.loads(result.stdout)["b"]["level"] == 2


@pytest.mark.parametrize(
    ("words", "error", "problem"),
    [
        (("missing", "{run}"), RunDirError, "no runs in aoti-debug/runs"),
        (("{run}", "missing.pt2"), ArtifactError, "missing.pt2 does not exist"),
        (("{run}", "{run}", "--gate", "missing.toml"), UsageError, "cannot read the budget"),
        (("{run}", "{run}", "--report", "-o", "/dev/null/page.html"), UsageError, "cannot write /dev/null/page.html"),
    ],
)
def test_bad_input(
    words: tuple[str, ...],
    error: type[AotiDebugError],
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    run = chain(tmp_path / "a", ADD)
    out = tmp_path / "diffs"
    result = diff(*(word.format(run=run.path) for word in words), "--out", out)
    assert isinstance(result.exception, error)
    assert problem in str(result.exception)
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [(("a", "b", "--level", "3"), "level 3 is not one of 1, 2, hash"), (("a",), "argument 'B'")],
)
def test_wrong_usage(words: tuple[str, ...], problem: str) -> None:
    result = diff(*words)
    assert result.exit_code == 2
    assert problem in result.output


@pytest.mark.parametrize("program_first", [True, False])
def test_a_compiled_package_takes_the_inputs_of_a_program_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, program_first: bool
) -> None:
    program = archives.write(tmp_path / "program.pt2", archives.PROGRAM)
    package = archives.write(tmp_path / "package.pt2", archives.PACKAGE)
    sides = (program, package) if program_first else (package, program)
    options = DiffOptions(a=sides[0], b=sides[1])
    built: list[BuildOptions] = []

    def end(_: Path, building: BuildOptions, *_others: object, **_named: object) -> Path:
        built.append(building)
        raise ArtifactError("this is enough", hint="")

    monkeypatch.setattr(diff_module, "instrumented", end)
    for chosen in (options, replace(options, inputs=tmp_path / "inputs.pt")):
        for model in sides:
            with pytest.raises(ArtifactError, match="enough"):
                diff_module._Recorder(chosen, tmp_path, Steps(None), None).record("a", model)
    assert [(step.program, step.exported) for step in built if step.exported] == [(package, program)]
