"""Packages for other machines; what Inductor calls instruction sets, and what Linux calls them."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from aoti_debug.base.errors import ArtifactError
from aoti_debug.base.machine.compiler import Processor
from aoti_debug.package.pt2 import compatibility

HASWELL = frozenset({"fpu", "sse2", "avx2", "fma"})
SKYLAKE = HASWELL | {"avx512f", "avx512dq", "avx512vl", "avx512bw"}
SAPPHIRE = SKYLAKE | {"avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8"}
HERE = {"AOTI_PLATFORM": "linux", "AOTI_MACHINE": os.uname().machine, "AOTI_CPU_ISA": ""}
PACKAGE = Path("m.pt2")


@pytest.mark.parametrize(
    ("instruction_sets", "flags", "missing"),
    [
        ("AVX2", HASWELL, ()),
        ("AVX2", frozenset({"sse2"}), ("AVX2",)),
        ("AVX512", HASWELL, ("AVX512",)),
        ("AVX512", SKYLAKE, ()),
        ("AVX512 AVX512_VNNI", SKYLAKE, ("AVX512_VNNI",)),
        ("AVX512 AVX512_VNNI AMX_TILE", SAPPHIRE, ()),
        ("AVX512 AVX512_VNNI AMX_TILE", SKYLAKE, ("AVX512_VNNI", "AMX_TILE")),
        ("ASIMD", frozenset({"asimd", "fp"}), ()),
        ("ASIMD", SAPPHIRE, ("ASIMD",)),
        ("INVALID_VEC_ISA", HASWELL, ()),
        ("AVX512", frozenset(), ()),
    ],
)
def test_instruction_sets(instruction_sets: str, flags: frozenset[str], missing: tuple[str, ...]) -> None:
    assert compatibility.missing_instruction_sets(instruction_sets, flags) == missing


def test_this_machine_has_the_instruction_sets_that_inductor_picks() -> None:
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    compatibility.check(PACKAGE, HERE | {"AOTI_CPU_ISA": str(pick_vec_isa()).upper()})


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"AOTI_PLATFORM": "windows"}, "m.pt2 was compiled for windows; this machine runs Linux"),
        ({"AOTI_MACHINE": "s390x"}, f"m.pt2 was compiled for s390x; this machine is {os.uname().machine}"),
        ({"AOTI_CPU_ISA": "AVX512 AMX_TILE"}, "m.pt2 was compiled for a processor with AMX_TILE, which this one lacks"),
    ],
)
def test_another_machine(monkeypatch: pytest.MonkeyPatch, metadata: dict[str, str], message: str) -> None:
    monkeypatch.setattr(compatibility, "this_processor", lambda: Processor("Skylake", SKYLAKE))
    with pytest.raises(ArtifactError) as caught:
        compatibility.check(PACKAGE, HERE | metadata)
    assert str(caught.value) == message
    assert caught.value.hint.startswith("run it on a machine")


@pytest.mark.parametrize(
    ("compiled", "here", "runs"),
    [("90", (9, 0), True), ("80", (8, 6), True), ("90", (8, 0), False), ("80", (9, 0), False), ("", (9, 0), True)],
)
def test_compute_capability(compiled: str, here: tuple[int, int], runs: bool) -> None:
    metadata = {"AOTI_COMPUTE_CAPABILITY": compiled}
    if runs:
        compatibility.check_gpu(PACKAGE, metadata, here)
        return
    with pytest.raises(ArtifactError, match=rf"m\.pt2 was compiled for a GPU of compute capability {compiled[0]}\.0"):
        compatibility.check_gpu(PACKAGE, metadata, here)


def test_the_library_of_another_machine(tmp_path: Path) -> None:
    here = next(number for number, name in compatibility._MACHINES.items() if name == os.uname().machine)
    library = tmp_path / "c.so"
    for number in (here, 183 if here != 183 else 62):
        header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, number, 1, 0, 0, 0, 0, 64, 0, 0, 0, 0, 0)
        library.write_bytes(header)
        if number == here:
            compatibility.check_library(Path("c.pt2"), library)
    with pytest.raises(ArtifactError, match=rf"c\.pt2 holds a library for \w+; this machine is {os.uname().machine}"):
        compatibility.check_library(Path("c.pt2"), library)
    library.write_bytes(b"no library")
    with pytest.raises(ArtifactError, match=r"c\.so is no library"):
        compatibility.check_library(Path("c.pt2"), library)


def test_metadata_is_texts() -> None:
    assert compatibility.parse_metadata(PACKAGE, "x.json", b'{"a": "b", "n": 3}') == {"a": "b", "n": "3"}


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 200_000, b"\xff"])
def test_damaged_metadata(text: str | bytes) -> None:
    with pytest.raises(ArtifactError, match=r"x\.json of m\.pt2 is damaged"):
        compatibility.parse_metadata(PACKAGE, "x.json", text)
