from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from aoti_debug.app.cli import main
from aoti_debug.runs.run import running_process
from aoti_debug.runs.rundir.run_directory import RunDir
from tests import control_page
from tests.runs.show.recorded import level_2
from tests.schema import DOCS, problems

PID = str(os.getpid())


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return level_2(tmp_path / "runs")


def test_a_level_and_a_filter(run: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--level", "2", "--filter", "cpp_*", "--watch", "*: nan", "--flight", "4", "--out", str(tmp_path)]
    with control_page.page() as runtime, runtime.called(level=2, run_directory=os.fsencode(run.path)):
        assert main.run(["attach", PID, *asked]) == 0
        settings = control_page.words(runtime.settings())
    assert settings == [
        f"DIR={tmp_path}",
        *("FILTER=cpp_*", "FLIGHT=4", "LEVEL=2", "PRINT=none", "RUN=", "WATCH=*: nan"),
    ]
    assert capsys.readouterr().out.splitlines() == [
        f"encoder in process {PID}: level 0 until now, 2 from now on",
        f"  recording in {run.path}",
    ]


@pytest.mark.parametrize(
    ("words", "level", "settings"),
    [
        ((), 0, ["LEVEL=3", "PRINT=none", "RUN="]),
        ((), 2, ["LEVEL=2", "PRINT=none", "RUN="]),
        (("--print",), 2, ["LEVEL=2", "RUN="]),
        (("--level", "hash"), 2, ["LEVEL=hash", "PRINT=none", "RUN="]),
        (("--level", "0"), 2, ["LEVEL=0", "PRINT=none", "RUN="]),
        (("--reset",), 2, []),
    ],
)
def test_the_level_in_force_is_kept(words: tuple[str, ...], level: int, settings: list[str]) -> None:
    with control_page.page(level=level) as runtime, runtime.called(level=0):
        assert main.run(["attach", PID, *words]) == 0
        assert control_page.words(runtime.settings()) == settings


@pytest.mark.parametrize("is_called", [True, False])
def test_the_outcome_as_json(run: RunDir, capsys: pytest.CaptureFixture[str], is_called: bool) -> None:
    words = ["attach", PID, "--wait", "0.05" if not is_called else "10", "--json"]
    with control_page.page() as runtime:
        if is_called:
            with runtime.called(level=3, run_directory=os.fsencode(run.path)):
                assert main.run(words) == 0
        else:
            assert main.run(words) == 5
    found = json.loads(capsys.readouterr().out)
    assert problems(found, json.loads((DOCS / "attach.schema.json").read_text())) == []
    (package,) = found["packages"]
    assert (package["level_before"], package["level"], package["in_force"]) == (0, 3 if is_called else 0, is_called)
    assert package["run"] == (str(run.path) if is_called else None)
    assert (package["pending"] is None) == is_called


def test_a_pattern_that_matches_nothing(run: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    with control_page.page() as runtime, runtime.called(level=3, run_directory=os.fsencode(run.path)):
        assert main.run(["attach", PID, "--filter", "nope*"]) == 0
    assert "warning: no kernel matches nope*" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("delay", "message"),
    [
        (0, "no call of the model has begun since: the settings come into force when the next one begins"),
        (1, "its calls overlap, which on a GPU must not be: the settings wait for a call that begins alone"),
        (2, "a CUDA graph holds calls of its run, so that the run cannot end: nothing changes"),
    ],
)
def test_settings_that_are_not_in_force(delay: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with control_page.page(delay=delay):
        assert main.run(["attach", PID, "--wait", "0.05"]) == 5
    output = capsys.readouterr()
    assert output.out == f"encoder in process {PID}: still level 0\n"
    assert output.err == f"error: process {PID}: {message}\nhint: aoti-debug top {PID}\n"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((PID, "--reset", "--level", "3"), 2, "--reset takes no other setting"),
        ((PID, "--on-hit", "stop"), 2, "--on-hit needs --watch"),
        ((PID, "--watch", "x: what"), 2, "what"),
        ((PID, "--filter", "x" * 2100), 2, "2031 are possible"),
        ((str(2**22 + 1),), 5, "there is no process 4194305"),
    ],
)
def test_wrong_usage(words: tuple[str, ...], code: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with control_page.page() as runtime:
        assert main.run(["attach", *words]) == code
        assert runtime.get("requested") == 0
    assert message in capsys.readouterr().err


def test_a_process_without_packages_or_with_those_of_another_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["attach", str(os.getppid())]) == 5
    assert "has loaded no instrumented package" in capsys.readouterr().err
    with control_page.page(version=running_process.VERSION + 1):
        assert main.run(["attach", PID]) == 5
    assert "build the package again" in capsys.readouterr().err
