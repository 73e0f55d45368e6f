from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.package.manifest import KernelCompilation, Kind
from aoti_debug.repro.modes import Machine, modes, this_machine


@pytest.mark.parametrize(
    ("kind", "device", "machine", "possible"),
    [
        (Kind.TRITON, "cuda", Machine(), ["interpret", "cubin", "jit", "memcheck", "initcheck", "poison"]),
        (Kind.TRITON, "cuda", Machine(cuda="no device"), ["interpret"]),
        (Kind.TRITON, "cuda", Machine(triton="no triton"), []),
        (Kind.TRITON, "cuda", Machine(compute_sanitizer="none"), ["interpret", "cubin", "jit", "poison"]),
        (Kind.CPP, "cpu", Machine(cuda="no device"), ["checked", "native", "address", "poison"]),
        (Kind.CPP, "cpu", Machine(address_sanitizer="none"), ["checked", "native", "poison"]),
        (Kind.PROXY, "cpu", Machine(cuda="no device"), ["operator", "poison"]),
        (Kind.SHIM_OUT, "cuda", Machine(), ["operator", "memcheck", "initcheck", "poison"]),
    ],
)
def test_the_modes_of_a_machine(kind: Kind, device: str, machine: Machine, possible: list[str]) -> None:
    found = modes(kind, device, machine)
    assert [mode.name for mode in found if not mode.missing] == possible
    assert all(mode.missing for mode in found if mode.name not in possible)


def test_this_machine_names_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = KernelCompilation("/no/such/c++", (), (), ())
    monkeypatch.setenv("PATH", str(tmp_path))
    found = this_machine(compiler, cuda=False)
    assert found.compiler == found.address_sanitizer == "/no/such/c++ was not found"
    assert "CUDA" in found.cuda
    assert replace(found, cuda="") == this_machine(compiler, cuda=True)
