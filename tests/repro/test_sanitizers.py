"""What compute-sanitizer writes, and what is said of it; which argument an address belongs to."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

from aoti_debug.package.manifest import Kind, Role
from aoti_debug.repro.templates import sanitize, sanitizers
from aoti_debug.repro.templates.accesses import Access, CodeLine, lines_of, place_text
from aoti_debug.repro.templates.memory import (
    Extent,
    LaunchArgument,
    Storage,
    extents_of,
    locate_accesses,
    memory_of,
    placed,
    separate_memory,
)
from tests.repro.repro_launches import LaunchBuilder, replay, write

REPORTS = Path(__file__).parent.parent / "recorded" / "compute_sanitizer"


def parsed(name: str) -> list[Access]:
    return sanitizers.parse_cuda_report((REPORTS / f"{name}.txt").read_text())


def test_reports_of_memcheck() -> None:
    first, second, third = parsed("memcheck")
    assert first == Access(
        "sanitizer",
        what="Invalid __global__ read",
        kind="read",
        bytes=4,
        address=0x7F52A2001004,
        kernel="triton_poi_fused_index_0",
        source=CodeLine("repro.py", 31),
        thread="thread (33,0,0) in block (2,0,0)",
        program=(2, 0, 0),
        notes=("and is 5 bytes after the nearest allocation at 0x7f52a2000000 of size 4,096 bytes",),
    )
    assert second.thread == "thread (34,0,0) in block (2,0,0)"
    assert (third.kind, third.bytes, third.source) == ("write", 16, CodeLine("repro.py", 34))
    assert third.notes[0] == "is misaligned"
    assert third.notes[1].startswith("and is inside")


def test_reports_of_an_older_version() -> None:
    (found,) = parsed("memcheck_12")
    assert (found.kind, found.bytes, found.kernel, found.source) == (
        "atomic",
        8,
        "triton_red_fused_sum_1",
        CodeLine("repro.py", 175),
    )


def test_reports_of_the_other_tools() -> None:
    (race,) = parsed("racecheck")
    assert race.what.startswith("racecheck: Race reported between Write access at triton_red_fused_sum_0")
    assert (race.kernel, race.source, race.address) == ("triton_red_fused_sum_0", CodeLine("repro.py", 41), None)
    assert race.notes[-1].endswith("repro.py:44 [508 hazards]")
    (unwritten,) = parsed("initcheck")
    assert (unwritten.kind, unwritten.bytes, unwritten.address) == ("uninitialised read", 4, 0x7F3C7EC000FC)
    assert unwritten.kernel.startswith("void at::native::vectorized_elementwise_kernel<")
    assert parsed("clean") == []


def test_a_failed_call_alone_is_told() -> None:
    text = '========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure" on CUDA API'
    assert sanitizers.parse_cuda_report(text) == [Access("sanitizer", what="CUDA", notes=("cudaErrorLaunchFailure",))]


EXTENTS = [
    Extent("in_ptr0", 0x7F52A2000000, 0x7F52A2001000, 0x7F52A2000000, 0x7F52A2001000, 4),
    Extent("out_ptr0", 0x7F52A2001E00, 0x7F52A2002000, 0x7F52A2001E00, 0x7F52A2002000, 4),
]


def test_the_argument_and_the_element_are_named() -> None:
    text = {"repro.py:31": "tmp1 = tl.load(in_ptr0 + x0)"}
    found = locate_accesses(parsed("memcheck"), EXTENTS, text, {})
    assert [line for access in found for line in lines_of(access)] == [
        "Invalid __global__ read: read of 4 bytes at 0x7f52a2001004: "
        "element 1025 of in_ptr0, 2 elements past its end (1024 elements) (and 1 more like it)",
        "    repro.py:31  tmp1 = tl.load(in_ptr0 + x0)",
        "    thread (33,0,0) in block (2,0,0) of triton_poi_fused_index_0",
        "    and is 5 bytes after the nearest allocation at 0x7f52a2000000 of size 4,096 bytes",
        "Invalid __global__ write: write of 16 bytes at 0x7f52a2001fe8: element 122 of out_ptr0",
        "    repro.py:34",
        "    thread (0,0,0) in block (2,0,0) of triton_poi_fused_index_0",
        "    is misaligned; and is inside the nearest allocation at 0x7f52a2001e00 of size 512 bytes",
    ]


def test_a_far_address_belongs_to_the_pointer_that_its_line_names(tmp_path: Path) -> None:
    script = tmp_path / "repro.py"
    script.write_text(
        "def kernel(table, index, out):\n"
        "    tl.store(out + 0, tl.load(table + tl.load(index)))\n"
        "    values = tl.load(table + source * 64, mask=inside)\n"
        "def launch(buf1, buf2, buf0):\n"
        "    KERNEL(table=buf1, index=buf2, out=buf0)\n"
    )
    named = sanitize.pointers_in(script)
    assert named == {"repro.py:3": "buf1"}
    extents = [
        Extent("buf1", 1 << 20, (1 << 20) + 4096, 1 << 20, (1 << 20) + 4096, 4),
        Extent("buf0", 1 << 30, 1 << 31, 1 << 30, 1 << 31, 4),
    ]
    source = CodeLine("repro.py", 3)
    access = Access(
        "sanitizer", "read", "Invalid __global__ read", bytes=4, address=(1 << 20) + (1 << 40), source=source
    )
    (located,) = locate_accesses([access], extents, {}, named)
    line = lines_of(located)[0]
    assert line.endswith(f"element {1 << 38} of buf1, {(1 << 38) - 1023} elements past its end (1024 elements)")


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (100, "element 0 of a"),
        (107, "element 1 of a"),
        (119, "element 4 of a"),
        (120, "element 5 of a, 1 element past its end (5 elements), inside its storage"),
        (143, "element 10 of a, 6 elements past its end (5 elements)"),
        (96, "element -1 of a, 1 element before its beginning (5 elements), inside its storage"),
        (190, "element -3 of b, 3 elements before its beginning (2 elements)"),
    ],
)
def test_an_address_belongs_to_the_nearest_argument(address: int, text: str) -> None:
    extents = [Extent("a", 100, 120, 90, 140, 4), Extent("b", 200, 208, 200, 208, 4)]
    access = Access("sanitizer", address=address)
    assert place_text(placed(access, address, extents)) == text
    assert placed(access, address, []) == access


@pytest.mark.parametrize("make", [memory_of, separate_memory])
def test_extents_are_those_of_the_memory(make: object) -> None:
    storages = [Storage("s", 80, 64, "cpu"), Storage("e", 0, 0, "cpu")]
    arguments = [
        LaunchArgument("rows", "in", torch.float32, (3, 2), (6, 1), "s", 2),
        LaunchArgument("empty", "in", torch.float32, (0,), (1,), "e", 0),
    ]
    memory = make(arguments, storages)  # type: ignore[operator]
    (extent,) = extents_of(arguments, memory)
    assert extent.storage_begin % 128 == 64
    assert extent.storage_end - extent.storage_begin == 80
    assert extent.begin - extent.storage_begin == 8
    assert extent.end - extent.begin == 14 * 4
    assert extent.begin == memory.views["rows"].data_ptr()
    assert Extent.from_words([str(word) for word in extent.words()]) == extent


def test_address_sanitizer_without_symbols() -> None:
    text = "==1==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x60b0000001a4 at pc 0x7f bp 0x7f sp 0x7f\n"
    text += "WRITE of size 32 at 0x60b0000001a4 thread T3\n    #0 0x7f123 in memcpy (/lib/libasan.so.8+0x123)\n"
    text += "    #1 0x7f in at::vec::Vectorized<float>::store(void*) const /inc/vec256_float.h:91\n"
    text += "    #2 0x7f in cpp_fused_0 [clone ._omp_fn.0] /tmp/build/abc.cpp:12:7\n\n0x60b0000001a4 is located\n"
    text += "    #0 0x7f in malloc /src/x.cpp:69\n"
    (found,) = sanitizers.parse_compiler_report(text, Path("/elsewhere/abc.cpp"))
    assert found == Access(
        "sanitizer",
        "write",
        "AddressSanitizer: heap-buffer-overflow",
        bytes=32,
        address=0x60B0000001A4,
        kernel="cpp_fused_0",
        source=CodeLine("SOURCE", 12),
    )


def test_the_tool_is_sought_on_path_and_in_the_toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.setenv("CUDA_PATH", str(tmp_path / "cuda"))
    for folder in (tmp_path / "cuda/bin", tmp_path / "bin"):
        folder.mkdir(parents=True)
        tool = folder / "compute-sanitizer"
        tool.write_text("#!/bin/sh\n")
        tool.chmod(0o755)
        assert sanitizers.find_compute_sanitizer() == str(tool)


def test_a_cuda_repro_without_the_tool_or_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = tmp_path / "run"
    saved.mkdir()
    launch = LaunchBuilder(saved, "aoti_torch_zero_", Kind.SHIM_INPLACE, "aten.zero_.default")
    folder = write(launch.tensor("a", torch.ones(2), Role.INOUT, after=torch.zeros(2)).build(), tmp_path / "repro")
    script = folder / "repro.py"
    script.write_text(script.read_text().replace('device="cpu"', 'device="cuda:0"'))
    if any(Path("/usr/local").glob("cuda*/bin/compute-sanitizer")):
        pytest.skip("the CUDA toolkit is here")
    monkeypatch.setenv("PATH", "")
    done = replay(folder, "--sanitize")
    assert done.stderr.endswith("or in the CUDA toolkit; pip install nvidia-cuda-sanitizer-api\n"), done
    assert done.returncode == 1


TOOL = f"""#!{sys.executable}
import json, os, sys
words = sys.argv[1:]
assert words[words.index("--tool") + 1] == "memcheck", words
assert "PYTORCH_NO_CUDA_MEMORY_CACHING" in os.environ
assert words[words.index("--trial") + 1] == "sanitize memcheck", words
for message in (
    ["extent", "a", 0x7f52a2000000, 0x7f52a2001000, 0x7f52a2000000, 0x7f52a2001000, 4],
    ["begin"],
    ["error", "AcceleratorError: an illegal memory access"],
):
    os.write(int(words[words.index("--report") + 1]), json.dumps([str(word) for word in message]).encode() + b"\\n")
with open(words[words.index("--log-file") + 1], "w") as log, open({str(REPORTS / "memcheck.txt")!r}) as report:
    log.write(report.read())
"""


def test_the_report_of_the_child_and_of_the_tool_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a tool that only says what it would say."""
    saved = tmp_path / "run"
    saved.mkdir()
    launch = LaunchBuilder(saved, "aoti_torch_zero_", Kind.SHIM_INPLACE, "aten.zero_.default")
    folder = write(launch.tensor("a", torch.ones(2), Role.INOUT, after=torch.zeros(2)).build(), tmp_path / "repro")
    script = folder / "repro.py"
    script.write_text(script.read_text().replace('device="cpu"', 'device="cuda:0"'))
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(TOOL)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    done = replay(folder, "--sanitize")
    lines = done.stdout.splitlines()
    assert lines[0] == "0.3 aoti_torch_zero_: compute-sanitizer memcheck: 3 reports", done
    assert lines[1].startswith(
        "  Invalid __global__ read: read of 4 bytes at 0x7f52a2001004: element 1025 of a, 2 elem"
    )
    assert lines[2].startswith("      repro.py:31")
    assert done.returncode == 11
