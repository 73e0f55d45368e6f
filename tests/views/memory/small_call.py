"""A call of three launches: x → buf0, buf0 → buf1 (used again as buf2), buf2 and a weight → buf3, an output."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from aoti_debug.package.argument_values import Tensor
from aoti_debug.package.manifest import Allocation, Constant, Kind, Role
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from aoti_debug.views.memory.lifetimes import HandleEvent, HandleUse
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, tensor

X, BUF0, BUF1, W, BUF3 = (tensor(256, data_ptr=address) for address in (0x1000, 0x2000, 0x3000, 0x4000, 0x5000))
KIB = 1024
MANIFEST = replace(
    make_manifest(
        replace(site("cpp_fused_0", arg("x"), arg("buf0", Role.OUT), kind=Kind.CPP), line=10),
        replace(site("cpp_fused_1", arg("buf0"), arg("buf1", Role.OUT), kind=Kind.CPP), line=20),
        replace(site("cpp_fused_2", arg("buf2"), arg("w"), arg("buf3", Role.OUT), kind=Kind.CPP, line=23), line=30),
    ),
    inputs=("x",),
    outputs=("buf3",),
    constants=(Constant("w", "w", "float32", (256,), (1,), False),),
    allocations=(Allocation("buf0", 9, True), Allocation("buf1", 19, True), Allocation("buf3", 29, True)),
)
EVENTS = (
    HandleEvent("run_impl", 21, HandleUse.DROP, "buf0"),
    HandleEvent("run_impl", 22, HandleUse.MOVE, "buf2", "buf1"),
    HandleEvent("run_impl", 31, HandleUse.DROP, "buf2"),
)


def recorded(base: Path, calls: int = 1, buf0: Tensor = BUF0, buf1: Tensor = BUF1) -> RunDir:
    writer = JournalWriter()
    for call in range(calls):
        writer.call_begin(call)
        for launch, tensors in enumerate(((X, buf0), (buf0, buf1), (buf1, W, BUF3))):
            writer.launch(launch, launch, *tensors, call=call)
        writer.call_end(call, launches=3)
    return open_run(run_directory(base, MANIFEST, writer))
