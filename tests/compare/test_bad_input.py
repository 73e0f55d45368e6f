"""What is compared when something is missing: operators, arithmetics, a part of the run, a working metric."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from aoti_debug.app.cli.main import group
from aoti_debug.base.errors import ArtifactError, TargetError, UsageError
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.base.terminal_cells import UNLIMITED
from aoti_debug.compare import evaluation_process
from aoti_debug.compare.compare import CompareOptions, compare
from aoti_debug.compare.comparison import Comparison
from aoti_debug.compare.measure.output_errors import OutputError
from aoti_debug.compare.measure.verdicts import LaunchVerdict
from aoti_debug.compare.protocol.measurement import Advance, StateChange
from aoti_debug.compare.stored_comparison import document
from aoti_debug.compare.text import comparison_lines
from aoti_debug.package.program_graphs import FORMAT, Reference
from aoti_debug.package.pt2 import trust
from aoti_debug.runs.rundir import run_directory
from aoti_debug.runs.rundir.run_directory import RunDir
from tests.built_model import Built
from tests.compare.chains import attach, chain, reference

ADD = "aten.add.Tensor"
OK, NOT = LaunchVerdict.OK, LaunchVerdict.NOT_COMPARABLE


def compared(run: RunDir, folder: Path, **options: Any) -> Comparison:
    return compare(replace(CompareOptions(model=run.path, out=folder / "compares"), **options))


def notes(comparison: Comparison) -> list[str]:
    return [line for line in comparison_lines(comparison, UNLIMITED) if line.startswith("note: ")]


# Operators


def test_an_operator_without_float64(tmp_path: Path) -> None:
    run = chain(tmp_path / "runs", (ADD, "only.add_one.default", ADD))
    comparison = compared(run, tmp_path, user_code=UserCode(("tests.compare.only_float32",)))
    assert [row.verdict for row in comparison.rows] == [OK, OK, OK]
    reason = "only.add_one.default computed in its own dtype: add_one is not implemented for float64"
    assert comparison.rows[1].notes == (reason,)
    assert notes(comparison) == [f"note: 0.1: {reason}"]


@pytest.mark.parametrize(
    ("operator", "reason"),
    [
        ("only.nowhere.default", "only.nowhere.default fails here: Could not run 'only::nowhere'"),
        ("only.unheard_of.default", "only.unheard_of.default is not known here"),
    ],
)
def test_an_operator_that_eager_cannot_run_here(tmp_path: Path, operator: str, reason: str) -> None:
    run = chain(tmp_path / "runs", (ADD, operator, ADD))
    comparison = compared(run, tmp_path, user_code=UserCode(("tests.compare.only_float32",)))
    assert [row.verdict for row in comparison.rows] == [OK, NOT, OK]
    assert reason in comparison.rows[1].reason
    assert reason in comparison.program_failure
    assert [sorted(row.inherited or {}) for row in comparison.rows] == [["buf0"], [], []]
    assert len(notes(comparison)) == 2


def test_an_operator_that_kills_the_process(tmp_path: Path) -> None:
    run = chain(tmp_path / "runs", (ADD, "only.dies.default", ADD))
    comparison = compared(run, tmp_path, user_code=UserCode(("tests.compare.only_float32",)))
    assert [row.verdict for row in comparison.rows] == [OK, NOT, OK]
    assert "SIGABRT" in comparison.rows[1].reason
    assert "SIGABRT" in comparison.program_failure


def test_a_process_that_never_gets_anywhere_is_not_started_for_every_launch(tmp_path: Path) -> None:
    run = chain(tmp_path / "runs", ("only.dies.default",) * 40)
    began = time.monotonic()
    comparison = compared(run, tmp_path, user_code=UserCode(("tests.compare.only_float32",)))
    assert time.monotonic() - began < 120
    assert {row.verdict for row in comparison.rows} == {NOT}
    assert "ended with SIGABRT" in comparison.rows[0].reason
    assert "was not tried" in comparison.rows[39].reason


def test_a_process_that_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = chain(tmp_path / "runs", (ADD, ADD))
    monkeypatch.setattr(evaluation_process, "WORKER", "no_such_module")
    message = "did not start: it ended with exit code 1: .*No module named 'no_such_module'"
    with pytest.raises(TargetError, match=message):
        compared(run, tmp_path)


def test_an_exported_program_that_fails_in_eager_is_said(tmp_path: Path) -> None:
    run = chain(tmp_path / "runs", (ADD,))
    comparison = Comparison(run=run, rows=(), states_failure="it fails in eager: RuntimeError: no kernel")
    reason = "it fails in eager: RuntimeError: no kernel"
    assert f"note: the comparison with the exported program is incomplete: {reason}" in notes(comparison)


def test_wrong_outputs_without_a_wrong_launch_are_said(tmp_path: Path) -> None:
    run = chain(tmp_path / "runs", (ADD,))
    errors = (
        OutputError(index=0, dtype="float32", elements=8, different=8, relative=1e-7),
        OutputError(index=1, dtype="float32", elements=8, different=3, relative=0.25),
    )
    (note,) = (line for line in notes(Comparison(run=run, rows=(), outputs=errors)) if "returns in eager" in line)
    assert note.startswith("note: output 1 has a relative error of 0.25 against what the exported program")
    state = StateChange(name="count", call=0, launch="", advance=Advance.NOT_AT_ALL)
    assert not [
        line for line in notes(Comparison(run=run, rows=(), states=(state,), outputs=errors)) if "eager" in line
    ]


# Numbers


def test_errors_beyond_any_number(tmp_path: Path) -> None:
    from aoti_debug.compare.measure.evaluated import Evaluated, Subject
    from aoti_debug.compare.measure.measure import measure
    from aoti_debug.compare.protocol.measurement import RegionResult
    from aoti_debug.compare.protocol.messages import message_line, read_message

    actual, zero = torch.tensor([1e300, 0.0], dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    result = RegionResult(
        launch="0.0",
        outputs=(measure(Subject("buf0", "x", "x"), Evaluated(actual=actual, eager=zero, kernel=zero, double=zero)),),
    )
    assert read_message(message_line(result).encode()) == result
    assert result.outputs[0].wrong == 1


# Large graphs


def test_ten_thousand_nodes(tmp_path: Path) -> None:
    run = chain(tmp_path / "runs", (ADD,) * 10_000, wrong=700, step=10)
    began = time.monotonic()
    comparison = compared(run, tmp_path)
    assert time.monotonic() - began < 120  # an idle machine needs a tenth of that
    assert 0 < comparison.peak_bytes < 1 << 30
    assert comparison.coverage.compared == 1000
    wrong = [row.launch.id for row in comparison.rows if row.verdict is LaunchVerdict.WRONG]
    assert wrong == ["0.700"]
    assert (comparison.rows[699].inherited, comparison.rows[700].inherited) != ({}, {})


def test_one_launch_of_thousands_of_nodes(tmp_path: Path) -> None:
    run = chain(tmp_path / "runs", (ADD,) * 2000, wrong=0, step=2000)
    (row,) = compared(run, tmp_path).rows
    assert row.verdict is LaunchVerdict.WRONG
    assert len(row.suspects) == 2000


# Sizes other than those of the example


def test_inputs_of_other_sizes(built: Callable[[str], Built], tmp_path: Path) -> None:
    torch.manual_seed(3)
    example = torch.export.load(built("sizes").program).example_inputs[0]
    rows = 17
    assert example[0].shape[0] != rows
    other = (torch.randn(rows, *example[0].shape[1:]), *example[1:])
    torch.save(other, tmp_path / "inputs.pt")
    options = CompareOptions(
        model=built("sizes").package,
        inputs=tmp_path / "inputs.pt",
        user_code=UserCode(("tests.models",)),
        out=tmp_path / "compares",
    )
    comparison = compare(options)
    assert comparison.first_wrong is None
    assert any(rows in output.shape for row in comparison.rows for output in row.outputs)
    assert "size" not in " ".join((comparison.program_failure, *(row.reason for row in comparison.rows)))


# Runs that did not end


def test_a_model_that_is_killed(faulty_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTY_OPS", "kill")
    monkeypatch.chdir(tmp_path)
    command = ["compare", str(faulty_package), "--report"]
    result = CliRunner().invoke(group, command, prog_name="aoti-debug")
    assert result.exit_code == 1, result.output
    lines = result.stdout.splitlines()
    assert any("SIGKILL; 1 of 4 launch sites were not reached" in line for line in lines)
    assert any(line.startswith("compared: 2 of 3 launches") for line in lines)
    assert not any(line.startswith("WRONG") for line in lines)
    found = json.loads((tmp_path / "aoti-debug/compares/latest/compare.json").read_text())
    assert [launch["verdict"] for launch in found["launches"]] == ["ok", "ok", "not comparable"]
    assert "SIGKILL" in found["unfinished"]


def test_a_run_whose_processes_were_all_killed(
    faulty_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kill -9 of the tool and the model, while the model runs."""
    environment = os.environ | {"FAULTY_OPS": "hang"}
    command = [sys.executable, "-m", "aoti_debug", "run", str(faulty_package), "--level", "1", "--out", str(tmp_path)]
    with subprocess.Popen(command, env=environment, start_new_session=True, stdout=subprocess.DEVNULL) as tool:
        deadline = time.monotonic() + 120
        while not list(tmp_path.glob("*/tensors/0/0002*/*")) and time.monotonic() < deadline:
            time.sleep(0.1)
        (path,) = {found.resolve() for found in tmp_path.iterdir()}
        os.killpg(tool.pid, signal.SIGKILL)
        os.kill(run_directory.open_run(path).info.pid, signal.SIGKILL)
    comparison = compare(CompareOptions(model=path, out=tmp_path / "compares"))
    assert [row.verdict for row in comparison.rows] == [OK, OK, NOT]
    assert comparison.rows[2].reason == "it never returned"
    assert "1 of 4 launch sites were not reached" in comparison.unfinished


