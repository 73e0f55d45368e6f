"""Rewrites generated C++ so that every launch goes through the runtime.

Only the head of a call changes: arguments stay where they are, are evaluated once and keep their types.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from aoti_debug.base.errors import ArtifactError
from aoti_debug.base.frozen import dataclass
from aoti_debug.instrument.builder.compiling.site_tables import c_literal
from aoti_debug.instrument.wrapper.analysis import AllocationCall, Analysis
from aoti_debug.instrument.wrapper.cpp_syntax import expressions
from aoti_debug.instrument.wrapper.cpp_syntax.calls import CallExpression, Scan
from aoti_debug.instrument.wrapper.cpp_syntax.functions import Body, device_of, entry_points, expression_of
from aoti_debug.instrument.wrapper.cpp_syntax.lexer import mask
from aoti_debug.instrument.wrapper.launches.kernels import functions
from aoti_debug.package.manifest import Kernel, Site
from aoti_debug.package.weights_file import WeightsPlace

_PROLOGUE = """\
#include "aoti_debug.h"
extern "C" AOTI_DEBUG_HIDDEN const AotiDebugSite aoti_debug_sites[];
extern "C" AOTI_DEBUG_HIDDEN const AotiDebugKernel aoti_debug_kernels[];
#define AOTI_DEBUG_LAUNCH(site, callee, ...) \\
  aoti_debug::launch( \\
      aoti_debug_sites[site], \\
      [&](auto&&... x) -> decltype(auto) { return callee(aoti_debug::unwrap(std::forward<decltype(x)>(x))...); }, \\
      __VA_ARGS__)
#define AOTI_DEBUG_ALL(...) __VA_ARGS__
#define AOTI_DEBUG_CHECK(status, call) \\
  if ((status) != AOTI_TORCH_SUCCESS) aoti_debug::throw_failed(call, __FILE__, __LINE__)
