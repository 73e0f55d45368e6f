"""statistics.ptx.gz is what the kernels' sources say, and every assembler takes it."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from aoti_debug.base.machine import compiler
from tests.kept import check_once, contents
from tests.runtime_shims_cuda import samples
from tests.runtime_shims_cuda.device_library import RUNTIME, SCALAR_TYPES, sources_of_runtime

OTHERS = {
    "Gather": {f"aoti_debug_gather_{size}" for size in (1, 2, 4, 8, 16)},
    "Guards": {"aoti_debug_fill_guarded", "aoti_debug_check_guards"},
    "Graphs": {"aoti_debug_begin_replay", "aoti_debug_watch"},
}
# What assembles for a device does so for later ones: the oldest device with each form of the text, and the latest.
ASSEMBLED = (("ptxas", "sm_75", False), ("ptxas", "sm_90", True), ("ptxas-blackwell", "sm_100", True))
OLD_HEADER = ".version 6.0\n.target sm_70\n.address_size 64\n"


def load_make_ptx() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_ptx", RUNTIME / "cuda" / "make_ptx.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make_ptx = load_make_ptx()
PTX = make_ptx.read()


def test_it_was_made_from_these_sources() -> None:
    assert make_ptx.recorded_hash(PTX) == make_ptx.sources_hash(), "run runtime_shims/cuda/make_ptx.py"


def test_its_sources_are_all_that_is_compiled() -> None:
    cuda = RUNTIME / "cuda"
    found = {cuda / make_ptx.KERNELS}
    left = list(found)
    while left:
        source = left.pop()
        for name in re.findall(r'^#include "(.+)"', source.read_text(), re.MULTILINE):
            beside = source.parent / name
            header = beside if beside.is_file() else RUNTIME / name
            if header not in found:
                found.add(header)
                left.append(header)
    assert {(cuda / name).resolve() for name in make_ptx.SOURCES} == {path.resolve() for path in found}


def test_nvcc_makes_the_same() -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc")
    if f"nvcc {make_ptx.compiler_version(nvcc)}." not in PTX.partition("\n")[0]:
        pytest.skip(f"nvcc {make_ptx.compiler_version(nvcc)} is not the one that made the file")

    def check() -> None:
        assert make_ptx.make(nvcc) == PTX

    version = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    parts = [*sources_of_runtime(), *contents(RUNTIME / "cuda/make_ptx.py"), version]
    check_once("statistics.ptx", parts, check)


def test_there_is_a_module_for_every_dtype() -> None:
    numbers = re.findall(r"_\((\w+), (\d+)\)", (RUNTIME / "cuda" / "element_types.h").read_text())
    counted = {int(number) for name, number in numbers if not name.startswith("Opaque")}
    assert counted == {SCALAR_TYPES[dtype] for dtype in samples.DTYPES}
    assert list(make_ptx.split(PTX)) == [*(name for name, _ in numbers), *OTHERS]


def test_each_module_has_its_kernels() -> None:
    for name, text in make_ptx.split(PTX).items():
        kernels = re.findall(r"^\.visible \.entry (\w+)", text, re.MULTILINE)
        assert set(kernels) == OTHERS.get(name, {"aoti_debug_statistics"})


def test_each_module_has_what_its_kernels_need_and_no_more() -> None:
    for name, text in make_ptx.split(PTX).items():
        statements = make_ptx.statements(text)
        assert "".join(statements) == text
        functions = [make_ptx.defined_name(statement) for statement in statements if "{" in statement]
        called = set(re.findall(r"^call\.uni\n(\w+),", text, re.MULTILINE))
        assert sorted(functions) == sorted(called | OTHERS.get(name, {"aoti_debug_statistics"}))
        variables = re.findall(r"^\.shared .* (\w+)[\[;]", text, re.MULTILINE)
        assert sorted(variables) == sorted(set(re.findall(r"\b_ZZ\w+", text)))


def test_no_kernel_copies_what_it_is_passed() -> None:
    """A whole batch of tensors would lie in local memory, a copy for each thread."""
    for name, text in make_ptx.split(PTX).items():
        sizes = [int(size) for size in re.findall(r"^\.local .*\[(\d+)\];", text, re.MULTILINE)]
        assert sum(sizes) < 64, name


def test_it_asks_for_old_drivers_and_devices_only() -> None:
    for text in make_ptx.split(PTX).values():
        assert text.startswith(OLD_HEADER)


def renewed(text: str) -> str:
    """What kernels.h makes of a module for a newer device."""
    return text.replace("//sm_90 ", "").replace(OLD_HEADER, ".version 7.8\n.target sm_90\n.address_size 64\n")


def test_statistics_wait_before_they_read() -> None:
    for name, text in make_ptx.split(PTX).items():
        assert ("//sm_90 " in text) == (name not in OTHERS)
        assert ".nc." not in text, "what another kernel may still be writing is not for the read-only cache"
        for kernel in re.split(r"^\.visible \.entry ", renewed(text), flags=re.MULTILINE)[1:]:
            before, wait, _ = kernel.partition("griddepcontrol.wait;")
            assert not wait or not re.search(r"\b(ld\.(?!param)|st|atom|red|bar)\b", before)


def joined(ptx: str) -> str:
    """All modules as one. What several have is in it once; two functions of one name do not assemble."""
    kernels = "aoti_debug_statistics"
    modules = {name: text.replace(kernels, f"{kernels}_{name}") for name, text in make_ptx.split(ptx).items()}
    return "".join(dict.fromkeys(statement for text in modules.values() for statement in make_ptx.statements(text)))


@pytest.mark.parametrize(("assembler", "architecture", "is_newer"), ASSEMBLED)
def test_it_assembles(tmp_path: Path, assembler: str, architecture: str, is_newer: bool) -> None:
    backend = compiler.triton_directory()
    ptxas = backend / "bin" / assembler if backend is not None else None
    if ptxas is None or not ptxas.is_file():
        pytest.skip(f"triton, which brings {assembler}, is not installed")
    known = subprocess.run([ptxas, "--help"], capture_output=True, text=True, check=True).stdout
    if f"'{architecture}'" not in known:
        pytest.skip(f"{assembler} knows no {architecture}")
    source = tmp_path / "all.ptx"
    source.write_text(renewed(joined(PTX)) if is_newer else joined(PTX))
    quickly = ["--Ofast-compile", "max"] if "--Ofast-compile" in known else []
    options = [*quickly, f"-arch={architecture}"]

    def check() -> None:
        command = [str(ptxas), *options, str(source), "-o", str(tmp_path / "out")]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stderr) == (0, "")

    check_once("assembled", [*contents(source, ptxas), *options], check)
