from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aoti_debug.base.abi import CallKind, Phase, SaveStatus
from aoti_debug.base.errors import RunDirError
from aoti_debug.runs.rundir import rescued_tensors
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey, TensorFile
from tests.wrong_types import assert_refused

SAVED = TensorFile(
    *(0, 0, LaunchKey(CallKind.MODEL, 0, 3), 1, Phase.BEFORE, SaveStatus.WRITTEN, 64, (1, 2**64 - 1), "tensors/x", ""),
)
SKIPPED = SAVED._replace(
    key=LaunchKey(CallKind.CONSTANT, 2, 1), status=SaveStatus.SKIPPED, hash=(0, 0), path="", reason="too large"
)


def read(run: Path, content: Any) -> tuple[TensorFile, ...]:
    text = content if isinstance(content, str) else json.dumps(content)
    (run / rescued_tensors.NAME).write_text(text)
    return rescued_tensors.read(run)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert rescued_tensors.read(tmp_path) == ()
    rescued_tensors.write(tmp_path, [SAVED, SKIPPED])
    assert rescued_tensors.read(tmp_path) == (SAVED, SKIPPED)
    assert [path.name for path in tmp_path.iterdir()] == [rescued_tensors.NAME]
    data = json.loads((tmp_path / rescued_tensors.NAME).read_text())
    first = {
        "launch": "0.3",
        "slot": 1,
        "bytes": 64,
        "hash": ["0000000000000001", "f" * 16],
        "path": "tensors/x",
        "reason": "",
    }
    assert (list(data), data["format"], data["tensors"][0]) == (["format", "tensors"], 1, first)
    assert (list(data["tensors"][0]), data["tensors"][1]["launch"]) == (list(first), "c2.1")


def test_wrong_types_are_damage(tmp_path: Path) -> None:
    rescued_tensors.write(tmp_path, [SAVED, SKIPPED])
    data = json.loads((tmp_path / rescued_tensors.NAME).read_text())
    assert_refused(lambda changed: read(tmp_path, changed), data, RunDirError, unread=("format",))


@pytest.mark.parametrize("change", [{"launch": "x"}, {"launch": ""}, {"hash": ["x", "0"]}, {"hash": ["0"]}])
def test_texts_that_are_no_numbers(tmp_path: Path, change: dict[str, Any]) -> None:
    rescued_tensors.write(tmp_path, [SAVED])
    data = json.loads((tmp_path / rescued_tensors.NAME).read_text())
    data["tensors"][0] |= change
    with pytest.raises(RunDirError, match="is damaged"):
        read(tmp_path, data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "is damaged"),
        ("[" * 200_000, "nested too deeply"),
        ('{"format": 2, "tensors": []}', "format 2; this aoti-debug reads format 1"),
        ('{"format": true, "tensors": []}', "format true"),
    ],
)
def test_what_is_no_index(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(RunDirError, match=message):
        read(tmp_path, text)
