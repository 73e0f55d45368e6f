"""Scripts of attempts: their identity, and the modules that they import."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import parts
import pytest

from aoti_debug.minify.attempt import Attempt, folders_of, script_of
from aoti_debug.minify.check import Check
from aoti_debug.minify.script_text import Setting


def test_modules_of_the_current_folder_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "operators_of_mine.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])  # as of a console script
    assert folders_of(("operators_of_mine", "torch")) == (str(tmp_path),)


def test_other_files_make_another_script(tmp_path: Path) -> None:
    start = replace(parts.start("aten.relu.default"), folder=tmp_path)
    hashes = set()
    for content in ("one", "other"):
        (tmp_path / "0.pt").write_text(content)
        script = script_of(Attempt(start, start.units, Check.SAME), "title", Setting())
        assert script is not None
        hashes.add(script.hash)
    assert len(hashes) == 2
