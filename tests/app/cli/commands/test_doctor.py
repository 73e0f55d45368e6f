from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from aoti_debug.app.cli import main
from aoti_debug.app.cli.commands.doctor import command
from aoti_debug.app.doctor import doctor
from aoti_debug.app.doctor.host import MachineCheck, Status
from tests.schema import DOCS, problems

CHECKS = (
    MachineCheck("torch", Status.OK, "2.13.0"),
    MachineCheck(
        "addr2line", Status.MISSING, "not found", "stacks of crashes name functions but no lines: install binutils"
    ),
    MachineCheck("shared memory", Status.WARNING, "64 MiB of " + "much " * 20 + "free", "docker run --shm-size=2g"),
)
BROKEN = MachineCheck("compiler", Status.MISSING, "no C++ compiler", "install g++", needed=True)


def told(monkeypatch: pytest.MonkeyPatch, *checks: MachineCheck, options: tuple[str, ...] = ()) -> tuple[int, str]:
    monkeypatch.setattr(doctor, "run_checks", lambda: checks)
    result = CliRunner().invoke(command, list(options))
    return result.exit_code, result.output


def test_a_line_a_check_and_what_to_do_below(monkeypatch: pytest.MonkeyPatch) -> None:
    code, output = told(monkeypatch, *CHECKS)
    assert code == 0
    assert output.splitlines() == [
        "ok       torch              2.13.0",
        "missing  addr2line          not found",
        "                            → stacks of crashes name functions but no lines: install binutils",
        "warning  shared memory      64 MiB of " + "much " * 20 + "free",
        "                            → docker run --shm-size=2g",
        "models can be built and run here, with 2 limitations",
    ]


def test_something_that_everything_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    code, output = told(monkeypatch, *CHECKS, BROKEN)
    assert code == 4
    assert output.splitlines()[-1] == "models cannot be built and run here; missing: compiler"


@pytest.mark.parametrize(("checks", "code"), [(CHECKS, 0), ((*CHECKS, BROKEN), 4)])
def test_json(monkeypatch: pytest.MonkeyPatch, checks: tuple[MachineCheck, ...], code: int) -> None:
    exit_code, output = told(monkeypatch, *checks, options=("--json",))
    found = json.loads(output)
    assert problems(found, json.loads((DOCS / "doctor.schema.json").read_text())) == []
    assert (exit_code, found["format"], found["well"]) == (code, 1, code == 0)
    assert [MachineCheck(**{**check, "status": Status(check["status"])}) for check in found["checks"]] == list(checks)


def test_it_is_a_verb_that_imports_no_torch() -> None:
    assert "doctor" in main.VERBS
    code = (
        "import sys; from aoti_debug.app.cli import main; code = main.run(['doctor', '--json']);"
        "sys.exit(code if 'torch' not in sys.modules else 99)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    assert done.returncode == (0 if found["well"] else 4), done.stderr
    assert found["checks"]
