"""Infinities that somebody meant: masks, paddings and scalars that are infinite by the model's own word."""

from __future__ import annotations

import math
import re
from enum import Enum

from aoti_debug.manifest import Kernel, Manifest
from aoti_debug.rundir.timeline import Argument, Launch
from aoti_debug.triage.kernel_source import slices
from aoti_debug.values import Number


class Infinities(str, Enum):
    """What is said of infinities that nobody meant. NaN is looked at whatever it says."""

    IGNORE = "ignore"
    WARN = "warn"
    FAIL = "fail"


_BOTH = frozenset({1, -1})
_WORD = re.compile(r"(?<![\w.])(-?)\s*\"?(-?)(?:inf|Infinity)\b", re.IGNORECASE)
_CPP = re.compile(r"(-?)\s*std::numeric_limits<[^<>]*>::infinity\(\)")
_TRITON = re.compile(r"""(-?)\s*float\(["']([+-]?)inf["']\)""")
_LOGARITHMS = re.compile(r"attention")  # the logarithm of the sum of a row that is masked throughout is -Inf


def intended(launch: Launch, argument: Argument, manifest: Manifest) -> frozenset[int]:
    """Signs (1, -1) of the infinities that a launch may put into an argument because its code or its call says so."""
    kernel = slices.kernel_of(launch, manifest)
    if kernel is None:
        return _of_operator(launch)
    found = slices.of_launch(launch, manifest).get(argument.spec.param)
    return found.infinities if found is not None else written_in(kernel)


def written_in(kernel: Kernel) -> frozenset[int]:
    """Signs of the infinite constants anywhere in a kernel's source."""
    pattern = _CPP if kernel.language == "cpp" else _TRITON
    return frozenset(_sign("".join(match.groups())) for match in pattern.finditer(kernel.source))


def _of_operator(launch: Launch) -> frozenset[int]:
    numbers = [a.after.value for a in launch.args if isinstance(a.after, Number)]
    found = {1 if value > 0 else -1 for value in numbers if isinstance(value, float) and math.isinf(value)}
    for operand in launch.site.operands:
        found |= {_sign(match.group(1) + match.group(2)) for match in _WORD.finditer(operand.value)}
    return _BOTH if _LOGARITHMS.search(launch.site.op or launch.kernel) else frozenset(found)


def _sign(minuses: str) -> int:
    return -1 if minuses.count("-") % 2 else 1
