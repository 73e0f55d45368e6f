"""Scratch directories where the system refuses something."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from aoti_debug.base.errors import UsageError
from aoti_debug.base.machine.user_directories import scratch_directory


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_a_scratch_directory_that_cannot_be_opened_is_an_error_and_goes(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> int:
        raise OSError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        patched.setattr("shutil.rmtree", lambda path, **_: os.rmdir(path))  # which opens folders too
        with pytest.raises(UsageError, match="cannot make a temporary directory: Permission denied"):
            scratch_directory().__enter__()
    assert list(temporary.iterdir()) == []


def test_a_file_system_without_locks_has_scratch_directories(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with scratch_directory() as folder:
        (folder / "a").touch()
        os.utime(folder, (0, 0))
        with scratch_directory():  # does not take it for one that is left over
            assert folder.exists()
    assert list(temporary.iterdir()) == []
