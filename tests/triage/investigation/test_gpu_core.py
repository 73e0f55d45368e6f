"""What cuda-gdb shows of a GPU's core dump, and the launch of the package that it is.

Its output is that of an H100; registers.txt, the registers of each thread, is written after the manual of cuda-gdb.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.base.errors import ToolchainError
from aoti_debug.package.manifest import Certainty, Kernel, Manifest, ModelLine, Provenance, Role, Site
from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun
from aoti_debug.runs.diagnosis.findings import FAULT, HANG, Finding, Place
from aoti_debug.runs.rundir.run_directory import GPU_CORE, open_run
from aoti_debug.triage.investigation import gpu_core
from aoti_debug.triage.investigation.gpu_core import GpuCore
from aoti_debug.triage.investigation.triage_runs import TriageOptions
from aoti_debug.triage.post_mortem import triage_core
from tests.core_files import SmallCore
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, tensor, triton_kernel
from tests.paths import ROOT

GOLDEN = ROOT / "tests/golden/cuda_gdb"
PRINTED = (GOLDEN / "illegal_address.txt").read_text()
REGISTERS = (GOLDEN / "registers.txt").read_text()
WITHOUT_OWN = PRINTED.replace("LDG.E R3,", "LDG.E R7,")  # the load does not write to the registers of its address
HANGS = """[Current focus set to CUDA kernel 0, grid 5, block (0,0,0), thread (0,0,0), device 0, sm 1, warp 0, lane 0]
#0  0x00007f2e6fbff300 in lookup_kernel<<<(16,1,1),(128,1,1)>>> () at /tmp/torchinductor_root/m6/kernel.py:31
31\t    while ready == 0:
=> 0x7f2e6fbff300 <lookup_kernel+368>:\tISETP.NE.AND P0,PT,R2,RZ,PT
"""
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
        following=("IMAD.WIDE.U32 R4,R9,0x4,R6",),
    )


def test_what_a_binary_without_lines_tells() -> None:
    text = "CUDA Exception: Warp Assert\nThe exception was triggered at PC 0x7f00  triton_poi_fused_0\n"
    assert gpu_core.parse(text) == GpuCore("Warp Assert", "triton_poi_fused_0")
    assert gpu_core.parse("no exception") is None


def test_a_line_of_an_inlined_function_and_a_name_with_spaces() -> None:
    text = (
        "CUDA Exception: Warp Illegal Address\n"
        "The exception was triggered at PC 0x7f00  void at::copy<int>(int*)  "
        "(IndexKernel.cu:118 in f inlined from IndexKernel.cu:37)\n"
        "#0  void at::copy<int>(int*)<<<(1,1,1),(128,1,1)>>> () at /d/IndexKernel.cu:203 in g inlined from x.cu:118\n"
    )
    assert gpu_core.parse(text) == GpuCore(
        "Warp Illegal Address", "void at::copy<int>(int*)", "/d/IndexKernel.cu", 118, "1,1,1", "128,1,1"
    )
    unnamed = "CUDA Exception: Warp Assert\nThe exception was triggered at PC 0x7f00 (bug.cpp:11)\n"
    assert gpu_core.parse(unnamed) == GpuCore("Warp Assert", file="bug.cpp", line=11)


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


def compiled_from(source: str, line: str) -> tuple[GpuCore, Kernel]:
    """The core dump with the file that torch has Triton compile, and the kernel whose 22nd line is `line`."""
    text = source + "\n" * (20 - source.count("\n")) + f"    {line}\n"
    digest = hashlib.sha256(text.strip().encode()).digest()
    file = f"/gone/c{base64.b32encode(digest)[:51].decode().lower()}.py"
    return replace(core(), file=file), replace(lookup("lookup_kernel_0", source=text), first_line=2)


def test_the_source_is_shown_only_if_the_file_is_of_it() -> None:
    shown, kernel = compiled_from("import triton\n", "values = tl.load(table)")
    site = package(launch_of("lookup_kernel_0"), kernels=(kernel,))
    assert gpu_core.finding_of(shown, site).evidence[0].endswith(":22: `values = tl.load(table)`")
    of_other = package(launch_of("lookup_kernel_0"), kernels=(replace(kernel, source=kernel.source + "# other\n"),))
    of_older = package(launch_of("lookup_kernel_0"), kernels=(replace(kernel, first_line=0),))
    for manifest in (of_other, of_older):
        assert gpu_core.finding_of(shown, manifest).evidence[0].endswith(".py:22")


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
    script = f'printf "%s " "$@" >> {tmp_path}/words.txt; echo >> {tmp_path}/words.txt; cat {printed}'
    monkeypatch.setenv("PATH", debugger(tmp_path, script))
    done = triage_core(TriageOptions(dump, out=tmp_path / "triages"), None)
    assert done.finding.what == "invalid memory access on the GPU in lookup_kernel"
    assert done.finding.warnings == ("the package is not known, which would name the launch: --package",)
    assert [step.text for step in done.record.steps] == ["Warp Illegal Address in lookup_kernel"]
    words = (tmp_path / "words.txt").read_text()
    first, second = words.splitlines()
    assert first == (
        f"-nx -batch -ex target cudacore {dump} -ex info cuda kernels -ex info cuda devices -ex x/8i $pc-32 "
        "-ex x/64i $errorpc "
    )
    assert second.startswith(f"-nx -batch -ex target cudacore {dump} -ex info cuda lanes -ex printf ")
    assert second.count("cuda lane ") == 32


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


# The address of the access


TABLE, INDEX, OUT = (
    tensor(64, 1000, device="cuda:0", data_ptr=0x7F6710000000),
    tensor(256, dtype="int64", device="cuda:0", data_ptr=0x7F6700000000),
    tensor(256, 64, device="cuda:0", data_ptr=0x7F6720000000),
)


def recorded(base: Path, launches: int = 1, out: Role = Role.OUT, kernel: Kernel | None = None) -> DiagnosedRun:
    """The run of the process that the dump is of."""
    kernels = (kernel or lookup("lookup_kernel_0"),)
    names = [arg("table", param="table"), arg("index", param="index"), arg("out", out, param="out")]
    made = make_manifest(site("lookup_kernel_0", *names, launches=("lookup_kernel_0",)), kernels=kernels, device="cuda")
    writer = JournalWriter()
    writer.call_begin()
    for launch in range(launches):
        writer.launch(launch, 0, TABLE, INDEX, OUT)
    return DiagnosedRun(open_run(run_directory(base, made, writer)))


def read_twice(first: str, second: str = REGISTERS) -> GpuCore:
    found = gpu_core.parse(first)
    assert found is not None
    return gpu_core.with_registers(found, second)


def test_the_argument_that_the_first_bad_thread_of_the_warp_lies_next_to(tmp_path: Path) -> None:
    run = recorded(tmp_path)
    dumped = read_twice(WITHOUT_OWN)
    assert dumped.doubt == ""
    assert [access.thread for access in dumped.accesses] == [f"({lane},0,0)" for lane in range(31) if lane != 9]
    found = gpu_core.added_to(Finding(FAULT, "it broke", Place("0.0", "lookup_kernel_0")), dumped, run)
    assert found.where is not None
    assert (found.where.launch, found.where.argument, found.where.element) == ("0.0", "", None)
    observed = "address 0x7f671003e820 lies 32 B behind the end of table, float32[64,1000]"
    assert found.evidence[-1] == (
        f"block (100,0,0), thread (8,0,0): {observed}; those of 21 other threads of its warp lie outside of the "
        "arguments, too"
    )
    assert found.possible == (f"{observed}: it may be element 64008 of table, which has 64000 elements",)


def test_a_load_that_writes_to_the_registers_of_its_address_leaves_only_what_may_be(tmp_path: Path) -> None:
    found = gpu_core.added_to(
        Finding(FAULT, "it broke", Place("0.0", "lookup_kernel_0")), read_twice(PRINTED), recorded(tmp_path)
    )
    assert found.where is not None
    assert found.where.argument == ""
    assert "thread" not in found.evidence[-1]
    (said,) = found.possible
    assert said.startswith("block (100,0,0), thread (8,0,0): address 0x7f671003e820 lies 32 B behind the end of table")
    assert said.endswith("the load itself may have changed the registers of the address")


def test_an_address_within_an_argument_has_an_element(tmp_path: Path) -> None:
    within = "\n".join(line for line in REGISTERS.splitlines() if "1003e8" not in line)
    found = gpu_core.added_to(
        Finding(FAULT, "it broke", Place("0.0", "lookup_kernel_0")), read_twice(WITHOUT_OWN, within), recorded(tmp_path)
    )
    assert found.where is not None
    assert (found.where.argument, found.where.element) == ("table", 0)
    assert "address 0x7f6710000000 lies in table, float32[64,1000], element 0" in found.evidence[-1]
    assert found.possible == ()


def test_an_address_far_away_is_of_the_one_argument_that_the_instruction_can_have_meant(tmp_path: Path) -> None:
    """A load of 4 bytes reads no index of 8 bytes, and no output."""
    far = re.sub(r"\b7f67\b", "17f67", REGISTERS)
    found = gpu_core.added_to(
        Finding(FAULT, "it broke", Place("0.0", "lookup_kernel_0")), read_twice(WITHOUT_OWN, far), recorded(tmp_path)
    )
    assert found.where is not None
    assert found.where.argument == ""
    (said,) = found.possible
    assert "lies 262144.0 GiB behind the end of table, float32[64,1000]: it may be element 70368744177664" in said


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("values = tl.load(table + source * width + column, mask=column < width)", "table"),
        ("values = tl.load(table + tl.load(out + row))", ""),
        ("values = tl.load(out + row)", "out"),
        ("values = (tl.load(table + row) +", ""),
        ("values = tl.load(table + row) + tl.load(out + row)", ""),
    ],
)
def test_an_address_far_away_is_of_the_one_argument_that_the_line_loads(tmp_path: Path, line: str, named: str) -> None:
    dumped, kernel = compiled_from("import triton\n", line)
    run = recorded(tmp_path, out=Role.INOUT, kernel=kernel)
    far = re.sub(r"\b7f67\b", "17f67", REGISTERS)
    dumped = replace(read_twice(WITHOUT_OWN, far), file=dumped.file)
    found = gpu_core.added_to(Finding(FAULT, "it broke", Place("0.0", "lookup_kernel_0")), dumped, run)
    if named:
        (said,) = found.possible
        assert f" of {named}, float32" in said
    else:
        assert "lies near no argument of 0.0" in found.evidence[-1]
        assert found.possible == ()


def test_of_several_launches_of_the_kernel_there_are_no_arguments(tmp_path: Path) -> None:
    run, dumped = recorded(tmp_path, launches=2), read_twice(WITHOUT_OWN)
    assert gpu_core.launch_of(dumped, run) is None
    found = gpu_core.added_to(Finding(FAULT, "it broke", Place("0.1", "lookup_kernel_0")), dumped, run)
    assert not any("address" in line for line in (*found.evidence, *found.possible))


def test_a_dump_of_another_kernel_is_said_to_be_one(tmp_path: Path) -> None:
    found = gpu_core.added_to(Finding(FAULT, "it broke", Place("0.3", "other_kernel")), core(), recorded(tmp_path))
    assert "the core dump is of lookup_kernel, not of other_kernel" in found.evidence


def test_without_registers_the_address_is_not_known(tmp_path: Path) -> None:
    found = gpu_core.added_to(Finding(FAULT, "it broke"), read_twice(PRINTED, "nothing"), recorded(tmp_path))
    assert found.warnings == (
        "the address of the access is not known: cuda-gdb shows no registers of the threads that may have made it",
    )


def test_an_access_to_shared_memory_has_no_address(tmp_path: Path) -> None:
    found = gpu_core.added_to(
        Finding(FAULT, "it broke"),
        read_twice(PRINTED.replace("LDG.E R3,desc[UR8][R2.64]", "LDS R3,[R2]")),
        recorded(tmp_path),
    )
    assert found.warnings[0].endswith("LDS R3,[R2] is no access to global memory of a known form")


def test_the_pointers_that_a_dump_holds_tell_the_nearest_argument() -> None:
    manifest = package(launch_of("lookup_kernel_0"), kernels=(lookup("lookup_kernel_0"),))
    dumped = read_twice(WITHOUT_OWN)
    found = gpu_core.with_parameters(gpu_core.finding_of(dumped, manifest), dumped, manifest)
    assert found.evidence[-1] == (
        "block (100,0,0), thread (0,0,0) has address 0x7f6710000000 in its registers; that is 0 bytes behind the "
        "beginning of out_ptr0, the nearest one before it"
    )
    lightweight = read_twice(WITHOUT_OWN, REGISTERS.replace("aoti-debug word", "error"))
    without = gpu_core.with_parameters(gpu_core.finding_of(lightweight, manifest), lightweight, manifest)
    assert without.evidence[-1].endswith("the dump holds no parameters of the kernel, which would tell the argument")


def test_a_kernel_that_hangs() -> None:
    dumped = gpu_core.parse(HANGS)
    assert dumped is not None
    assert (dumped.exception, dumped.line, dumped.instruction) == ("", 31, "ISETP.NE.AND P0,PT,R2,RZ,PT")
    found = gpu_core.finding_of(dumped, package(launch_of("lookup_kernel_0"), kernels=(lookup("lookup_kernel_0"),)))
    assert found.kind == HANG
    assert found.what == "lookup_kernel_0 was running when the core dump was asked for: it may hang"
    assert found.evidence[0] == "cuda-gdb: the warp that it shows was in lookup_kernel at kernel.py:31"


def test_a_dump_in_a_run_directory_has_the_arguments_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = recorded(tmp_path / "runs").run
    dumped = SmallCore(machine=GPU).write(run.path / GPU_CORE)
    (tmp_path / "first.txt").write_text(WITHOUT_OWN)
    (tmp_path / "second.txt").write_text(REGISTERS)
    choose = f'case "$*" in *lane*) cat {tmp_path}/second.txt;; *) cat {tmp_path}/first.txt;; esac'
    monkeypatch.setenv("PATH", debugger(tmp_path, choose))
    done = triage_core(TriageOptions(dumped, out=tmp_path / "triages"), None)
    assert done.finding.where is not None
    assert (done.finding.where.launch, done.finding.where.argument) == ("0.0", "")
    assert done.finding.warnings == ()
    assert (done.record.package, done.record.run) == ("", str(run.path))
