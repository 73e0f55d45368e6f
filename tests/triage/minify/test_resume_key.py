"""The identity of a minimisation."""

from __future__ import annotations

from pathlib import Path

import pytest

from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.triage.minify import minify
from aoti_debug.triage.minify.minify import key_of
from aoti_debug.triage.minify.start_parts import MinifyOptions


def test_other_operators_or_versions_are_another_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mine, library, program = (tmp_path / name for name in ("operators_of_mine.py", "ops.so", "program.pt2"))
    for path in (mine, library, program):
        path.write_text("one")
    options = MinifyOptions(program, user_code=UserCode(("operators_of_mine",), (library,)))
    keys = [key_of(options), key_of(options)]
    assert keys[0] == keys[1]
    for path in (mine, library):
        path.write_text("other")
        keys.append(key_of(options))
    monkeypatch.setattr(minify, "installed_versions", lambda *_: {"torch": "9.9"})
    keys.append(key_of(options))
    assert len(set(keys)) == 4
