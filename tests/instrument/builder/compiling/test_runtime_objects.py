from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from aoti_debug.base.errors import ToolchainError
from aoti_debug.base.machine.compiler import Torch, find_compiler
from aoti_debug.instrument.builder.compiling import runtime_objects
from aoti_debug.instrument.builder.compiling.site_tables import sites_cpp
from aoti_debug.instrument.builder.compiling.toolchain import RUNTIME, Toolchain
from aoti_debug.instrument.frontend.sources import Flags
from tests import machine_results
from tests.factories import make_manifest
from tests.kept import check_once, contents

FLAGS = Flags("g++", (), (), (), (), (), (), ())


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toolchain:
    machine_results.use_empty_cache(tmp_path / "cache", monkeypatch)
    return Toolchain(find_compiler(), Torch("2.13.0", Path("/nowhere"), "fingerprint"))


def test_the_runtime_is_for_cpu_and_cuda(tools: Toolchain) -> None:
    with pytest.raises(ToolchainError, match="models for mps cannot be instrumented"):
        runtime_objects.compile_runtime(tools, "mps", FLAGS)


def test_the_runtime_of_this_machine_is_compiled_meanwhile(tools: Toolchain, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[list[str]] = []

    def note(_: Toolchain, source: Path, output: Path, words: list[str], warnings: Path) -> Path:
        compiled.append(words)
        output.write_text("")
        return output

    monkeypatch.setattr(Toolchain, "compile", note)
    with runtime_objects.compiled_meanwhile(replace(tools, torch=replace(tools.torch, has_cuda=True))):
        pass
    assert compiled == []
    with runtime_objects.compiled_meanwhile(tools):
        pass
    early = len(compiled)
    assert early > 0
    inductors = replace(
        FLAGS, cflags=("O3", "march=native"), definitions=("NDEBUG",), passthrough=("-mavx2",), include_dirs=("/torch",)
    )
    assert len(runtime_objects.compile_runtime(tools, "cpu", inductors)) == early
    assert len(compiled) == early
    runtime_objects.compile_runtime(tools, "cpu", replace(FLAGS, cflags=("march=haswell",)))
    assert len(compiled) == 2 * early
    assert "-march=haswell" in compiled[-1]


def test_an_interrupt_while_the_runtime_is_waited_for_ends_its_compilers(
    tools: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(ThreadPoolExecutor):
        def __exit__(self, *_: object) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr(runtime_objects, "ThreadPoolExecutor", Interrupted)
    monkeypatch.setattr(runtime_objects, "compile_runtime", lambda *_: [])
    with pytest.raises(KeyboardInterrupt), runtime_objects.compiled_meanwhile(tools):
        pass
    assert tools.children.killed


def test_the_runtime_for_cuda_is_compiled_beside_its_unpacked_kernels(
    tools: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded: set[bytes] = set()

    def note(_: Toolchain, source: Path, output: Path, words: list[str], warnings: Path) -> Path:
        (folder,) = (Path(word[2:]) for word in words if word == f"-I{source.parent}")
        embedded.add((folder / "cuda" / "statistics.ptx").read_bytes())
        output.write_text("")
        return output

    monkeypatch.setattr(Toolchain, "compile", note)
    objects = runtime_objects.compile_runtime(tools, "cuda", FLAGS)
    assert [text.count(b"// module: ") > 10 for text in embedded] == [True]
    assert {path.suffix for path in objects[0].parent.iterdir()} <= {".o", ".cpp"}


def test_every_device_has_files() -> None:
    assert all(list((RUNTIME / folder).glob("*.cpp")) for folder in runtime_objects.DEVICES.values())


def test_the_files_that_every_launch_passes_through_are_there() -> None:
    assert [name for name in runtime_objects.EVERY_LAUNCH if not (RUNTIME / name).is_file()] == []


def test_tables_have_the_manifest_in_them(tools: Toolchain, tmp_path: Path) -> None:
    described = make_manifest()
    compiled = runtime_objects.compile_site_tables(tools, tmp_path, sites_cpp(described), described.json_text)
    assert described.json_text.encode() in compiled.read_bytes()


def test_translation_units_hold_every_file_once_and_are_of_about_equal_size(tmp_path: Path) -> None:
    files = []
    for number, size in enumerate((90, 10, 40, 50, 30, 60)):
        files.append(tmp_path / f"{number}.cpp")
        files[-1].write_text("x" * size)
    units = runtime_objects.translation_units(files, 2)
    included = [line for unit in units for line in unit.splitlines()]
    assert sorted(included) == [f'#include "{path}"' for path in files]
    sizes = [sum(path.stat().st_size for path in files if str(path) in unit) for unit in units]
    assert max(sizes) - min(sizes) <= 10
    assert len(runtime_objects.translation_units(files, 64)) == len(files)


def test_no_two_files_of_the_runtime_have_a_name_in_common(tmp_path: Path) -> None:
    """So that they compile as one translation unit, and with any division into several."""
    unit = tmp_path / "runtime.cpp"
    unit.write_text(*runtime_objects.translation_units(runtime_objects.shared_sources(), 1))
    assert_compiles(unit)


def test_each_file_of_the_runtime_compiles_by_itself() -> None:
    """A machine with many cores compiles one file a translation unit: each file includes what it needs."""
    headers = contents(*RUNTIME.rglob("*.h"))
    for path in runtime_objects.shared_sources():
        check_once(f"{path.stem}.compiles", [*contents(path), *headers], partial(assert_compiles, path))


def assert_compiles(unit: Path) -> None:
    words = ["-std=c++17", "-fsyntax-only", f"-I{RUNTIME}"]
    done = subprocess.run([find_compiler().path, *words, str(unit)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
