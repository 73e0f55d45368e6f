"""Which launch a stack, and which argument an address belongs to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.base.native.core_file import CoreFile
from aoti_debug.base.native.crash_stacks import Stack
from aoti_debug.base.native.frames import StackFrame
from aoti_debug.package.argument_values import Tensor
from aoti_debug.package.manifest import Kind, Manifest, Role
from aoti_debug.runs.rundir import run_directory
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.triage.investigation import core_launch
from tests.core_files import Memory, SmallCore
from tests.factories import JournalWriter, arg, make_manifest, site, tensor
from tests.factories import run_directory as make_run

LIBRARY = "/tmp/x/data/aotinductor/model/c1.wrapper.so"
RUN_IMPL = "torch::aot_inductor::AOTInductorModel::run_impl(AtenTensorOpaque**, AtenTensorOpaque**)"


def wrapper(*sites: tuple[str, int]) -> Manifest:
    """A manifest with calls at lines of the wrapper."""
    made = make_manifest(*(site(name, arg("x"), callee=name) for name, _ in sites))
    placed = tuple(replace(one, line=line) for one, (_, line) in zip(made.sites, sites, strict=True))
    return replace(made, sites=placed)


MANIFEST = wrapper(("aoti_torch_cpu_mm_out", 915), ("cpp_fused_relu_0", 941), ("aoti_torch_cpu_mm_out", 960))


def stack(*frames: StackFrame) -> Stack:
    return Stack(7, "SIGSEGV", 0x10, frames)


def caller(line: int) -> StackFrame:
    return StackFrame(RUN_IMPL, LIBRARY, 0, "/tmp/c1.wrapper.cpp" if line else "", line)


def test_the_line_of_the_wrapper_names_the_launch_site() -> None:
    operator = StackFrame("aoti_torch_cpu_mm_out", "/lib/libtorch_cpu.so")
    found = core_launch.site_of(stack(operator, caller(960)), LIBRARY, MANIFEST)
    assert [one.line for one in found.sites] == [960]
    assert found.why == "the frame of run_impl is at wrapper.cpp:960, which launches it"


@pytest.mark.parametrize(
    ("frames", "lines", "words"),
    [
        # no lines: a kernel is called in one place, an operator in two
        ((StackFrame("cpp_fused_relu_0._omp_fn.0", LIBRARY),), [941], "in one place"),
        ((StackFrame("aoti_torch_cpu_mm_out", "/lib/libtorch_cpu.so"), caller(0)), [915, 960], "in 2 places"),
        # between launches
        ((StackFrame("aoti_torch_empty_strided", "/lib/libtorch_cpu.so"), caller(930)), [], "in no launch"),
        ((StackFrame("AOTInductorModelContainerRun", LIBRARY),), [], "in no launch"),
        ((StackFrame("main", "/bin/server"),), [], "no frame of thread 7 is of the package"),
    ],
)
def test_without_a_line_the_functions_on_the_stack_tell_what_they_can(
    frames: tuple[StackFrame, ...], lines: list[int], words: str
) -> None:
    found = core_launch.site_of(stack(*frames), LIBRARY, MANIFEST)
    assert [one.line for one in found.sites] == lines
    assert words in found.why
    assert (found.site is None) == (len(lines) != 1)


def launched(base: Path, *tensors: Tensor, roles: tuple[Role, ...] = ()) -> tuple[RunDir, Launch]:
    """A launch that did not return."""
    names = [f"a{number}" for number in range(len(tensors))]
    known = roles or (Role.IN,) * len(tensors)
    made = make_manifest(site("kernel", *(arg(n, r) for n, r in zip(names, known, strict=True)), kind=Kind.CPP))
    writer = JournalWriter()
    writer.call_begin()
    writer.launch_begin(0, 0, *tensors)
    run = run_directory.open_run(make_run(base, made, writer))
    return run, run.launches[0]


TWO = (tensor(4, 8, data_ptr=0x10000), tensor(16, dtype="int64", data_ptr=0x20000))


@pytest.mark.parametrize(
    ("address", "argument", "element", "observed", "possible"),
    [
        (0x10000 + 4 * 10, "a0", 10, "address 0x10028 lies in a0, float32[4,8], element 10", ""),
        (0x20000 + 8 * 15 + 3, "a1", 15, "address 0x2007b lies in a1, int64[16], element 15", ""),
        (
            0x10000 + 4 * 40,
            "a0",
            None,
            "address 0x100a0 lies 32 B behind the end of a0, float32[4,8]",
            "it may be element 40 of a0, which has 32 elements",
        ),
        (0x20000 - 8, "a1", None, "address 0x1fff8 lies 8 B in front of a1, int64[16]", "it may be element -1 of a1"),
        (0x7FFF00000000, "", None, "address 0x7fff00000000 lies near no argument of 0.0", ""),
    ],
)
def test_the_argument_that_an_address_lies_in_or_near(
    tmp_path: Path, address: int, argument: str, element: int | None, observed: str, possible: str
) -> None:
    run, launch = launched(tmp_path, *TWO)
    near = core_launch.near_argument(address, launch, run.manifest)
    assert near is not None
    assert (near.place.argument, near.place.element) == (argument, element)
    assert near.observed == observed
    assert possible in near.possible
    assert not near.possible or "may" in near.possible


def test_inputs_are_read_with_their_strides_and_outputs_are_not(tmp_path: Path) -> None:
    columns = tensor(2, 2, data_ptr=0x10000, strides=(1, 2))
    gone, out = tensor(4, data_ptr=0x90000), tensor(4, data_ptr=0x10000)
    _, launch = launched(tmp_path, columns, gone, out, roles=(Role.IN, Role.IN, Role.OUT))
    core = SmallCore(memory=(Memory(0x10000, bytes(range(16))),)).write(tmp_path / "core")
    with CoreFile(core) as opened:
        found = list(core_launch.inputs_in(opened, launch))
    assert [(one.slot, bytes(one.data), one.reason) for one in found] == [
        (0, bytes(range(16)), ""),
        (1, b"", "core does not hold all of its memory"),
    ]


RAISED = (
    b"index out of bounds: 0 <= tmp2 < 50L\nException raised from k at /t/k.kernel.cpp:52 (most recent call first):\n"
)
THROWN = (
    StackFrame("abort", "/lib/libc.so.6"),
    StackFrame("_Unwind_RaiseException", "/lib/libgcc_s.so.1"),
    StackFrame("__cxa_throw", "/lib/libstdc++.so.6"),
    StackFrame("c10::detail::torchCheckFail(char const*)", "/t/libc10.so"),
    StackFrame("k", LIBRARY, 0, "/other/k.kernel.cpp", 52),
)
MESSAGE = "index out of bounds: 0 <= tmp2 < 50L"


@pytest.mark.parametrize(
    ("memory", "message", "possible"),
    [
        (b"\0\0" + RAISED + b"\0}" + RAISED[12:] + b"\0" + RAISED[20:], MESSAGE, 0),
        (RAISED.replace(b":52", b":51"), "", 1),
        (RAISED + b"\0" + RAISED.replace(b"50L", b"60L"), "", 2),
        (b"an index out of bounds: Exception raised", "", 0),
    ],
)
def test_the_message_of_an_exception_is_found_in_the_memory_of_the_process(
    tmp_path: Path, memory: bytes, message: str, possible: int
) -> None:
    """Memory that was freed holds ends of it as well, and exceptions of earlier times."""
    small = SmallCore(memory=(Memory(0x1000, memory + bytes(64)),))
    with CoreFile(small.write(tmp_path / "core")) as core:
        found = core_launch.thrown(core, stack(*THROWN))
        assert core_launch.thrown(core, stack(THROWN[0], THROWN[-1])) == core_launch.Thrown()
    assert found.message == message
    assert found.evidence[0] == "nothing caught the exception that c10::detail::torchCheckFail threw"
    assert found.evidence[1:] == (
        (f"the memory of the process holds what was raised at k.kernel.cpp:52: {message}",) * bool(message)
    )
    assert len(found.possible) == possible
    assert all("may be this" in sentence for sentence in found.possible)


def test_the_other_threads_that_are_in_launches() -> None:
    """Of two that wait for each other, both are told."""
    header = StackFrame("mine::op", "/t/libmine.so", 0, "/usr/include/gthr.h", 749)
    first = replace(stack(caller(941)), thread=1)
    second = replace(stack(header, StackFrame("mine::op", "/t/libmine.so", 0, "/s/op.cpp", 9), caller(915)), thread=2)
    idle = replace(stack(StackFrame("poll", "/lib/libc.so.6")), thread=3)
    said = core_launch.others_in_launches((first, second, idle), first, LIBRARY, MANIFEST)
    assert said == ("thread 2 was in aoti_torch_cpu_mm_out, mine::op at /s/op.cpp:9",)
