"""The name and the features of the processor."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
import torch

from aoti_debug.base.machine import system
from aoti_debug.base.machine.system import Processor, installed_versions, this_processor

X86 = "processor\t: 0\nmodel name\t: A Xeon\nflags\t\t: fpu avx2\n\nprocessor\t: 1\nmodel name\t: B\nflags\t\t: fpu\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (X86, Processor("A Xeon", frozenset({"fpu", "avx2"}))),
        (ARM, Processor(platform.machine(), frozenset({"fp", "asimd"}))),
        ("", Processor(platform.machine(), frozenset())),
    ],
)
def test_the_first_processor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, expected: Processor) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(system, "CPUINFO", tmp_path / "cpuinfo")
    assert this_processor() == expected


def test_a_system_that_describes_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(system, "CPUINFO", tmp_path / "none")
    assert this_processor() == Processor(platform.machine(), frozenset())


def test_only_what_is_installed_has_a_version() -> None:
    found = installed_versions("torch", "no-such-package")
    assert list(found) == ["Python", "system", "torch"]
    assert found["Python"] == platform.python_version()
    assert torch.__version__.startswith(found["torch"].partition("+")[0])
