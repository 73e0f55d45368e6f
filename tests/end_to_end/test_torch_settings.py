"""A package runs, is compared and is replayed with the settings of torch of the process that asks for it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aoti_debug.base.machine import torch_settings
from aoti_debug.base.machine.processes.child_process import sharing_torch_settings
from aoti_debug.compare.compare import CompareOptions, compare
from aoti_debug.repro.repro import ReproOptions, write_repro
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from tests.built_model import Built

pytestmark = pytest.mark.slow
SETTINGS: dict[str, torch_settings.Value] = {
    "deterministic_algorithms": "warn",
    "num_threads": 3,
    "backends.mkldnn.enabled": False,
}


def test_a_run_and_what_comes_after_it(built: Callable[[str], Built], tmp_path: Path) -> None:
    package = built("mixed").package
    with torch_settings.applied(SETTINGS), sharing_torch_settings():
        run = runner.run(RunOptions(package, level=1, out=tmp_path / "runs")).run
    assert run.info.torch_settings == SETTINGS
    plain = runner.run(RunOptions(package, level=3, out=tmp_path / "plain")).run
    assert plain.info.torch_settings == {}

    compared = compare(CompareOptions(model=run.path, out=tmp_path / "compares"))
    assert compared.first_wrong is None
    called = next(launch for launch in run.launches if launch.kernel.startswith("aoti_torch"))
    written = write_repro(ReproOptions(called.id, run.path, output=tmp_path / "repro"))
    script = (written.path / "repro.py").read_text()
    lines = torch_settings.statements(SETTINGS)
    assert "\n".join(lines) in script
    (written.path / "settings.py").write_text(script.replace(lines[-1], f"{lines[-1]}\nprint(torch.get_num_threads())"))
    replayed = subprocess.run(
        [sys.executable, written.path / "settings.py"], capture_output=True, text=True, check=False
    )
    assert (replayed.returncode, replayed.stdout.splitlines()[0]) == (0, "3"), replayed.stderr
