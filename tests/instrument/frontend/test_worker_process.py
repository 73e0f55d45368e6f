"""The process of a lowering, its cache, and what it hands on to later ones."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from torch._inductor.runtime.cache_dir_utils import default_cache_dir

from aoti_debug.base.errors import TargetError, ToolchainError
from aoti_debug.base.machine.compiler import Torch
from aoti_debug.instrument.frontend import worker_process
from aoti_debug.instrument.frontend.protocol import messages
from aoti_debug.instrument.frontend.protocol.messages import Request
from tests.paths import ROOT

TORCH = Torch("2.13.0", Path("/nowhere"), "fingerprint")


@pytest.mark.parametrize("links", [True, False])
def test_results_are_handed_on_to_the_next_lowering(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    def refused(_source: object, _target: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "users"))
    if not links:
        monkeypatch.setattr(os, "link", refused)
    with worker_process.environment(tmp_path / "first", TORCH) as first:
        own = Path(first["TORCHINDUCTOR_CACHE_DIR"])
        for name in ("ab/isa.so", "ab/isa.lock", "model/kernel.cpp"):
            (own / name).parent.mkdir(parents=True, exist_ok=True)
            (own / name).write_text(name)
    with worker_process.environment(tmp_path / "second", TORCH) as second:
        found = Path(second["TORCHINDUCTOR_CACHE_DIR"])
        assert [path.relative_to(found).as_posix() for path in found.rglob("*") if path.is_file()] == ["ab/isa.so"]
        assert (found / "ab/isa.so").read_text() == "ab/isa.so"


def test_a_lowering_that_was_ended_hands_nothing_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def interrupted() -> None:
        with worker_process.environment(tmp_path / "lowering", TORCH) as variables:
            half = Path(variables["TORCHINDUCTOR_CACHE_DIR"], "ab/isa.so")
            half.parent.mkdir()
            half.write_text("half of a li")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(worker_process.shared(TORCH).iterdir()) == []


def test_a_full_disk_leaves_no_half_file_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_source: object, _target: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    def full(_source: object, target: Path) -> None:
        target.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "own/ab").mkdir(parents=True)
    (tmp_path / "own/ab/isa.so").write_text("a library")
    monkeypatch.setattr(os, "link", refused)
    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(OSError, match="No space left"):
        worker_process.link_new(tmp_path / "own", tmp_path / "shared")
    assert list((tmp_path / "shared/ab").iterdir()) == []


def test_configurations_of_the_user_come_before_those_of_earlier_builds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = tmp_path / "users"
    for name in ("ab/k.best_config", "ab/k.py", "cache/0123", "model/x.best_config"):
        (users / name).parent.mkdir(parents=True, exist_ok=True)
        (users / name).write_text("the user's")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(users))
    earlier = worker_process.shared(TORCH) / "ab"
    earlier.mkdir(parents=True)
    for name in ("k.best_config", "l.best_config"):
        (earlier / name).write_text("earlier")
    with worker_process.environment(tmp_path / "lowering", TORCH) as variables:
        own = Path(variables["TORCHINDUCTOR_CACHE_DIR"])
        found = {path.relative_to(own).as_posix(): path.read_text() for path in own.rglob("*") if path.is_file()}
        assert found == {"ab/k.best_config": "the user's", "ab/l.best_config": "earlier", "cache/0123": "the user's"}
        (own / "ab/k.best_config").write_text("another")
        assert json.loads((tmp_path / "lowering" / messages.AUTOTUNED).read_text()) == ["ab/k.best_config"]
    assert (users / "ab/k.best_config").read_text() == "the user's"
    assert (earlier / "k.best_config").read_text() == "earlier"


@pytest.mark.parametrize(("path", "kept"), [("/nowhere/bin/ptxas", False), ("/usr/local/bin/ptxas", True)])
def test_the_assembler_that_torch_has_chosen_is_not_handed_on(
    monkeypatch: pytest.MonkeyPatch, path: str, kept: bool
) -> None:
    monkeypatch.setenv("TRITON_PTXAS_PATH", path)
    assert ("TRITON_PTXAS_PATH" in worker_process.inherited(TORCH)) is kept


def test_the_assembler_that_the_user_has_chosen_is_handed_on() -> None:
    code = f"from {__name__} import TORCH, worker_process; print(worker_process.inherited(TORCH)['TRITON_PTXAS_PATH'])"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TRITON_PTXAS_PATH": "/nowhere/bin/ptxas"}
    printed = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert printed.stdout == "/nowhere/bin/ptxas\n"


def test_a_cache_of_somebody_else_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "users/ab").mkdir(parents=True)
    (tmp_path / "users/ab/k.best_config").write_text("{}")
    assert worker_process.copy_autotuned(tmp_path / "users", tmp_path / "own") == ["ab/k.best_config"]
    monkeypatch.setattr(os, "getuid", lambda: 1 << 30)
    assert worker_process.copy_autotuned(tmp_path / "users", tmp_path / "other") == []
    assert worker_process.copy_autotuned(tmp_path / "none", tmp_path / "other") == []


def test_another_lowering_keeps_the_configurations_of_the_first_one(tmp_path: Path) -> None:
    users, own = (tmp_path / name / "ab/k.best_config" for name in ("users", "own"))
    for file in (users, own):
        file.parent.mkdir(parents=True)
    users.write_text("{}")
    os.link(users, own)  # the user's cache may have the same file
    assert worker_process.copy_autotuned(tmp_path / "users", tmp_path / "own") == ["ab/k.best_config"]
    users.unlink()
    users.write_text('{"XBLOCK": 1}')
    assert worker_process.copy_autotuned(tmp_path / "users", tmp_path / "own") == ["ab/k.best_config"]
    assert own.read_text() == "{}"


def test_where_the_users_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    assert worker_process.users_cache() == Path(default_cache_dir())
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    assert worker_process.users_cache() == tmp_path


def test_a_worker_that_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # no server fits: it is a new process
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no_python"))
    (tmp_path / "lowering").mkdir()
    with pytest.raises(ToolchainError, match="a process of some_module cannot be started: No such file"):
        worker_process.run_worker("some_module", Request("program.pt2", str(tmp_path / "lowering")), TORCH, 60)


def test_a_worker_that_the_system_refuses_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "unreadable.py").write_text("raise OSError(5, 'Input/output error', '/cache/stack.txt')\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), str(ROOT))))
    (tmp_path / "lowering").mkdir()
    request = Request("program.pt2", str(tmp_path / "lowering"))
    with pytest.raises(TargetError) as raised:
        worker_process.run_worker("unreadable", request, TORCH, 60)
    first, log = str(raised.value).splitlines()
    assert first == "the process that lowered the model failed: Input/output error: /cache/stack.txt"
    assert "Traceback" in Path(log.removeprefix("log: ")).read_text()
    assert "dmesg" in raised.value.hint
