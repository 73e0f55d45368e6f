"""Generated C++ kernels: the source, compiled as the package compiled it and called through ctypes."""

from __future__ import annotations

import re

from aoti_debug.errors import UsageError
from aoti_debug.manifest import Compiler, CType, Kernel, Manifest
from aoti_debug.repro import literals
from aoti_debug.repro.arguments import ReproArguments
from aoti_debug.repro.recorded import RecordedLaunch, RecordedSlot
from aoti_debug.repro.script import Script, call, tuple_of
from aoti_debug.values import Number

PREFIX = "torch/csrc/inductor/cpp_prefix.h"

WAYS = ("python repro.py --backend checked    checks every access; names the index of an out-of-bounds one",)
_CTYPES = {
    "bool": "c_bool",
    "int8_t": "c_int8",
    "int16_t": "c_int16",
    "int32_t": "c_int32",
    "int": "c_int",
    "int64_t": "c_int64",
    "long": "c_long",
    "long long": "c_longlong",
    "uint8_t": "c_uint8",
    "uint16_t": "c_uint16",
    "uint32_t": "c_uint32",
    "uint64_t": "c_uint64",
    "size_t": "c_size_t",
    "float": "c_float",
    "double": "c_double",
}
_PASSED = {
    CType.BOOL: "c_bool",
    CType.I8: "c_int8",
    CType.I16: "c_int16",
    CType.I32: "c_int32",
    CType.I64: "c_int64",
    CType.U8: "c_uint8",
    CType.U16: "c_uint16",
    CType.U32: "c_uint32",
    CType.U64: "c_uint64",
    CType.F32: "c_float",
    CType.F64: "c_double",
}


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
    ctype = _CTYPES.get(declared) if declared else _PASSED.get(slot.value.type)
    if ctype is None:
        raise UsageError(f"launch {launch.id} cannot be replayed: {slot.arg.name} is passed as {slot.arg.ctype}")
    value = slot.value.value
    number = float(value) if ctype in ("c_float", "c_double") else bool(value) if ctype == "c_bool" else int(value)
    return f"ctypes.{ctype}({literals.number(number)})"


def _source(kernel: Kernel, compiler: Compiler) -> str:
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
