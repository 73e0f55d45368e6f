"""Finds the functions of a generated wrapper: where each begins and ends."""

from __future__ import annotations

import re
from collections.abc import Iterator

from aoti_debug.base.errors import ArtifactError
from aoti_debug.base.frozen import dataclass
from aoti_debug.instrument.wrapper.cpp_syntax import lexer

_ENTRY_HEAD = re.compile(r"^void AOTInductorModel\w*::(_const_run_impl|run_impl)\s*\(", re.MULTILINE)
_ARRAY_REF = re.compile(r"\b(run_impl_minimal_arrayref_interface|get_data_ptr_wrapper|ArrayRefTensor)\b")
_TRITON_HEAD = re.compile(r"^static [^;{}()]*?(?:\(\([^()]*\)\))?[^;{}()]*?\bvoid (call_\w+)\s*\(", re.MULTILINE)
_CUDA_INCLUDE = re.compile(r"^#include <torch/csrc/inductor/aoti_include/(\w+)\.h>", re.MULTILINE)


@dataclass(frozen=True)
class Body:
    """A function definition: offsets into the wrapper's text.

    Attributes:
        name: "run_impl", "_const_run_impl", "call_triton_poi_fused_0".
        parameters: of the "(" that opens the parameter list.
        opening: of the "{" that opens the body.
        closing: of the "}" that closes it.
    """

    name: str
    parameters: int
    opening: int
    closing: int


def entry_points(masked: str) -> tuple[Body, ...]:
    """Finds the functions of the model that launch kernels, in the order of the text.

    Args:
        masked: the wrapper without comments and strings (lexer.mask).

    Raises:
        ArtifactError: there is no run_impl, or it uses the minimal ArrayRef interface.
    """
    if match := _ARRAY_REF.search(masked):
        raise ArtifactError(
            f"the model was lowered for ArrayRef tensors ({match.group(1)}), which cannot be instrumented",
            hint="lower it without aot_inductor.use_minimal_arrayref_interface and aot_inductor.allow_stack_allocation",
        )
    bodies = tuple(_bodies(_ENTRY_HEAD, masked))
    if not any(body.name == "run_impl" for body in bodies):
        raise ArtifactError(
            "the generated C++ has no AOTInductorModel::run_impl",
            hint="this torch generates a wrapper of another form; use torch 2.11 or newer",
        )
    return bodies


def triton_functions(masked: str) -> tuple[Body, ...]:
    """Finds the `call_*` functions that load and launch a Triton kernel."""
    return tuple(_bodies(_TRITON_HEAD, masked))


def device_of(text: str) -> str:
    """Returns the device type that the wrapper was generated for: "cpu", "cuda", and so on."""
    match = _CUDA_INCLUDE.search(text)
    return match.group(1) if match else "cpu"


def _bodies(head: re.Pattern[str], masked: str) -> Iterator[Body]:
    for match in head.finditer(masked):
        parameters = match.end() - 1
        opening = lexer.closing_offset(masked, parameters) + 1
        while opening < len(masked) and masked[opening].isspace():
            opening += 1
        if masked[opening : opening + 1] == "{":
            yield Body(match.group(1), parameters, opening, lexer.closing_offset(masked, opening))
