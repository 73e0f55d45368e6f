"""Runs a Triton kernel on the CPU and checks every access against the extents of its arguments.

The values are those of Triton's interpreter, with its gaps filled: libdevice, arithmetic in bfloat16, conversions that
round as the GPU's do, reductions by the kernel's own combine functions. Programs run one after another, x fastest.
An out-of-bounds load returns 0, an out-of-bounds store or atomic is dropped; both are counted, and the run goes on.
"""

from __future__ import annotations

import inspect
import itertools
import math
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy
import torch
import triton.language as tl
from triton.runtime.jit import mangle_type

from .interpreter_builder import CheckedBuilder, Handle
from .interpreter_language import Language, python_function
from .interpreter_memory import MACHINERY, AccessCollector, CheckedMemory, Interpretation, Program, line_of
from .interpreter_values import Shadow, encode, is_encoded, numpy_dtype, with_shadow
from .kernel import NotInterpretableError

__all__ = ["Interpretation", "NotInterpretableError", "interpret"]

PROGRESS_SECONDS = 0.1  # between two calls of `progress`

InterpreterArgument: TypeAlias = "torch.Tensor | int | float | bool | None"


def interpret(
    function: Any,
    grid: tuple[int, int, int],
    arguments: Mapping[str, InterpreterArgument],
    constants: Mapping[str, object],
    *,
    signature: Mapping[str, str] | None = None,
    programs: Sequence[Program] = (),
    progress: Callable[[int, int], None] | None = None,
) -> Interpretation:
    """Runs the programs of a launch.

    Args:
        function: a `triton.jit` function, whether or not TRITON_INTERPRET was set when it was made.
        arguments: by parameter. Tensors are CPU tensors, views of their storages, and are changed in place.
        constants: the values of constexpr parameters, by name.
        signature: Triton's names of the parameters' types, "*fp32" or "i64"; without one an int is 32 bits wide if it
            fits, else 64, and a float is a float32.
        programs: which programs of the grid to run, as (x, y, z); all if empty.
        progress: is called with the programs done and those to do, at the end and at most ten times a second before.

    Raises:
        NotInterpretableError: the kernel uses something that the interpreter does not support; the text has its line.
        ValueError: a program is not in the grid, or a tensor is not on the CPU.
    """
    for program in programs:
        if not all(0 <= index < size for index, size in zip(program, grid, strict=True)):
            raise ValueError(f"program {program} is not in the grid {grid}")
    memory = CheckedMemory({name: value for name, value in arguments.items() if isinstance(value, torch.Tensor)})
    report = AccessCollector()
    builder = CheckedBuilder(memory, report)
    builder.set_grid_dim(*grid)
    language = Language(builder)
    chosen: Iterable[Program] = programs or _in_order(grid)
    total = len(programs) or math.prod(grid)
    begun = time.monotonic()
    shown = begun
    with language.installed(), numpy.errstate(all="ignore"):
        try:
            kernel = language.function(function)
            values = _values(function, memory, arguments, constants, signature or {})
            for done, program in enumerate(chosen):
                builder.start(program)
                kernel(**values)
                if progress is not None and time.monotonic() - shown > PROGRESS_SECONDS:
                    shown = time.monotonic()
                    progress(done + 1, total)
        except Exception as error:
            raise NotInterpretableError(_error_text(error)) from error
    if progress is not None:
        progress(total, total)
    return report.result(total, time.monotonic() - begun)


def _in_order(grid: tuple[int, int, int]) -> Iterable[Program]:
    return ((x, y, z) for z, y, x in itertools.product(*(range(size) for size in reversed(grid))))


def _values(
    function: Any,
    memory: CheckedMemory,
    arguments: Mapping[str, InterpreterArgument],
    constants: Mapping[str, object],
    signature: Mapping[str, str],
) -> dict[str, Any]:
    """The values to call the kernel with: constants as they are, tensors as pointers, numbers as scalars."""
    values: dict[str, Any] = {}
    passed: dict[str, Any] = {**arguments, **constants}
    for name, parameter in inspect.signature(python_function(function)).parameters.items():
        if name not in passed:
            continue
        kind = signature.get(name, "")
        constant = kind == "constexpr" or "constexpr" in str(parameter.annotation)
        values[name] = passed[name] if constant else _value(name, passed[name], kind, memory)
    return values


def _value(name: str, value: Any, kind: str, memory: CheckedMemory) -> Any:
    """Converts a tensor to a pointer and a number to a scalar; leaves anything else as it is.

    Raises:
        NotInterpretableError: Triton has no pointers to elements of the tensor's type.
    """
    if isinstance(value, torch.Tensor):
        try:
            pointer = tl.str_to_ty(kind or mangle_type(value), None)
        except (KeyError, ValueError, AttributeError) as error:
            raise NotInterpretableError(f"{name}: Triton has no pointers to {value.dtype}") from error
        region = memory.named(name)
        handle = Handle(numpy.array([region.base], dtype=numpy.uint64), pointer)
        return tl.tensor(with_shadow(handle, Shadow(region.index)), pointer)
    if not isinstance(value, int | float):
        return value
    scalar = tl.str_to_ty(kind or _scalar_type(value), None)
    held = numpy.array([value]).astype(numpy.float32) if is_encoded(scalar) else numpy.array([value])
    data = encode(held, scalar) if is_encoded(scalar) else held.astype(numpy_dtype(scalar))
    return tl.tensor(Handle(data, scalar), scalar)


def _scalar_type(value: int | float) -> str:
    """Triton's type of a Python number."""
    if isinstance(value, bool | float):
        return "i1" if isinstance(value, bool) else "fp32"
    return "i32" if -(2**31) <= value < 2**31 else "i64" if value < 2**63 else "u64"


def _error_text(error: BaseException) -> str:
    """The text of an error, with the line of the kernel that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith((*MACHINERY, "<"))]
    text = str(error) if isinstance(error, NotInterpretableError) else f"{type(error).__name__}: {error}"
    if not own:
        return text
    line = line_of(own[-1].filename, own[-1].lineno or 0)
    return f"{text}\n  {line.file}:{line.line}: {line.text}"
