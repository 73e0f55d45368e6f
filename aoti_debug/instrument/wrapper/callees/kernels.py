"""Sources and binaries of the kernels that a wrapper launches."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise

from aoti_debug.instrument.wrapper.callees.triton_functions import TritonFunction, parse
from aoti_debug.instrument.wrapper.cpp_syntax.functions import triton_functions
from aoti_debug.instrument.wrapper.cpp_syntax.lexer import mask
from aoti_debug.package.manifest import Kernel

_SECTION = re.compile(r"^(?:#include [^\n]*\n)*#include [<\"][^>\"\n]*cpp_prefix\.h[>\"]", re.MULTILINE)
_DEFINITION = re.compile(r"\bextern\b[^;{}()]*\bvoid\s+(\w+)\s*\([^()]*\)\s*\{")


def cpp_kernels(text: str) -> tuple[Kernel, ...]:
    """Returns the C++ kernels of a kernels text, each with the includes that it needs.

    A section begins at an `#include …cpp_prefix.h`, or at the includes directly before it, and ends before the next;
    a kernel's source is its whole section.
    """
    starts = [match.start() for match in _SECTION.finditer(text)] or [0]
    starts[0] = 0
    sections = (text[a:b] for a, b in pairwise((*starts, len(text))))
    return tuple(
        Kernel(name=name, language="cpp", source=section.strip() + "\n", sha256=_sha256(section.strip() + "\n"))
        for section in sections
        for name in _DEFINITION.findall(mask(section))
    )


def triton_kernels(functions: Iterable[TritonFunction]) -> tuple[Kernel, ...]:
    """Returns the Triton kernels that `launchKernel` starts, numbered from 0 in the order of their functions."""
    kernels: dict[str, Kernel] = {}
    for function in functions:
        launch = function.launch
        if launch is None or launch.kernel in kernels:
            continue
        kernels[launch.kernel] = Kernel(
            name=launch.kernel,
            language="triton",
            source=function.source,
            sha256=_sha256(function.source),
            id=len(kernels),
            mangled=function.mangled,
            cubin=function.cubin.rpartition("/")[2],
            num_warps=launch.num_warps,
            shared_bytes=launch.shared_bytes,
            overlaps=launch.overlaps,
            params=function.kernel_params,
            grid=launch.sizes,
            global_scratch=function.scratch.get("global_scratch", 0),
            profile_scratch=function.scratch.get("profile_scratch", 0),
        )
    return tuple(kernels.values())


def functions(text: str) -> Mapping[str, TritonFunction]:
    """Returns the `call_*` functions of a wrapper by name."""
    found: dict[str, TritonFunction] = {}
    for body in triton_functions(mask(text)):
        parsed = parse(text, body)
        if body.name in found:
            parsed = replace(parsed, launch=None, unread=f"a second function {body.name}")
        found[body.name] = parsed
    return found


def shared_cubins(text: str) -> tuple[str, ...]:
    """Returns the paths from which a wrapper loads two different Triton kernels.

    Kernel binaries that are named after their kernel collide when one kernel is specialised twice: the second then
    runs the machine code of the first.
    """
    sources: dict[str, set[str]] = {}
    for function in functions(text).values():
        if function.cubin and function.launch:
            specialised = replace(function, name="", launch=replace(function.launch, statement=0))
            sources.setdefault(function.cubin, set()).add(repr(specialised))
    return tuple(path for path, kernels in sources.items() if len(kernels) > 1)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
