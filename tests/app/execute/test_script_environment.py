"""Processes that a script starts, and modules that are changed when they are imported."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from aoti_debug.app.execute import script_environment
from aoti_debug.app.execute.script_environment import AfterImport
from tests.paths import ROOT

SEEN = """
import json, os, sys

def seen():
    variables = {name: value for name, value in os.environ.items() if name.startswith(("PYTHONPATH", "_AOTI_DEBUG"))}
    print(json.dumps(["aoti_debug.app.execute.replacements" in sys.modules, variables]), flush=True)

if __name__ == "__main__":
    seen()
"""

STARTS = """
import multiprocessing, os, subprocess, sys
from seen import seen

if __name__ == "__main__":
    command = [sys.executable, "seen.py"]
    seen()
    subprocess.run(command, check=True)
    subprocess.run(command, env={**os.environ, "OTHER": "1"}, check=True)
    os.system(" ".join(command))
    for method in ("spawn", "fork"):
        process = multiprocessing.get_context(method).Process(target=seen)
        process.start()
        process.join()
    subprocess.run(command, env={"PYTHONPATH": os.environ["PYTHONPATH"]}, check=True)
"""


def test_processes_that_a_script_starts(tmp_path: Path) -> None:
    (tmp_path / "seen.py").write_text(SEEN)
    (tmp_path / "starts.py").write_text(STARTS)
    search = os.pathsep.join([str(tmp_path), str(ROOT)])
    variables = {**os.environ, "PYTHONPATH": search, "AOTI_DEBUG_RUN": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "starts.py"],
        cwd=tmp_path,
        env=script_environment.with_startup(variables, keeps_all=True),
        capture_output=True,
        text=True,
        check=True,
    )
    *covered, alone = [json.loads(line) for line in done.stdout.splitlines()]
    assert covered == [[True, {"PYTHONPATH": search}]] * 6
    assert alone == [False, {"PYTHONPATH": search}]


def test_a_module_is_changed_when_it_has_been_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_once.py").write_text("VALUE = 1\ndef f() -> int:\n    return VALUE\n")
    monkeypatch.syspath_prepend(tmp_path)

    def change(module: ModuleType) -> None:
        vars(module)["VALUE"] += 1

    finders = [AfterImport({"imported_once": change}) for _ in range(2)]
    monkeypatch.setattr(sys, "meta_path", [*finders, *sys.meta_path])
    module = importlib.import_module("imported_once")
    monkeypatch.delitem(sys.modules, "imported_once")
    assert module.f() == 3
    assert "return VALUE" in inspect.getsource(module.f)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("imported_never")
