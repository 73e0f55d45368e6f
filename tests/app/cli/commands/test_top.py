from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from aoti_debug.app.cli import main
from aoti_debug.app.cli.commands import top
from aoti_debug.app.cli.commands.top import Interval, WatchedPackage
from aoti_debug.runs.run import running_process
from aoti_debug.runs.run.running_process import ControlDelay, PackageState
from tests import control_page
from tests.runs.show.recorded import level_2
from tests.schema import DOCS, problems

PID = str(os.getpid())


def state(**fields: object) -> PackageState:
    known: dict[str, object] = {
        "requested": 0,
        "accepted": 0,
        "delay": ControlDelay.NONE,
        "level": 2,
        "last_site": 0,
        "calls": 0,
        "launches": 0,
        "runs": 1,
        "run_directory": None,
        "library": control_page.LIBRARY,
    }
    return PackageState(**{**known, **fields})  # type: ignore[arg-type]


def test_rates_of_an_interval() -> None:
    one = Interval(state(calls=10, launches=100), state(calls=30, launches=500), 2.0, 1)
    assert (one.calls, one.launches) == (10.0, 200.0)
    assert Interval(state(level=0), state(level=0, calls=2), 1.0, 1).launches is None
    assert Interval(state(launches=100), state(launches=5, runs=2), 1.0, 1).launches is None


def test_the_newest_launch_and_the_first_nan(tmp_path: Path) -> None:
    run = level_2(tmp_path / "runs")
    package = WatchedPackage()
    now = state(calls=2, launches=len(run.launches), last_site=run.launches[-1].site.id, run_directory=run.path)
    seen = package.observe(Interval(state(), now, 1.0, 3 << 20))
    first, *rest = top.observation_lines(seen, 1000)
    facts = re.split("  +", first)
    assert facts[1:5] == ["encoder", "level 2", "2.0 calls/s", f"{len(run.launches)} launches/s"]
    assert facts[5] == "3.0 MiB"
    assert facts[6].startswith(f"newest {run.launches[-1].kernel} ")
    command = f"aoti-debug show {run.launches[0].id} --run {run.path}"
    assert rest == [f"  first NaN: 3 elements of buf0 after 0.0 aoti_torch_cpu_addmm_out model.py:12: {command}"]
    again = package.observe(Interval(now, now, 1.0, 1))
    assert len(top.observation_lines(again, 200)) == 1  # it is said once
    for observed in (seen, again):
        printed = top.document(4711, observed)
        assert problems(printed, json.loads((DOCS / "top.schema.json").read_text())) == []
        nan = printed["first_nan"]
        assert isinstance(nan, dict)
        assert (nan["launch"], nan["elements"], nan["command"]) == ("0.0", 3, command)


def test_a_long_journal_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top, "_MOST_JOURNAL", 1024)
    now = state(launches=1, run_directory=level_2(tmp_path / "runs").path)
    package = WatchedPackage()
    seen = [package.observe(Interval(now, now, 1.0, 1)) for _ in range(2)]
    assert [observed.nan for observed in seen] == [None, None]
    assert [len(observed.news) for observed in seen] == [1, 0]


def test_this_process(capsys: pytest.CaptureFixture[str]) -> None:
    with control_page.page(calls=7):
        assert main.run(["top", PID, "--interval", "0.01", "--count", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all("  encoder  level 0  0.0 calls/s  launches not counted  " in line for line in lines)


def test_one_json_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with control_page.page(calls=7):
        assert main.run(["top", PID, "--interval", "0.01", "--count", "2", "--json"]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [problems(found, json.loads((DOCS / "top.schema.json").read_text())) for found in printed] == [[], []]
    assert [(found["calls"], found["launches_per_second"]) for found in printed] == [(7, None)] * 2


def test_a_process_that_ends(capsys: pytest.CaptureFixture[str]) -> None:
    code = """import os, sys, time
from tests import control_page
from tests.schema import DOCS, problems
with control_page.page():
    print(flush=True)
    sys.stdin.readline()"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with running_process.control_pages(process.pid):
            pass
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.close()
        assert main.run(["top", str(process.pid), "--interval", "0.2"]) in (0, 5)
    output = capsys.readouterr()
    assert f"process {process.pid} has ended" in output.out or f"process {process.pid}" in output.err
