"""Generated C++ kernels: the source, compiled as the package compiled it and called through ctypes."""

from __future__ import annotations

import re

from aoti_debug.base.errors import UsageError
from aoti_debug.package.argument_values import Number
from aoti_debug.package.manifest import Kernel, KernelCompilation, Manifest
from aoti_debug.repro import literals
from aoti_debug.repro.arguments import ReproArguments
from aoti_debug.repro.recorded_launch import RecordedLaunch, RecordedSlot
from aoti_debug.repro.script import Script, call, tuple_of

PREFIX = "torch/csrc/inductor/cpp_prefix.h"

WAYS = ("python repro.py --backend checked    checks every access; names the index of an out-of-bounds one",)


def refusal(launch: RecordedLaunch, manifest: Manifest) -> str:
    """Returns the reason why a launch of this kind cannot be replayed; "" if it can."""
    if manifest.kernel(launch.site.kernel) is None:
        return f"the package does not hold the source of {launch.site.kernel}"
    if not manifest.compiler.command:
        return "the package does not say how its kernels were compiled"
    return ""


def script(launch: RecordedLaunch, manifest: Manifest, arguments: ReproArguments) -> Script:
    """Returns what the launch contributes to repro.py.

    Raises:
        UsageError: a value that the call passed was not recorded, or has a type that ctypes has not.
    """
    kernel = manifest.kernel(launch.site.kernel)
    assert kernel is not None
    count = max((s.arg.value for s in launch.slots), default=-1) + 1
    slots = [_slot(launch, position) for position in range(count)]
    passed = [_value(launch, slot, arguments) for slot in slots]
    remarks = [f"{slot.arg.ctype} {slot.arg.param}".strip() for slot in slots]
    return Script(
        launch=(call("KERNEL", passed, remarks),),
        source=_source(kernel, manifest.compiler),
        standard=("import ctypes",) if any(isinstance(slot.value, Number) for slot in slots) else (),
        imports=("from replay.cpp_kernel import CppCompiler, CppKernel",),
        kernel="KERNEL",
        ways=WAYS,
        needs="the C++ compiler that COMPILER in repro.py names",
    )


def _slot(launch: RecordedLaunch, position: int) -> RecordedSlot:
    slots = launch.by_value(position)
    if len(slots) != 1:
        raise UsageError(f"launch {launch.id} cannot be replayed: its argument {position} was not recorded")
    return slots[0]


def _value(launch: RecordedLaunch, slot: RecordedSlot, arguments: ReproArguments) -> str:
    if slot.tensor is not None:
        return arguments.names[slot.arg.name]
    if slot.absent:
        return "None"
    if not isinstance(slot.value, Number):
        raise UsageError(f"launch {launch.id} cannot be replayed: {slot.arg.name} was not recorded")
    declared = re.sub(r"\b(const|std::)\s*|&", "", slot.arg.ctype).strip()
    ctype = literals.CTYPES.get(declared) if declared else literals.RECORDED_CTYPES.get(slot.value.type)
    if ctype is None:
        raise UsageError(f"launch {launch.id} cannot be replayed: {slot.arg.name} is passed as {slot.arg.ctype}")
    return literals.ctypes_number(ctype, slot.value.value)


def _source(kernel: Kernel, compiler: KernelCompilation) -> str:
    text = kernel.source
    if PREFIX not in text:
        text = f"#include <{PREFIX}>\n{text}"
    return "\n".join(
        [
            f"SOURCE = {literals.block(text)}",
            "",
            call(
                "COMPILER = CppCompiler",
                [
                    f"command={literals.text(compiler.command)}",
                    f"flags={tuple_of(compiler.kernel_flags, 4)}",
                    f"include_dirs={tuple_of((_portable(d) for d in compiler.include_dirs), 4)}",
                    f"link_flags={tuple_of((_portable(f) for f in compiler.link_flags), 4)}",
                ],
                indent=0,
            ),
            "",
            f"KERNEL = CppKernel({literals.text(kernel.name)}, SOURCE, COMPILER)",
        ]
    )


def _portable(path: str) -> str:
    """A directory of the installed torch or Python by where it is found on the machine that replays."""
    path = re.sub(r"^(-L|-Wl,-rpath,)?/.*/torch/(include|lib)\b", r"\1{torch}/\2", path)
    return re.sub(r"^/.*/include/python3\.\d+[a-z]*$", "{python}", path)
