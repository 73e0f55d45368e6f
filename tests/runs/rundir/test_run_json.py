from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aoti_debug.base.errors import RunDirError
from aoti_debug.runs.rundir import run_json
from aoti_debug.runs.rundir.run_json import Exit, ExitKind, RunInfo, RunStage
from tests.factories import run_info
from tests.wrong_types import assert_refused

WHOLE = run_info(
    filters=("a*",),
    phase="both",
    exit=Exit(ExitKind.FAULT, "RuntimeError: x", RunStage.CALL, "SIGSEGV", "RuntimeError", 700, 0.5),
    imports=("ops",),
    libraries=("/lib/ops.so",),
    guards=True,
    poison=255,
    torch_settings={"num_threads": 3, "float32_matmul_precision": "high"},
)
DEEP = "[" * 200_000


def read(folder: Path, content: Any) -> RunInfo:
    text = content if isinstance(content, (str, bytes)) else json.dumps(content)
    (folder / run_json.NAME).write_bytes(text.encode() if isinstance(text, str) else text)
    return run_json.read(folder)


def refusal(folder: Path, content: Any) -> RunDirError:
    with pytest.raises(RunDirError) as caught:
        read(folder, content)
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize("info", [WHOLE, run_info(torch_version=None)])
def test_what_is_written_is_read(tmp_path: Path, info: RunInfo) -> None:
    run_json.write(info, tmp_path)
    assert run_json.read(tmp_path) == info
    assert [path.name for path in tmp_path.iterdir()] == [run_json.NAME]
    assert (json.loads((tmp_path / run_json.NAME).read_text())["phase"] is None) is (info.phase == "")


def test_wrong_types_are_damage(tmp_path: Path) -> None:
    data = json.loads(run_json.to_json(WHOLE))
    assert_refused(lambda changed: read(tmp_path, changed), data, RunDirError, unread=("format",))


@pytest.mark.parametrize("version", [True, 1.0, "1", 2, None])
def test_another_format(tmp_path: Path, version: Any) -> None:
    data = json.loads(run_json.to_json(WHOLE)) | {"format": version}
    assert (
        str(refusal(tmp_path, data))
        == f"{tmp_path}/run.json has format {json.dumps(version)}; this aoti-debug reads format 1"
    )


@pytest.mark.parametrize("text", ["", "[]", b"\xff", DEEP, f'{{"format": 1, "exit": {DEEP}'])
def test_what_is_no_object(tmp_path: Path, text: str | bytes) -> None:
    assert "is damaged" in str(refusal(tmp_path, text))


@pytest.mark.parametrize(
    "started", ["", "yesterday", "2026-13-01T00:00:00", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"]
)
def test_a_start_that_is_no_date(tmp_path: Path, started: str) -> None:
    data = json.loads(run_json.to_json(WHOLE)) | {"started": started}
    assert "started is not a date" in str(refusal(tmp_path, data))


def test_a_setting_that_torch_does_not_take(tmp_path: Path) -> None:
    data = json.loads(run_json.to_json(WHOLE)) | {"torch_settings": {"default_dtype": "os"}}
    assert "torch_settings: default_dtype is 'os'" in str(refusal(tmp_path, data))


def test_what_older_runs_and_the_runtime_have_written(tmp_path: Path) -> None:
    data = {
        "format": 1,
        "tool_version": None,
        "torch_version": None,
        "pid": 1,
        "started": "2026-11-20T23:15:01Z",
        "level": 3,
        "filters": None,
        "phase": None,
        "device": "cpu",
        "host": "embedded",
        "later": 1,
        "exit": {"kind": "clean", "detail": None},
    }
    info = read(tmp_path, data)
    assert (info.tool_version, info.filters, info.phase, info.command) == (None, (), "", ())
    assert (info.exit, info.calls, info.imports, info.guards) == (Exit(ExitKind.CLEAN), 1, (), False)


@pytest.mark.parametrize(
    ("guards", "poison", "environment", "expected"),
    [
        (False, None, {}, None),
        (False, None, {"AOTI_DEBUG_GUARDS": "0", "AOTI_DEBUG_POISON": "11"}, None),
        (True, None, {}, 0xFF),
        (True, 0, {"AOTI_DEBUG_POISON": "11"}, 0),
        (False, None, {"AOTI_DEBUG_GUARDS": "1"}, 0xFF),
        (True, None, {"AOTI_DEBUG_POISON": "3B"}, 0x3B),
        (False, None, {"AOTI_DEBUG_GUARDS": "1", "AOTI_DEBUG_POISON": "0x3"}, 0xFF),
    ],
)
def test_the_poison_in_force(
    monkeypatch: pytest.MonkeyPatch,
    guards: bool,
    poison: int | None,
    environment: dict[str, str],
    expected: int | None,
) -> None:
    for name in ("AOTI_DEBUG_GUARDS", "AOTI_DEBUG_POISON"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert run_json.poison_in_force(poison, guards=guards) == expected
