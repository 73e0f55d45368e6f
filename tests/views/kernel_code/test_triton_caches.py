from __future__ import annotations

import getpass
import tempfile
from pathlib import Path

import pytest

from aoti_debug.views.kernel_code.triton_caches import triton_caches


def test_the_cache_of_torchs_own_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    (tmp_path / "triton/0").mkdir(parents=True)
    (tmp_path / "triton/1").mkdir()
    assert {tmp_path / "triton/0", tmp_path / "triton/1"} < set(triton_caches())


def test_inductors_default_is_that_of_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache_dir_utils = pytest.importorskip("torch._inductor.runtime.cache_dir_utils")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(getpass, "getuser", lambda: "a:b")
    cache = Path(cache_dir_utils.default_cache_dir())
    assert cache.parent == tmp_path
    (cache / "triton/0").mkdir(parents=True)
    assert cache / "triton/0" in triton_caches()


def test_the_directory_that_is_named_for_triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    assert tmp_path in triton_caches()
