"""The analysis of a generated wrapper: its launches, kernels, variables and allocations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from aoti_debug.base.frozen import dataclass
from aoti_debug.instrument.wrapper import model_variables, races
from aoti_debug.instrument.wrapper.cpp_syntax import calls, expressions
from aoti_debug.instrument.wrapper.cpp_syntax.calls import CallExpression, Scan
from aoti_debug.instrument.wrapper.cpp_syntax.functions import Variables, entry_points
from aoti_debug.instrument.wrapper.cpp_syntax.lexer import mask
from aoti_debug.instrument.wrapper.launches.c_functions import Prototype, parse_externs, parse_prototypes, parse_proxy
from aoti_debug.instrument.wrapper.launches.kernels import cpp_kernels, functions, triton_kernels
from aoti_debug.instrument.wrapper.launches.sites import find_sites
from aoti_debug.instrument.wrapper.launches.slots import FunctionContext
from aoti_debug.instrument.wrapper.provenance import attach, with_operator_stacks
from aoti_debug.package.launch_traits import traits_of
from aoti_debug.package.manifest import Allocation, Constant, Form, Kernel, Role, Site, Unrecognised
from aoti_debug.package.stream_order import StreamOrder

GUARDABLE = "aoti_torch_empty_strided"
_PINNED = "aoti_torch_empty_strided_pinned"
_POOL = "aoti_torch__alloc_from_pool"
_CALLEES = frozenset({GUARDABLE, _PINNED, _POOL})
_OWNER = re.compile(r"\s*\)?\s*;\s*(?:auto|RAIIAtenTensorHandle)\s+(\w+)\s*(?:=\s*RAIIAtenTensorHandle\s*)?\(")
# The headers whose prototypes analyse() reads, below torch's include directory; not every torch has all of them.
SHIM_HEADERS = (
    "torch/csrc/inductor/aoti_torch/c/shim.h",
    "torch/csrc/inductor/aoti_torch/c/shim_deprecated.h",
    "torch/csrc/inductor/aoti_torch/c/shim_cpu.h",
    "torch/csrc/inductor/aoti_torch/generated/c_shim_aten.h",
    "torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h",
    "torch/csrc/inductor/aoti_torch/generated/c_shim_cuda.h",
)


@dataclass(frozen=True)
class AllocationCall:
    """An allocation with the call that makes it."""

    allocation: Allocation
    call: CallExpression


def find_allocations(text: str, masked: str) -> tuple[AllocationCall, ...]:
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


def list_allocations(
    own: Sequence[AllocationCall], sites: Iterable[Site], kernels: Iterable[Kernel]
) -> tuple[Allocation, ...]:
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


@dataclass(frozen=True)
class Analysis:
    """The launches, kernels and variables of a wrapper.

    Attributes:
        sites: in the order of the text; a site's id is its index.
        kernels: Triton kernels (id = index among them), then C++ kernels.
        unrecognised: calls that look like launches and match no known form.
        inputs, outputs: C++ variables, in order.
        handed_out: variables of branches and loops that become outputs.
        scans: the calls that look like launches, and the loops, by function.
        allocation_calls: those of the wrapper itself, in the order of `allocations`, which begins with them.
        stream_order: of run_impl; None if all of it runs on the stream of the call.
    """

    sites: tuple[Site, ...]
    kernels: tuple[Kernel, ...]
    unrecognised: tuple[Unrecognised, ...]
    inputs: tuple[str, ...]
    constants: tuple[Constant, ...]
    outputs: tuple[str, ...]
    handed_out: tuple[str, ...]
    allocations: tuple[Allocation, ...]
    scans: Mapping[str, Scan]
    allocation_calls: tuple[AllocationCall, ...]
    stream_order: StreamOrder | None


def kernels_of(wrapper: str, kernels: str) -> tuple[Kernel, ...]:
    """Returns the Triton kernels of a wrapper and the C++ kernels of a kernels text."""
    return triton_kernels(functions(wrapper).values()) + cpp_kernels(kernels)


def analyse(
    wrapper: str,
    *,
    kernels: str = "",
    proxy: str = "",
    provenance: str = "",
    headers: Sequence[str] = (),
    operators: Mapping[str, str] | None = None,
    schemas: Mapping[str, str] | None = None,
    operator_stacks: Mapping[str, str] | None = None,
) -> Analysis:
    """Finds every launch of a generated wrapper.

    Args:
        wrapper: text of the wrapper, without the kernels (sources.split_kernels).
        kernels: text of the C++ kernels, without the compiler commands.
        proxy: text of `*.wrapper.json`.
        provenance: text of `kernel_information.json`.
        headers: texts of SHIM_HEADERS.
        operators: operator of each C-shim function, from shim_operators() and declared_shims().
        schemas: operator schemas by operator ("mylib::op" or "mylib::op.default"), at least of proxy_targets().
        operator_stacks: stack traces of the calls of custom operators that the program calls once, by operator.

    Raises:
        ArtifactError: the wrapper cannot be instrumented, or a JSON text is damaged.
    """
    shims: dict[str, Prototype] = {}
    for header in headers:
        shims |= parse_prototypes(header)
    triton = functions(wrapper)
    masked = mask(wrapper)
    externs = parse_externs(wrapper) | parse_externs(kernels)
    context = FunctionContext(
        shims=shims,
        externs={name: prototype for name, prototype in externs.items() if name not in shims},
        triton=triton,
        proxy=parse_proxy(proxy),
        operators=operators or {},
        schemas=schemas or {},
        variables=Variables({}, {}, frozenset(), frozenset(), frozenset()),
    )
    parsed = find_sites(wrapper, masked, context)
    sites = with_operator_stacks(attach(parsed.recognised, provenance), operator_stacks or {})
    all_kernels = triton_kernels(triton.values()) + cpp_kernels(kernels)
    body = next(body for body in entry_points(masked) if body.name == "run_impl")
    inputs = model_variables.inputs(wrapper)
    streams = races.find(masked, body, races.Launched(parsed.recognised, parsed.unrecognised, all_kernels, inputs))
    sites = tuple(replace(site, waits_for=streams.waits_for.get(site.id, ())) for site in sites)
    allocation_calls = find_allocations(wrapper, masked)
    return Analysis(
        sites=sites,
        kernels=all_kernels,
        unrecognised=parsed.unrecognised,
        inputs=inputs,
        constants=model_variables.constants(wrapper),
        outputs=model_variables.outputs(wrapper, body),
        handed_out=model_variables.handed_out(wrapper, body),
        allocations=list_allocations(allocation_calls, sites, all_kernels),
        scans=parsed.scans,
        allocation_calls=allocation_calls,
        stream_order=streams.order,
    )
