"""Scripts of attempts: their identity, and the modules that they import."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from aoti_debug.triage.minify.attempt import Attempt, script_of
from aoti_debug.triage.minify.script_text import ScriptCheck, ScriptSetup
from tests.triage.minify import parts


def test_other_files_make_another_script(tmp_path: Path) -> None:
    start = replace(parts.start("aten.relu.default"), folder=tmp_path)
    hashes = set()
    for content in ("one", "other"):
        (tmp_path / "0.pt").write_text(content)
        script = script_of(Attempt(start, start.units, ScriptCheck.SAME), "title", ScriptSetup())
        assert script is not None
        hashes.add(script.hash)
    assert len(hashes) == 2
