"""The memory allocations of a wrapper's buffers, and the reason why a buffer can have no guard zones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from aoti_debug.base.frozen import dataclass
from aoti_debug.instrument.wrapper.cpp_syntax import calls, expressions
from aoti_debug.instrument.wrapper.cpp_syntax.calls import CallExpression
from aoti_debug.instrument.wrapper.cpp_syntax.functions import entry_points
from aoti_debug.package.launch_traits import traits_of
from aoti_debug.package.manifest import Allocation, Form, Kernel, Role, Site

GUARDABLE = "aoti_torch_empty_strided"
_PINNED = "aoti_torch_empty_strided_pinned"
_POOL = "aoti_torch__alloc_from_pool"
_CALLEES = frozenset({GUARDABLE, _PINNED, _POOL})
_OWNER = re.compile(r"\s*\)?\s*;\s*(?:auto|RAIIAtenTensorHandle)\s+(\w+)\s*(?:=\s*RAIIAtenTensorHandle\s*)?\(")


@dataclass(frozen=True)
class AllocationCall:
    """An allocation with the call that makes it."""

    allocation: Allocation
    call: CallExpression


def find(text: str, masked: str) -> tuple[AllocationCall, ...]:
    """Finds the allocations that the wrapper itself makes, in the order of the text.

    Args:
        masked: lexer.mask(text).

    Raises:
        ArtifactError: the wrapper has a form that cannot be instrumented.
    """
    lines = calls.Lines(text)
    return tuple(
        AllocationCall(_allocation(call, masked), call)
        for body in entry_points(masked)
        for call in calls.scan(text, body, lines, _CALLEES.__contains__).calls
    )


def list_all(own: Sequence[AllocationCall], sites: Iterable[Site], kernels: Iterable[Kernel]) -> tuple[Allocation, ...]:
    """Lists all memory that launches write to except inputs and weights: first `own`, then what kernels allocate."""
    return (*(call.allocation for call in own), *_operator_outputs(sites), *_launcher_scratch(kernels))


def _allocation(call: CallExpression, masked: str) -> Allocation:
    name = _name(call, masked)
    if call.callee == GUARDABLE:
        return Allocation(name, call.line, guarded=True)
    if call.callee == _PINNED:
        return Allocation(name, call.line, guarded=False, reason="it is in pinned host memory")
    pool = call.arguments[0].text if call.arguments else "a pool"
    return Allocation(
        name, call.line, guarded=False, reason=f"it lies in {pool} beside other buffers; only the pool has guards"
    )


def _name(call: CallExpression, masked: str) -> str:
    """Returns the variable that will own the memory."""
    last = call.arguments[-1]
    if call.callee == _POOL and (owner := _OWNER.match(masked, last.span.end + 1)):
        return owner.group(1)
    tensor = expressions.tensor(last.text)
    return tensor.variable if tensor else last.text


def _operator_outputs(sites: Iterable[Site]) -> Iterator[Allocation]:
    for site in sites:
        allocates = traits_of(site.kind).allocates_outputs
        for arg in site.args:
            if arg.form is Form.OUTPUT_SLOT or (allocates and arg.role is Role.OUT):
                yield Allocation(
                    arg.name, site.line, guarded=False, reason=f"{site.op or site.kernel} allocates it itself"
                )


def _launcher_scratch(kernels: Iterable[Kernel]) -> Iterator[Allocation]:
    for kernel in kernels:
        if kernel.global_scratch or kernel.profile_scratch:
            yield Allocation(f"scratch of {kernel.name}", 0, guarded=False, reason="the kernel's launcher allocates it")
