"""How often builds, triages and runs inspect the files that they are given. Inductor and the compiler are left out.

A build inspects what it wrote, too, before that has its name.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from aoti_debug.base.errors import ArtifactError, TargetError
from aoti_debug.base.machine.compiler import find_compiler
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.instrument.builder import build as builder
from aoti_debug.instrument.builder.build import BuildOptions
from aoti_debug.instrument.builder.compiling import runtime_objects
from aoti_debug.instrument.frontend import compiled_package, exported_program
from aoti_debug.instrument.frontend.protocol import messages
from aoti_debug.instrument.frontend.protocol.messages import Answer, Request
from aoti_debug.package import manifest, program_graphs
from aoti_debug.package.inputs import signature
from aoti_debug.package.inputs.signature import ModelSignature
from aoti_debug.package.program_graphs import Reference
from aoti_debug.package.pt2 import archive
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.triage.investigation.triage_runs import TriageOptions
from aoti_debug.triage.session import triage
from tests import archives, factories, machine_results
from tests.unpacked_archive import COMMANDS, KERNELS, unpacked

WRAPPER = """#include <torch/csrc/inductor/aoti_include/cpu.h>
namespace torch::aot_inductor {
void AOTInductorModel::run_impl(
    AtenTensorHandle* input_handles,
    AtenTensorHandle* output_handles,
    DeviceStreamType stream,
    AOTIProxyExecutorHandle proxy_executor
) {
} // AOTInductorModel::run_impl
} // namespace torch::aot_inductor
"""
_PARTIAL = re.compile(r"^\.(.*)\.\d+-[0-9a-f]+\.part$")  # a file that is being written
ANSWER = Answer("2.13.0", (), {}, "O1", "the program has no example inputs", {})


class NoCompilation:
    """In the place of Compilation: a library without code."""

    def __init__(self, *_: object) -> None:
        pass

    def __enter__(self) -> NoCompilation:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None

    def link(self, library: Path) -> None:
        library.write_bytes(b"\x7fELF")


def lowered(_: str, request: Request, *__: object) -> Answer:
    """In the place of a child that lowers a program, or is asked about operators."""
    folder = Path(request.folder)
    if not request.program.endswith("compiled.pt2"):
        files = {path.name: path.read_bytes() for path in unpacked(folder / "made", WRAPPER + KERNELS).iterdir()}
        archives.write(
            folder / messages.ARCHIVE, {f"{archives.MODEL}{name}": content for name, content in files.items()}
        )
        (folder / messages.SIGNATURE).write_text(signature.to_json(ModelSignature(())))
        (folder / messages.REFERENCE).write_text(program_graphs.to_json(Reference(program_graphs.FORMAT, "2.13.0", ())))
    return ANSWER


@pytest.fixture
def inspected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Counter[str]:
    """The names of the files in `tmp_path` itself that were inspected."""
    found: Counter[str] = Counter()
    inspect = archive.inspect

    def counted(path: str | Path) -> archive.Artifact:
        if Path(path).parent == tmp_path:
            found[_PARTIAL.sub(r"\1", Path(path).name)] += 1
        return inspect(path)

    monkeypatch.setattr(archive, "inspect", counted)
    for frontend in (exported_program, compiled_package):
        monkeypatch.setattr(frontend, "run_worker", lowered)
    monkeypatch.setattr(builder, "LibraryCompilation", NoCompilation)
    monkeypatch.setattr(runtime_objects, "compiled_meanwhile", lambda _: nullcontext())
    machine_results.use_empty_cache(tmp_path / "cache", monkeypatch)
    archives.write(tmp_path / "program.pt2", archives.PROGRAM)
    return found


@pytest.fixture
def compiled(tmp_path: Path) -> Path:
    """A compiled package without kernels."""
    library = tmp_path / "library.so"
    source = "const unsigned char weights = 0;"
    command = [find_compiler().path, "-shared", "-fPIC", "-x", "c++", "-", "-o", str(library)]
    subprocess.run(command, input=source, text=True, check=True)
    members = {
        "c1.wrapper.cpp": (WRAPPER + COMMANDS).encode(),
        "c1.wrapper.so": library.read_bytes(),
        "c1.wrapper_metadata.json": b'{"AOTI_DEVICE_KEY": "cpu"}',
    }
    return archives.write(
        tmp_path / "compiled.pt2", {f"{archives.MODEL}{name}": content for name, content in members.items()}
    )


def test_an_exported_program_is_inspected_once(inspected: Counter[str], tmp_path: Path) -> None:
    builder.build_report(BuildOptions(tmp_path / "program.pt2", output=tmp_path / "out.pt2"))
    assert inspected == {"program.pt2": 1, "out.pt2": 1}


def test_a_compiled_package_is_inspected_once(inspected: Counter[str], compiled: Path, tmp_path: Path) -> None:
    summary = builder.build_report(BuildOptions(compiled, output=tmp_path / "out.pt2"))
    assert inspected == {"compiled.pt2": 1, "out.pt2": 1}
    assert summary.missing_inputs_reason == ANSWER.without_inputs


def test_the_package_to_compare_with_is_inspected_once(inspected: Counter[str], compiled: Path, tmp_path: Path) -> None:
    builder.build_report(BuildOptions(tmp_path / "program.pt2", output=tmp_path / "out.pt2", against=compiled))
    assert inspected == {"program.pt2": 1, "compiled.pt2": 1, "out.pt2": 1}


def test_the_program_of_a_package_is_inspected_once(inspected: Counter[str], compiled: Path, tmp_path: Path) -> None:
    builder.build_report(BuildOptions(compiled, output=tmp_path / "out.pt2", exported=tmp_path / "program.pt2"))
    assert inspected == {"program.pt2": 1, "compiled.pt2": 1, "out.pt2": 1}


def test_what_was_inspected_already_is_not_inspected_again(
    inspected: Counter[str], compiled: Path, tmp_path: Path
) -> None:
    found = archive.inspect(compiled)
    inspected.clear()
    builder.build_report(BuildOptions(found, output=tmp_path / "out.pt2"))
    assert inspected == {"out.pt2": 1}


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("name", ["program.pt2", "compiled.pt2"])
def test_a_triage_inspects_what_it_builds_from_once(inspected: Counter[str], tmp_path: Path, name: str) -> None:
    with pytest.raises(ArtifactError, match="has no inputs"):  # after the build
        triage(TriageOptions(tmp_path / name, out=tmp_path / "triage"))
    assert inspected == {name: 1}


def test_a_run_inspects_its_package_once(inspected: Counter[str], tmp_path: Path) -> None:
    described = factories.make_manifest().json_text.encode()
    package = archives.write(tmp_path / "built.pt2", {**archives.PACKAGE, manifest.MEMBER: described})
    with pytest.raises((ArtifactError, TargetError)):  # of the child: there is no model in it
        runner.run(RunOptions(package, out=tmp_path / "runs", user_code=UserCode(trusted=True)))
    assert inspected == {"built.pt2": 1}
