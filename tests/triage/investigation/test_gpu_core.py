"""What cuda-gdb shows of a GPU's core dump, and the launch of the package that it is. Its output is that of an H100."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.base.errors import ToolchainError
from aoti_debug.package.manifest import Certainty, Kernel, Manifest, ModelLine, Provenance, Site
from aoti_debug.runs.diagnosis.findings import FAULT
from aoti_debug.triage.investigation import gpu_core
from aoti_debug.triage.investigation.gpu_core import GpuCore
from aoti_debug.triage.investigation.triage_runs import TriageOptions
from aoti_debug.triage.post_mortem import triage_core
from tests.core_files import SmallCore
from tests.factories import arg, make_manifest, site, triton_kernel
from tests.paths import ROOT

PRINTED = (ROOT / "tests/golden/cuda_gdb/illegal_address.txt").read_text()
LINE = ModelLine("/models/model.py", 7, "forward", "rows = lookup(table, index)")
GPU = 190  # the ELF machine


def core() -> GpuCore:
    found = gpu_core.parse(PRINTED)
    assert found is not None
    return found


def lookup(name: str, warps: int = 4, source: str = "") -> Kernel:
    return replace(triton_kernel(name), mangled="lookup_kernel", num_warps=warps, source=source)


def launch_of(name: str, line: int = 1) -> Site:
    provenance = Provenance(Certainty.EXACT, source=(LINE,))
    return replace(site(name, arg("arg0_1"), launches=(name,)), line=line, provenance=provenance)


def package(*sites: Site, kernels: tuple[Kernel, ...]) -> Manifest:
    return make_manifest(*sites, kernels=kernels, device="cuda")


def test_the_exception_and_its_place() -> None:
    name = "cm6ysyzfvuhiyxw2dyroxv2nuyhujm3vz2pqbby4xygfhyrgxlgt.py"
    assert core() == GpuCore(
        exception="Warp Illegal Address",
        kernel="lookup_kernel",
        file=f"/tmp/torchinductor_root/m6/{name}",
        line=22,
        grid="256,1,1",
        block_size="128,1,1",
        block="(100,0,0)",
        thread="(0,0,0)",
        instruction="LDG.E R3,desc[UR8][R2.64]",
    )


def test_what_a_binary_without_lines_tells() -> None:
    text = "CUDA Exception: Warp Assert\nThe exception was triggered at PC 0x7f00  triton_poi_fused_0\n"
    assert gpu_core.parse(text) == GpuCore("Warp Assert", "triton_poi_fused_0")
    assert gpu_core.parse("no exception") is None


def test_the_only_launch_of_the_kernel_is_named() -> None:
    kernels = (lookup("lookup_kernel_0"), triton_kernel("triton_poi_fused_1"))
    found = gpu_core.finding_of(core(), package(launch_of("lookup_kernel_0"), kernels=kernels))
    assert (found.kind, found.what) == (FAULT, "invalid memory access on the GPU in lookup_kernel_0")
    assert found.where is not None
    assert (found.where.kernel, found.where.frame, found.where.launch) == ("lookup_kernel_0", LINE, "")
    assert found.evidence == (
        "cuda-gdb: Warp Illegal Address in lookup_kernel at cm6ysyzfvuhiyxw2dyroxv2nuyhujm3vz2pqbby4xygfhyrgxlgt.py:22",
        "it shows block (100,0,0), thread (0,0,0)",
        "the grid is (256,1,1), its blocks have (128,1,1) threads",
        "the instruction is LDG.E R3,desc[UR8][R2.64], a load from global memory",
    )
    assert found.possible == ()


def test_of_two_kernels_with_the_name_the_number_of_warps_tells() -> None:
    kernels = (lookup("lookup_kernel_0"), lookup("lookup_kernel_1", warps=8))
    sites = (launch_of("lookup_kernel_0"), launch_of("lookup_kernel_1"))
    found = gpu_core.finding_of(core(), package(*sites, kernels=kernels))
    assert found.what.endswith("in lookup_kernel_0")
    wide = gpu_core.finding_of(replace(core(), block_size="256,1,1"), package(*sites, kernels=kernels))
    assert wide.what.endswith("in lookup_kernel_1")


def test_several_launches_stay_open() -> None:
    kernels = (lookup("lookup_kernel_0"), lookup("lookup_kernel_1"))
    sites = (launch_of("lookup_kernel_0", 90), launch_of("lookup_kernel_1", 120))
    found = gpu_core.finding_of(core(), package(*sites, kernels=kernels))
    assert found.what == "invalid memory access on the GPU in lookup_kernel"
    assert found.possible == (
        "it may be any of 2 launches: lookup_kernel_0 (wrapper line 90), lookup_kernel_1 (wrapper line 120)",
    )
    assert found.where is not None
    assert found.where.frame is None


def test_a_kernel_of_a_library_is_blamed_on_no_launch() -> None:
    found = gpu_core.finding_of(replace(core(), kernel="ampere_sgemm"), package(kernels=(lookup("lookup_kernel_0"),)))
    assert found.what == "invalid memory access on the GPU in ampere_sgemm"
    assert "ampere_sgemm is no generated kernel of the package" in found.warnings[0]
    unnamed = gpu_core.finding_of(replace(core(), kernel=""), package(kernels=(lookup("lookup_kernel_0"),)))
    assert unnamed.warnings == ("cuda-gdb does not show the kernel's name, which would tell the launch",)


def test_the_source_is_shown_only_if_the_package_has_it(tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    file.write_text("\n" * 21 + "    values = tl.load(table)\n")
    shown = replace(core(), file=str(file))
    for source, words in (("values = tl.load(table)", ":22: `values = tl.load(table)`"), ("other", "kernel.py:22")):
        kernels = (lookup("lookup_kernel_0", source=source),)
        found = gpu_core.finding_of(shown, package(launch_of("lookup_kernel_0"), kernels=kernels))
        assert found.evidence[0].endswith(words)


@pytest.mark.parametrize(
    ("exception", "words"),
    [
        ("Warp Assert", "failed assertion on the GPU"),
        ("Warp Misaligned Address", "misaligned memory access on the GPU"),
        ("Cluster Block Not Present", "Cluster Block Not Present on the GPU"),
    ],
)
def test_each_exception_has_words(exception: str, words: str) -> None:
    assert gpu_core.finding_of(GpuCore(exception), None).what == words


@pytest.mark.parametrize(
    ("instruction", "words"),
    [
        ("@!P0 STG.E desc[UR8][R4.64],R3", ", a store to global memory"),
        ("LDGSTS.E [R0],desc[UR4][R2.64]", ""),
        ("REDUX.SUM UR4,R0", ""),
    ],
)
def test_only_instructions_that_are_known_have_words(instruction: str, words: str) -> None:
    found = gpu_core.finding_of(replace(core(), instruction=instruction), None)
    assert found.evidence[-1] == f"the instruction is {instruction}{words}"


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    return SmallCore(machine=GPU).write(tmp_path / "gpu.core")


def debugger(folder: Path, script: str) -> str:
    """The PATH with a program that is called cuda-gdb."""
    program = folder / "bin" / "cuda-gdb"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return f"{program.parent}:/usr/bin:/bin"


def test_a_dump_is_triaged(dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = tmp_path / "printed.txt"
    printed.write_text(PRINTED)
    script = f'echo "$@" > {tmp_path}/words.txt; cat {printed}'
    monkeypatch.setenv("PATH", debugger(tmp_path, script))
    done = triage_core(TriageOptions(dump, out=tmp_path / "triages"), None)
    assert done.finding.what == "invalid memory access on the GPU in lookup_kernel"
    assert done.finding.warnings == ("the package is not known, which would name the launch: --package",)
    assert [step.text for step in done.record.steps] == ["Warp Illegal Address in lookup_kernel"]
    words = (tmp_path / "words.txt").read_text()
    assert words == f"-nx -batch -ex target cudacore {dump} -ex info cuda kernels -ex x/8i $pc-32\n"


def test_a_dump_that_cannot_be_read_is_one_error(dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", debugger(tmp_path, "echo 'not a CUDA coredump' >&2; exit 1"))
    with pytest.raises(ToolchainError, match=r"cuda-gdb cannot read .*: not a CUDA coredump") as raised:
        gpu_core.read(dump)
    assert raised.value.hint == f"cuda-gdb -ex 'target cudacore {dump}'"


def test_without_cuda_gdb_the_error_says_where_it_comes_from(dump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_core, "find_program", lambda _: None)
    with pytest.raises(ToolchainError, match=r"cuda-gdb was not found; it reads .*gpu\.core") as raised:
        gpu_core.read(dump)
    assert "CUDA toolkit" in raised.value.hint
