"""Makes `triton.language` and what kernels call beside it run on a builder, for as long as a launch takes.

Differences between versions of Triton are handled here.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy
import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter as triton_interpreter
from triton.runtime.jit import JITFunction

from .interpreter_rewrite import rewrite, rewrite_namespace
from .interpreter_values import Array, numpy_dtype
from .kernel import NotInterpretableError

Call = Callable[..., Any]  # calls a function as the interpreted kernel would

_ALONG_AXIS: dict[str, Any] = {
    "_sum_combine": numpy.add.reduce,
    "_elementwise_max": numpy.fmax.reduce,
    "_elementwise_min": numpy.fmin.reduce,
}
BUILTIN = tl.core.TRITON_BUILTIN
_ABSENT = object()
# Kernels that may overlap wait for the one before them, and let the one after them begin: there is none here.
_NEIGHBOURS = ("gdc_wait", "gdc_launch_dependents")


def block(values: Array, dtype: Any) -> Any:
    """A Triton tensor of the values; a scalar if they have no dimension."""
    scalar = dtype.scalar
    if values.ndim == 0:
        return tl.tensor(triton_interpreter.TensorHandle(values.reshape(1), scalar), scalar)
    return tl.tensor(triton_interpreter.TensorHandle(values, scalar), tl.block_type(scalar, list(values.shape)))


def reduce_blocks(call: Call, inputs: Any, axis: Any, function: Any, *, keep_dims: bool) -> Any:
    """Computes tl.reduce: pairs of neighbours are combined until one is left.

    Sums, maxima and minima of `triton.language` are numpy's: a float sum adds in pairs, not one after another.
    """
    several = isinstance(inputs, tuple | tl.tuple)
    tensors = list(inputs) if several else [inputs]
    arrays = [tensor.handle.data for tensor in tensors]
    dimensions = arrays[0].ndim
    if axis is None:
        arrays = [array.reshape(-1) for array in arrays]
    along = 0 if axis is None else int(axis) % dimensions
    types = [tensor.dtype for tensor in tensors]
    standard = _ALONG_AXIS.get(_standard_combine(function))
    if standard is not None and len(arrays) == 1:
        dtype = numpy_dtype(types[0])
        results = [standard(arrays[0], axis=along, keepdims=True).astype(dtype, copy=False)]
    else:
        results = _tree(call, arrays, types, along, function)
    shaped = [_kept(result, along, axis, dimensions) if keep_dims else result.squeeze(along) for result in results]
    blocks = tuple(block(values, dtype) for values, dtype in zip(shaped, types, strict=True))
    return blocks if several else blocks[0]


def scan_blocks(call: Call, inputs: Any, axis: Any, function: Any, *, reverse: bool) -> Any:
    """Computes tl.associative_scan: each element is combined with what lies 1, 2, 4, … before it."""
    several = isinstance(inputs, tuple | tl.tuple)
    tensors = list(inputs) if several else [inputs]
    along = int(axis) % tensors[0].handle.data.ndim
    types = [tensor.dtype for tensor in tensors]
    arrays = [tensor.handle.data for tensor in tensors]
    if reverse:
        arrays = [numpy.flip(array, along) for array in arrays]
    size, distance = arrays[0].shape[along], 1
    while distance < size:
        # All of the block is combined, because the sizes of blocks are powers of two; the first ones stay as they are.
        earlier = [numpy.roll(array, distance, along) for array in arrays]
        merged = _combine(call, function, earlier, arrays, types)
        first, later = slice(None, distance), slice(distance, None)
        arrays = [
            numpy.concatenate((_part(array, along, first), _part(both, along, later)), axis=along)
            for array, both in zip(arrays, merged, strict=True)
        ]
        distance *= 2
    if reverse:
        arrays = [numpy.ascontiguousarray(numpy.flip(array, along)) for array in arrays]
    blocks = tuple(block(values, dtype) for values, dtype in zip(arrays, types, strict=True))
    return blocks if several else blocks[0]


def _tree(call: Call, arrays: list[Array], types: list[Any], along: int, function: Any) -> list[Array]:
    while arrays[0].shape[along] > 1:
        even = arrays[0].shape[along] // 2 * 2
        firsts = [_part(array, along, slice(0, even, 2)) for array in arrays]
        seconds = [_part(array, along, slice(1, even, 2)) for array in arrays]
        rest = [_part(array, along, slice(even, None)) for array in arrays]
        merged = _combine(call, function, firsts, seconds, types)
        arrays = [numpy.concatenate(pair, axis=along) for pair in zip(merged, rest, strict=True)]
    return arrays


def _combine(call: Call, function: Any, one: list[Array], other: list[Array], types: list[Any]) -> list[Array]:
    operands = [block(values, dtype) for values, dtype in zip([*one, *other], [*types, *types], strict=True)]
    result = call(function, *operands)
    results = result if isinstance(result, tuple | tl.tuple) else (result,)
    shape = one[0].shape
    return [
        numpy.broadcast_to(value.handle.data, shape).astype(numpy_dtype(dtype), copy=False)
        for value, dtype in zip(results, types, strict=True)
    ]


def _part(array: Array, along: int, part: slice) -> Array:
    return array[(slice(None),) * along + (part,)]


def _kept(result: Array, along: int, axis: Any, dimensions: int) -> Array:
    return result.reshape((1,) * dimensions) if axis is None else result


def _standard_combine(function: Any) -> str:
    """The name of one of Triton's own combine functions, "" for any other."""
    python = getattr(function, "fn", function)
    return python.__name__ if getattr(python, "__module__", "") == "triton.language.standard" else ""


