"""Intended infinities: masks, paddings and scalars that the model's own code makes infinite."""

from __future__ import annotations

import math
import re

from aoti_debug.package.manifest import Kernel, Manifest
from aoti_debug.package.recording.values import Number
from aoti_debug.runs.kernel_source import result_slices
from aoti_debug.runs.rundir.timeline import Argument, Launch

_BOTH = frozenset({1, -1})
_OPERAND_TEXT = re.compile(r"(?<![\w.])(-?)\s*\"?(-?)(?:inf|Infinity)\b", re.IGNORECASE)
_CPP = re.compile(r"(-?)\s*std::numeric_limits<[^<>]*>::infinity\(\)")
_TRITON = re.compile(r"""(-?)\s*float\(["']([+-]?)inf["']\)""")
_LOGSUMEXP = re.compile(r"attention")  # returns logsumexp, which is -Inf for a fully masked row


def intended_signs(launch: Launch, argument: Argument, manifest: Manifest) -> frozenset[int]:
    """The signs (1, -1) of the infinities that a launch may write to an argument because its code or call has them."""
    kernel = result_slices.kernel_of(launch, manifest)
    if kernel is None:
        return _operator_call_signs(launch)
    result_slice = result_slices.launch_slices(launch, manifest).get(argument.spec.param)
    return result_slice.infinities if result_slice is not None else infinite_constants(kernel)


def infinite_constants(kernel: Kernel) -> frozenset[int]:
    """The signs of the infinite constants anywhere in a kernel's source."""
    pattern = _CPP if kernel.language == "cpp" else _TRITON
    return frozenset(_sign("".join(match.groups())) for match in pattern.finditer(kernel.source))


def _operator_call_signs(launch: Launch) -> frozenset[int]:
    numbers = [a.after.value for a in launch.args if isinstance(a.after, Number)]
    signs = {1 if value > 0 else -1 for value in numbers if isinstance(value, float) and math.isinf(value)}
    for operand in launch.site.operands:
        signs |= {_sign(match.group(1) + match.group(2)) for match in _OPERAND_TEXT.finditer(operand.value)}
    return _BOTH if _LOGSUMEXP.search(launch.site.op or launch.kernel) else frozenset(signs)


def _sign(minuses: str) -> int:
    return -1 if minuses.count("-") % 2 else 1
