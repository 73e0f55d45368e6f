from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.base.machine.compiler import find_torch
from aoti_debug.instrument.builder import compare_kernels
from aoti_debug.instrument.builder.build import BuildSummary
from aoti_debug.instrument.wrapper import model_variables
from aoti_debug.package.inputs.signature import ModelSignature
from aoti_debug.package.pt2 import archive
from aoti_debug.runs.diagnosis.findings import CLEAN, Finding
from aoti_debug.triage import compiled_beside
from tests import archives, factories
from tests.unpacked_archive import COMMANDS, KERNELS, WRAPPER

CLEAN_FINDING = Finding(CLEAN, "nothing", next=("look",), warnings=("a note",))
INPUT = 'inputs_info_[0].name = "arg1_1";\n'
WEIGHT = 'constants_info_[0].original_fqn = "w";\nconstants_info_[0].shape = {2};\n'
OTHER = KERNELS.replace("{\n}", "{ *in_out_ptr0 = 1; }")


def package(path: Path, variables: str = INPUT + WEIGHT, kernels: str = KERNELS, age: int = 0) -> Path:
    text = "class AOTInductorModel;\n" + variables + WRAPPER + COMMANDS
    members = {f"{archives.MODEL}c1.wrapper.cpp": text.encode(), f"{archives.MODEL}c2.kernel.cpp": kernels.encode()}
    archives.write(path, {**members, **archives.PACKAGE})
    os.utime(path, (10_000 - age, 10_000 - age))
    return path


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    return archives.write(tmp_path / "models" / "program.pt2", archives.PROGRAM)


def summary(path: Path, variables: str = INPUT + WEIGHT) -> BuildSummary:
    """Of a package with the kernels of KERNELS."""
    like = archive.inspect(package(path / "like.pt2", variables))
    (path / "unpacked").mkdir()
    kernels = compare_kernels.read_kernels(like, "model", path / "unpacked", find_torch())
    names, weights = model_variables.inputs(variables), model_variables.constants(variables)
    manifest = replace(factories.make_manifest(), inputs=names, constants=weights)
    return BuildSummary(path, manifest, 0, 0.0, {}, "", (), ModelSignature(()), kernels=kernels)


def test_the_newest_package_of_the_program_is_compared(program: Path, tmp_path: Path) -> None:
    package(program.with_name("old.pt2"), kernels=OTHER, age=5)
    package(program.with_name("new.pt2"), age=3)
    package(program.with_name("of another.pt2"), INPUT.replace("arg1_1", "arg9_1") + WEIGHT, OTHER)
    program.with_name("damaged.pt2").write_bytes(b"PK")
    program.with_name("folder.pt2").mkdir()
    found = compiled_beside.with_remark(CLEAN_FINDING, program, summary(tmp_path))
    assert found.warnings == ("a note", "1 of 1 kernels identical to those of new.pt2")
    assert found.next == CLEAN_FINDING.next


def test_other_kernels_are_named_with_what_to_do(program: Path, tmp_path: Path) -> None:
    other = package(program.with_name("their own.pt2"), kernels=OTHER)
    found = compiled_beside.with_remark(CLEAN_FINDING, program, summary(tmp_path))
    assert found.warnings == (
        "a note",
        "0 of 1 kernels identical to those of their own.pt2 (cpp_fused_relu_0: its source differs)",
    )
    assert found.next == ("look", f"aoti-debug triage '{other}' --exported {program}")


def test_a_package_without_common_weights_and_kernels_is_of_another_program(program: Path, tmp_path: Path) -> None:
    package(program.with_name("other.pt2"), INPUT, OTHER)
    assert compiled_beside.with_remark(CLEAN_FINDING, program, summary(tmp_path, INPUT)) == CLEAN_FINDING


def test_nothing_lies_beside_the_program(program: Path, tmp_path: Path) -> None:
    assert compiled_beside.with_remark(CLEAN_FINDING, program, summary(tmp_path)) == CLEAN_FINDING
