"""tl.reduce and tl.associative_scan on whole blocks: the kernel's own combine function is called on halves of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import triton.language as tl
from triton.runtime import interpreter as triton_interpreter

from .interpreter_formats import Array, numpy_dtype

Call = Callable[..., Any]  # calls a function as the interpreted kernel would

_ALONG_AXIS: dict[str, Any] = {
    "_sum_combine": numpy.add.reduce,
    "_elementwise_max": numpy.fmax.reduce,
    "_elementwise_min": numpy.fmin.reduce,
}


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