#define AOTI_DEBUG_CHECKED(site, callee, arguments) \\
  AOTI_DEBUG_CHECK(AOTI_DEBUG_LAUNCH(site, callee, AOTI_DEBUG_ALL arguments), #callee #arguments)
"""
_ON_SIDE_STREAMS = """\
#define AOTI_DEBUG_LAUNCH_ON(stream, site, callee, ...) \\
  aoti_debug::launch_on( \\
      stream, \\
      aoti_debug_sites[site], \\
      [&](auto&&... x) -> decltype(auto) { return callee(aoti_debug::unwrap(std::forward<decltype(x)>(x))...); }, \\
      __VA_ARGS__)
#define AOTI_DEBUG_CHECKED_ON(stream, site, callee, arguments) \\
  AOTI_DEBUG_CHECK(AOTI_DEBUG_LAUNCH_ON(stream, site, callee, AOTI_DEBUG_ALL arguments), #callee #arguments)
"""
# The macro around most calls of operators: of a call that failed it prints the text, which is to be that of torch.
_CHECK = "AOTI_TORCH_ERROR_CODE_CHECK("
# The functions that make and delete a container come before the include of aoti_debug.h.
_CONTAINERS = (
    (re.compile(r"reinterpret_cast<AOTInductorModelContainerHandle>\(container\);"), 1),
    (re.compile(r"\bdelete container;"), -1),
)
_COUNT_CONTAINERS = (
    ' extern void aoti_debug_count_containers(int) __asm__("aoti_debug_containers");'
    " aoti_debug_count_containers({change});"
)
# What the C functions of the library do to weights: in words, whether on the inactive side, and whether to all of them.
_WEIGHTS = {
    "update_constant_buffer": ("updated", "use_inactive", "validate_full_update"),
    "swap_constant_buffer": ("swapped", "0", "1"),
    "run_const_fold": ("folded", "use_inactive", "1"),
    "free_inactive_constant_buffer": ("freed", "1", "1"),
}
_CHANGED_WEIGHTS = re.compile(rf"\bcontainer->({'|'.join(_WEIGHTS)})\s*\(")
_NOTE_WEIGHTS = (
    "extern void aoti_debug_note_weights(const char*, unsigned, unsigned)"
    ' __asm__("aoti_debug_weights"); {when}aoti_debug_note_weights("{what}", {inactive}, {all}); '
)
_AFTER_FIRST = "static std::atomic<bool> aoti_debug_has_weights{false}; if (aoti_debug_has_weights.exchange(true)) "
_NAMESPACE = re.compile(r"^namespace torch::aot_inductor\b", re.MULTILINE)
_LOWEST_INT64 = re.compile(r"-9223372036854775808LL?\Z")
_CALL_KINDS = {"run_impl": "AOTI_DEBUG_CALL_MODEL", "_const_run_impl": "AOTI_DEBUG_CALL_CONSTANT"}
# The model's own guard is not enough: it begins after misaligned inputs are cloned, and ends before the call does.
_CUDA_GUARD = (
    " std::optional<AOTICudaGuard> aoti_debug_guard;"
    " if (aoti_debug_level() != 0) aoti_debug_guard.emplace(this->device_idx_);"
)


@dataclass(frozen=True)
class Edit:
    """A replacement of [start, end) of a text."""

    start: int
    end: int
    text: str


def instrument(wrapper: str, analysis: Analysis, place: WeightsPlace = WeightsPlace.INSIDE) -> str:
    """Routes the call of every launch site through the runtime and returns the new wrapper source.

    Lines keep their numbers, also in compiler messages: the code inserted before the model's namespace ends in a
    `#line` directive.

    Args:
        wrapper: the text that was analysed.
        place: of the weights; a model without weights is given them by its first update, which is not reported.

    Raises:
        ArtifactError: the wrapper cannot be instrumented, or a site is not at its line.
    """
    masked = mask(wrapper)
    macros = [_PROLOGUE, *([_ON_SIDE_STREAMS] if any(site.stream for site in analysis.sites) else [])]
    edits = [_prologue(wrapper, masked, "".join(macros))]
    device = device_of(wrapper)
    for body in entry_points(masked):
        edits += _function(masked, body, analysis.scans[body.name], device)
    edits += _launches([call for scan in analysis.scans.values() for call in scan.calls], analysis.sites, masked)
    edits += _allocations(analysis.allocation_calls)
    edits += _grids(wrapper, analysis.kernels)
    edits += _containers(masked)
    edits += _weights(masked, place)
    return apply(wrapper, edits)


def apply(text: str, edits: Iterable[Edit]) -> str:
    """Applies the edits to the text.

    Raises:
        ArtifactError: two of them overlap.
    """
    pieces, position = [], 0
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        if edit.start < position:
            raise ArtifactError(
                f"two edits overlap at offset {edit.start}",
                hint="its text is damaged; if torch wrote it so, report this as a bug",
            )
        pieces += [text[position : edit.start], edit.text]
        position = edit.end
    return "".join([*pieces, text[position:]])


def _prologue(wrapper: str, masked: str, macros: str) -> Edit:
    namespace = _NAMESPACE.search(masked)
    if namespace is None:
        raise ArtifactError(
            "the wrapper has no namespace torch::aot_inductor",
            hint="its text is damaged; if torch wrote it so, report this as a bug",
        )
    line = wrapper.count("\n", 0, namespace.start()) + 1
    return Edit(namespace.start(), namespace.start(), f'{macros}#line {line} "wrapper.cpp"\n')


def _function(masked: str, body: Body, scan: Scan, device: str) -> Iterator[Edit]:
    if masked[body.opening + 1 : body.closing].strip():
        stream = "nullptr" if device == "cpu" else "stream"
        guard = _CUDA_GUARD if device == "cuda" else ""
        start = body.opening + 1
        yield Edit(start, start, f"{guard} aoti_debug::Call aoti_debug_call({_CALL_KINDS[body.name]}, this, {stream});")
    for loop in scan.loops:
        yield Edit(*loop.span, "for (aoti_debug::Loop aoti_debug_loop;; aoti_debug_loop.next()) {")


def _launches(calls: Sequence[CallExpression], sites: Sequence[Site], masked: str) -> Iterator[Edit]:
    """The edits of all sites. Unrecognised calls are not changed."""
    bodies = {body.name: body for body in entry_points(masked)}
    remaining = iter(calls)
    for site in sites:
        call = next((c for c in remaining if (c.line, c.callee) == (site.line, site.callee)), None)
        if call is None:
            raise ArtifactError(
                f"site {site.id} ({site.callee}) is not in line {site.line} of the wrapper",
                hint="its text is damaged; if torch wrote it so, report this as a bug",
            )
        start, macro, opening = call.head.start, "AOTI_DEBUG_LAUNCH", ""
        if masked.endswith(_CHECK, 0, start):
            start, macro, opening = start - len(_CHECK), "AOTI_DEBUG_CHECKED", "("
        stream = ""
        if site.stream:
            stream = f"{expression_of(site.stream, masked, bodies[site.function], call.head.start)}, "
            macro += "_ON"
        yield Edit(start, call.opening + 1, f"{macro}({stream}{site.id}, {site.callee}, {opening}")
        for argument in call.arguments:
            changed = _argument(argument.text)
            if changed != argument.text:
                yield Edit(*argument.span, changed)


def _allocations(calls: Sequence[AllocationCall]) -> Iterator[Edit]:
    """Edits that let the runtime allocate the buffers that it can guard."""
    for index, scanned in enumerate(calls):
        call, name = scanned.call, scanned.allocation.name
        if scanned.allocation.guarded:
            yield Edit(
                call.head.start, call.opening + 1, f"aoti_debug::allocate({index}, {c_literal(name)}, {call.callee}, "
            )


def _containers(masked: str) -> Iterator[Edit]:
    """Edits that tell the runtime how many containers of models there are; none without the code of both ends."""
    found = [(list(pattern.finditer(masked)), change) for pattern, change in _CONTAINERS]
    if all(matches for matches, _ in found):
        for matches, change in found:
            for match in matches:
                yield Edit(match.end(), match.end(), _COUNT_CONTAINERS.format(change=change))


def _weights(masked: str, place: WeightsPlace) -> Iterator[Edit]:
    """Edits that tell the runtime when the host changes weights."""
    for match in _CHANGED_WEIGHTS.finditer(masked):
        what, inactive, all_ = _WEIGHTS[match[1]]
        when = _AFTER_FIRST if place is WeightsPlace.BY_REFERENCE and what == "updated" else ""
        note = _NOTE_WEIGHTS.format(when=when, what=what, inactive=inactive, all=all_)
        yield Edit(match.start(), match.start(), note)


def _argument(text: str) -> str:
    """The argument in a form that can pass through a forwarding template."""
    if text == "NULL":
        return "nullptr"
    if _LOWEST_INT64.match(text):
        return "INT64_MIN"
    pointer = expressions.pointer(text)
    if pointer is not None and pointer.tensor is not None:
        return f"aoti_debug::with_tensor({pointer.tensor_text}, {text})"
    return text


def _grids(wrapper: str, kernels: Sequence[Kernel]) -> Iterator[Edit]:
    """Edits that report the grid before each launchKernel."""
    ids = {kernel.name: kernel.id for kernel in kernels if kernel.language == "triton"}
    for function in functions(wrapper).values():
        launch = function.launch
        if launch is None:
            continue
        position = launch.statement
        yield Edit(
            position,
            position,
            "if (aoti_debug_level() != 0) { "
            f"const uint32_t aoti_debug_grid_size[3] = {{{', '.join(launch.grid)}}}; "
            f"aoti_debug_grid(&aoti_debug_kernels[{ids[launch.kernel]}], aoti_debug_grid_size, "
            f"{launch.num_warps}, {launch.shared_bytes}, {launch.arguments}); }} ",
        )
