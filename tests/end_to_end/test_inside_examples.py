"""The examples of looking inside of compiled code: a package tells what eager tells."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT


@pytest.mark.slow
def test_eager_and_package_are_equal(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.inside.inside", "--device", "cpu", "--backend", "aot_eager"]
    done = subprocess.run([*command, "--keep", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False)
    headings = [line for line in done.stdout.splitlines() if line.startswith("## ")]
    assert [line for line in headings if not line.endswith(": equal")] == []
    assert len(headings) == 14
    assert done.returncode == 0, done.stderr[-3000:]
