"""The process that replays a launch, as its parent shows it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os, sys
from aoti_debug.repro.templates.child import ReplayReport, run_child
if "--report" in sys.argv:
    report = ReplayReport(int(sys.argv[-1]))
    report.send("begin")
    print("before", file=sys.stderr)
    for thread in range(512):
        text = "one" if thread < 510 else "other"
        line = f"k.py:23: unknown: block: [0,0,0], thread: [{thread},0,0] Assertion `{text}: 0 <= tmp4 < 100` failed."
        os.write(2, f"{line}\\n".encode())
    os.write(2, b"RuntimeError: no line end")
    report.send("end", 11)
    os._exit(11)
print(run_child(["--native"], folds=True, environment=ENVIRONMENT, text="TEXT").message("end"))
"""


@pytest.mark.parametrize("environment", ["None", '{"A": "b"}'], ids=["forked", "new"])
@pytest.mark.parametrize("text", ["through", "echoed"])
def test_an_assertion_of_many_threads_is_printed_once(tmp_path: Path, environment: str, text: str) -> None:
    script = tmp_path / "repro.py"
    script.write_text(SCRIPT.replace("ENVIRONMENT", environment).replace("TEXT", text))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout == "('end', '11')\n"
    assert done.stderr.splitlines() == [
        "before",
        "k.py:23: unknown: block: [0,0,0], thread: [0,0,0] Assertion `one: 0 <= tmp4 < 100` failed.",
        "k.py:23: unknown: block: [0,0,0], thread: [510,0,0] Assertion `other: 0 <= tmp4 < 100` failed.",
        "RuntimeError: no line end",
        "509 more threads: Assertion `one: 0 <= tmp4 < 100` failed",
        "1 more thread: Assertion `other: 0 <= tmp4 < 100` failed",
    ]