def test_a_run_that_goes_on(tmp_path: Path) -> None:
    run = chain(tmp_path / "runs", (ADD, ADD))
    assert compared(run, tmp_path).unfinished == ""


# Metrics


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import no_such_module\n", "fails: ModuleNotFoundError: No module named 'no_such_module'"),
        ("def f(:\n", "fails: SyntaxError"),
        ("raise SystemExit(3)\n", "fails: SystemExit"),
        ("g = 1\n", "has no function f"),
        ("f = 1\n", "has no function f"),
        ("def f(a, b):\n    raise ValueError('one\\ntwo')\n", r"fails for float32\[4\]: ValueError: one"),
        ("def f(a):\n    return 1\n", r"fails for float32\[4\]: TypeError"),
        ("def f(a, b):\n    return a - b\n", r"fails for float32\[4\]: \w+Error"),
    ],
)
def test_a_metric_that_fails(tmp_path: Path, source: str, message: str) -> None:
    (tmp_path / "my.py").write_text(source)
    with pytest.raises(UsageError, match=message) as caught:
        compared(chain(tmp_path / "runs", (ADD,)), tmp_path, metric=f"{tmp_path / 'my.py'}:f")
    assert caught.value.hint.startswith("--metric FILE.py:FUNCTION names a function of two tensors")
    assert "\n" not in str(caught.value)