def python_function(function: Any) -> FunctionType:
    """The Python function under `triton.jit`, `triton.autotune` and the like."""
    while not isinstance(function, FunctionType):
        function = function.fn
    return function


class Language:
    """Kernels and their helpers as Python functions that compute on a builder."""

    def __init__(self, builder: Any) -> None:
        self.semantic = TritonSemantic(builder)
        self._functions: dict[FunctionType, Callable[..., Any]] = {}
        self._replaced: dict[int, Any] = {}  # by the id of what a kernel may have imported by name
        self._changes: list[tuple[Any, str, Any]] = []

    def function(self, function: Any) -> Callable[..., Any]:
        """A jit function as it runs here."""
        python = python_function(function)
        if python not in self._functions:
            self._functions[python] = self._rewritten(python)
        return self._functions[python]

    def call(self, function: Any, *arguments: Any, **named: Any) -> Any:
        """Calls a jit function."""
        return self.function(function)(*arguments, **named)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """A context in which the modules of Triton run on the builder."""
        try:
            self._install()
            yield
        finally:
            for owner, name, value in reversed(self._changes):
                if value is _ABSENT:
                    delattr(owner, name)
                else:
                    setattr(owner, name, value)
            self._changes.clear()

    def set_attr(self, owner: Any, name: str, value: Any) -> None:
        """Replaces an attribute until the context ends; Triton's own patches call this method, too."""
        self._changes.append((owner, name, vars(owner).get(name, _ABSENT)))
        setattr(owner, name, value)

    def _install(self) -> None:
        cuda = importlib.import_module("triton.language.extra.cuda.libdevice")
        extras = (importlib.import_module("triton.language.extra.cuda"), tl.extra.cuda)  # two modules of one file
        for owner, name in itertools.product(extras, _NEIGHBOURS):
            if hasattr(owner, name):
                self._replaced[id(getattr(owner, name))] = _nothing
                self.set_attr(owner, name, _nothing)
        for owner in (tl.core, tl, tl.math, *extras, cuda):
            self._bind(owner)
        for owner in (tl.core.tensor, getattr(tl.core, "tensor_descriptor_base", None)):
            if owner is not None:
                self._bind(owner)
        for module in (tl.core, tl):
            triton_interpreter._patch_lang_core(module, self)
        triton_interpreter._patch_lang_tensor(tl.core.tensor, self)
        self.set_attr(tl.core.tensor, "__index__", lambda tensor: int(tensor.handle.data.item()))
        if hasattr(tl, "condition"):
            self.set_attr(tl.condition, "__bool__", lambda condition: bool(condition.condition))
        for module in (tl.core, tl):
            self.set_attr(module, "reduce", self._reduce)
            self.set_attr(module, "associative_scan", self._scan)
        self._install_libdevice(cuda)
        if any(module.load not in self._replaced.values() for module in (tl, tl.core)):
            raise NotInterpretableError(f"triton.language.load is {tl.load}, not Triton's own")
        for name, member in list(vars(tl.core.tensor).items()):
            if isinstance(member, JITFunction):
                self.set_attr(tl.core.tensor, name, self._method(member))
        for kind in (JITFunction, triton_interpreter.InterpretedFunction):
            self.set_attr(kind, "__call__", lambda function, *given, **named: self.call(function, *given, **named))

    def _method(self, function: Any) -> Callable[..., Any]:
        """A jit function as a method of tensors."""

        def method(tensor: Any, *arguments: Any, **named: Any) -> Any:
            return self.call(function, tensor, *arguments, **named)

        return method

    def _bind(self, owner: Any) -> None:
        """Binds every built-in function of a module or class to the builder's semantics, as the compiler does."""
        for name, member in inspect.getmembers(owner, inspect.isfunction):
            builtin = _under_tritons_patch(member)
            if getattr(builtin, BUILTIN, False) is True:
                if id(builtin) not in self._replaced:
                    self._replaced[id(builtin)] = self._bound(builtin)
                self._replaced[id(member)] = self._replaced[id(builtin)]
                self.set_attr(owner, name, self._replaced[id(builtin)])

    def _bound(self, member: Any) -> Callable[..., Any]:
        def bound(*arguments: Any, **named: Any) -> Any:
            named["_semantic"] = self.semantic
            return member(*arguments, **named)

        return bound

    def _foreign(self, member: Any) -> Callable[..., Any]:
        """A built-in function that is not Triton's: it is given constants as the compiler gives them."""

        def constant(value: Any) -> Any:
            return tl.constexpr(value) if value is None or isinstance(value, bool | int | float | str) else value

        def bound(*arguments: Any, **named: Any) -> Any:
            given = {name: constant(value) for name, value in named.items() if name != "_semantic"}
            return member(*map(constant, arguments), **given, _semantic=self.semantic)

        return bound

    def _install_libdevice(self, cuda: ModuleType) -> None:
        """`triton.language.extra.libdevice` only declares; the compiler takes the target's functions of those names."""
        declared = importlib.import_module("triton.language.extra.libdevice")
        for name, stub in list(vars(declared).items()):
            if isinstance(stub, FunctionType) and stub.__module__ == declared.__name__:
                self._replaced[id(stub)] = getattr(cuda, name, None) or _missing(name)
                self.set_attr(declared, name, self._replaced[id(stub)])

    def _reduce(self, input: Any, axis: Any, combine_fn: Any, keep_dims: Any = None, **_: Any) -> Any:
        return reduce_blocks(self.call, input, axis, combine_fn, keep_dims=bool(keep_dims))

    def _scan(self, input: Any, axis: Any, combine_fn: Any, reverse: Any = None, **_: Any) -> Any:
        return scan_blocks(self.call, input, axis, combine_fn, reverse=bool(reverse))

    def _rewritten(self, python: FunctionType) -> Callable[..., Any]:
        namespace = self._namespace(python)
        exec(rewrite(python), namespace)
        function: Callable[..., Any] = namespace[python.__name__]
        return function

    def _namespace(self, python: FunctionType) -> dict[str, Any]:
        known = {**rewrite_namespace(self.semantic), **python.__globals__, **inspect.getclosurevars(python).nonlocals}
        for value in known.values():
            if isinstance(value, ModuleType | SimpleNamespace):
                self._bind_foreign(value)
        return {name: self._substitute(value) for name, value in known.items()}

    def _substitute(self, value: Any) -> Any:
        if id(value) in self._replaced:
            return self._replaced[id(value)]
        if isinstance(value, tl.constexpr):
            return value.value  # constants are plain values here, those of parameters too
        return self._foreign(value) if isinstance(value, FunctionType) and hasattr(value, BUILTIN) else value

    def _bind_foreign(self, owner: ModuleType | SimpleNamespace) -> None:
        for name, member in list(vars(owner).items()):
            if isinstance(member, FunctionType):
                substitute = self._substitute(member)
                if substitute is not member:
                    self.set_attr(owner, name, substitute)


def _under_tritons_patch(member: Any) -> Any:
    """The built-in function that Triton's own interpreter has replaced: it may leave its replacements behind."""
    if getattr(member, "__module__", "") != triton_interpreter.__name__:
        return member
    return (getattr(member, "__kwdefaults__", None) or {}).get("member", member)


def _nothing() -> None:
    pass


def _missing(name: str) -> Callable[..., Any]:
    def missing(*_: Any, **__: Any) -> Any:
        raise NotInterpretableError(f"the libdevice function {name} is not known")

    return missing
