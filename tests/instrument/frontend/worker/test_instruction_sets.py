from __future__ import annotations

from pathlib import Path

import pytest
from torch._inductor import cpu_vec_isa
from torch._inductor.cpu_vec_isa import VecISA

from aoti_debug.base.machine.compiler import Processor
from aoti_debug.instrument.frontend.worker import instruction_sets


class Isa(VecISA):
    def __init__(self, name: str, flags: str) -> None:
        self.name = name
        self.flags = flags

    def __str__(self) -> str:
        return self.name

    def build_arch_flags(self) -> str:
        return self.flags


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str]]:
    """The instruction sets that torch tried; those whose code is "bad" do not work."""
    calls: list[tuple[str, str, str]] = []

    def check_build(isa: Isa, code: str) -> bool:
        calls.append((isa.name, isa.flags, code))
        return code != "bad"

    monkeypatch.setattr(VecISA, "check_build", check_build)
    return calls


def test_what_has_worked_is_not_tried_again(tried: list[tuple[str, str, str]], tmp_path: Path) -> None:
    for _ in range(2):
        with instruction_sets.remembered(tmp_path):
            assert Isa("avx2", "-mavx2").check_build("code")
            assert Isa("avx2", "-mavx2 -mfma").check_build("code")
            assert Isa("avx512", "-mavx2").check_build("code")
            assert Isa("avx2", "-mavx2").check_build("other code")
    assert tried == [
        ("avx2", "-mavx2", "code"),
        ("avx2", "-mavx2 -mfma", "code"),
        ("avx512", "-mavx2", "code"),
        ("avx2", "-mavx2", "other code"),
    ]
    assert all(len(path.parent.name) == 2 for path in tmp_path.rglob("*.isa"))


def test_what_has_failed_is_tried_again(tried: list[tuple[str, str, str]], tmp_path: Path) -> None:
    with instruction_sets.remembered(tmp_path):
        assert not Isa("amx", "").check_build("bad")
        assert not Isa("amx", "").check_build("bad")
    assert len(tried) == 2


@pytest.mark.parametrize("changed", ["compiler", "torch", "cpu"])
def test_another_machine_asks_anew(
    tried: list[tuple[str, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    with instruction_sets.remembered(tmp_path):
        Isa("avx2", "").check_build("code")
        if changed == "compiler":
            monkeypatch.setattr("torch._inductor.cpp_builder.get_compiler_version_info", lambda _: "g++ 99")
        elif changed == "torch":
            monkeypatch.setattr("torch.__version__", "9.9")
        else:
            another = Processor("another", frozenset({"fpu"}))
            monkeypatch.setattr(instruction_sets, "this_processor", lambda: another)
        Isa("avx2", "").check_build("code")
    assert len(tried) == 2


def test_torch_is_as_before_afterwards(tried: list[tuple[str, str, str]], tmp_path: Path) -> None:
    before = VecISA.check_build
    with instruction_sets.remembered(tmp_path):
        assert VecISA.check_build is not before
    assert VecISA.check_build is before


def test_a_torch_that_asks_in_another_way(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Other:
        pass

    monkeypatch.setattr(cpu_vec_isa, "VecISA", Other)
    with instruction_sets.remembered(tmp_path):
        assert not hasattr(Other, "check_build")