def test_a_metric_that_is_no_number(tmp_path: Path) -> None:
    (tmp_path / "my.py").write_text("def f(a, b):\n    return float('nan')\n")
    comparison = compared(chain(tmp_path / "runs", (ADD,)), tmp_path, metric=f"{tmp_path / 'my.py'}:f")
    assert comparison.rows[0].outputs[0].metric is None
    assert notes(comparison) == ["note: 0.0: --metric gives no finite number for one of its outputs"]
    json.dumps(document(comparison), allow_nan=False)


# Packages


def test_a_package_that_was_not_made_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = chain(tmp_path / "runs", (ADD,))
    monkeypatch.setattr(trust, "knows", lambda *_: False)
    with pytest.raises(UsageError, match="was not built on this account") as caught:
        compared(run, tmp_path)
    assert "--trust" in caught.value.hint
    assert compared(run, tmp_path, user_code=UserCode(trusted=True)).first_wrong is None


def test_a_run_that_was_not_made_here(tmp_path: Path) -> None:
    run = chain(tmp_path / "runs", (ADD,))
    path = run.path / "manifest.json"
    path.write_text(path.read_text().replace('"imports": []', '"imports": ["antigravity"]'))
    with pytest.raises(UsageError, match=r"would run, after the import of antigravity") as caught:
        compared(run_directory.open_run(run.path), tmp_path)
    assert "--trust" in caught.value.hint


def test_a_package_without_a_graph(tmp_path: Path) -> None:
    run = chain(tmp_path / "runs", (ADD,))
    attach(run.path, Reference(FORMAT, "2.13", (), failure="the hook was not called"))
    with pytest.raises(ArtifactError, match="holds no graph: the hook was not called"):
        compared(run, tmp_path)


def test_a_graph_that_calls_no_operator(tmp_path: Path) -> None:
    run = chain(tmp_path / "runs", (ADD, ADD))
    attach(run.path, reference((ADD, "os.getcwd")))
    comparison = compared(run, tmp_path)
    assert comparison.rows[1].verdict is NOT
