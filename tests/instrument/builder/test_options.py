from __future__ import annotations

from pathlib import Path

import pytest

from aoti_debug.instrument.builder.options import BuildOptions
from aoti_debug.package.recording.site_filter import SiteFilter


def test_a_comma_separates_patterns() -> None:
    chosen = BuildOptions("m.pt2", filters=("cpp_*,!nothing", "triton_*"), modules=("encoder",)).site_filter
    assert chosen == SiteFilter(("cpp_*", "!nothing", "triton_*"), ("encoder",))


def test_libraries_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert BuildOptions("m.pt2", libraries=("a.so", "/b.so")).library_paths == (str(tmp_path / "a.so"), "/b.so")
