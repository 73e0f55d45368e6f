"""Values of an interpreted kernel: formats of numbers that numpy lacks; shadow data, which says where each is from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
import torch
import triton.language as tl
from triton.runtime import interpreter as triton_interpreter

Array = numpy.ndarray[Any, Any]

_TORCH = {  # by Triton's name
    "bf16": torch.bfloat16,
    "fp8e5": torch.float8_e5m2,
    "fp8e4nv": torch.float8_e4m3fn,
    "fp8e5b16": torch.float8_e5m2fnuz,
    "fp8e4b8": torch.float8_e4m3fnuz,
}
_OWN = "fp8e4b15"  # torch has no dtype for it: Triton's own conversion serves
_HELD: dict[str, numpy.dtype[Any]] = {}  # Triton's name of a scalar type -> numpy's type
KEY = "aoti_debug.shadow"
ALWAYS = "aoti_debug.always"  # a mask that is true everywhere because the kernel gave none
MAX_LOADS = 4


def is_encoded(dtype: Any) -> bool:
    """True for a Triton type that numpy cannot compute with."""
    return dtype.name in _TORCH or dtype.name == _OWN


def numpy_dtype(dtype: Any) -> numpy.dtype[Any]:
    """The numpy type that holds a Triton scalar, pointer or block type; the bits of what numpy cannot compute with."""
    scalar = dtype.scalar
    held = _HELD.get(scalar.name)
    if held is None:
        held = _HELD[scalar.name] = triton_interpreter._get_np_dtype(scalar)
    return held


def decode(bits: Array, dtype: Any) -> Array:
    """float32 values of the bits of an encoded type; any other type as it is. Exact."""
    if dtype.name in _TORCH:
        held = torch.from_numpy(numpy.array(bits).view(f"int{8 * bits.itemsize}"))
        values: Array = held.view(_TORCH[dtype.name]).float().numpy().reshape(bits.shape)
        return values
    if dtype.name == _OWN:
        halves: Array = triton_interpreter._convert_float(bits, dtype, tl.float16, None)
        return halves.view(numpy.float16).astype(numpy.float32)
    return bits


def encode(values: Array, dtype: Any) -> Array:
    """The bits of float values in an encoded type: nearest, ties to even; 8-bit floats saturate as the GPU's do."""
    values = numpy.ascontiguousarray(values, dtype=numpy.float32)
    if dtype.name == _OWN:
        ties_to_even = triton_interpreter._ir.ROUNDING_MODE.RTNE
        converted: Array = triton_interpreter._convert_float(values, tl.float32, dtype, ties_to_even)
        return converted.astype(numpy.uint8)
    target = _TORCH[dtype.name]
    exact = torch.from_numpy(numpy.array(values))
    if target.itemsize == 1:
        limit = torch.finfo(target).max
        exact = exact.clamp(-limit, limit)
    rounded = exact.to(target)
    bits: Array = rounded.view(torch.int16 if target.itemsize == 2 else torch.int8).numpy()
    return bits.view(f"uint{8 * bits.itemsize}").reshape(values.shape)


def encode_towards_zero(values: Array, dtype: Any) -> Array:
    """The bits of float32 values in bfloat16 or float16, rounded towards zero."""
    values = numpy.ascontiguousarray(values, dtype=numpy.float32)
    if dtype.name == "bf16":
        bits: Array = (values.view(numpy.uint32) >> 16).astype(numpy.uint16)
        return numpy.where(numpy.isnan(values), encode(values, dtype), bits)
    with numpy.errstate(over="ignore"):
        nearest = values.astype(numpy.float16)
    too_far = numpy.abs(nearest.astype(numpy.float32)) > numpy.abs(values)
    return numpy.where(too_far, numpy.nextafter(nearest, numpy.float16(0)), nearest)


def to_integers(values: Array, dtype: numpy.dtype[Any]) -> Array:
    """Floats as integers: towards zero, saturated at 32 or 64 bits, NaN as 0, as a GPU converts; cut to `dtype`."""
    wide = dtype if dtype.itemsize >= 4 else numpy.dtype(numpy.int32)
    limits = numpy.iinfo(wide)
    exact = numpy.trunc(values.astype(numpy.float64))
    below, above = exact < float(limits.min), exact >= float(limits.max)
    plain = numpy.where(below | above | numpy.isnan(exact), 0, exact).astype(wide)
    plain[below], plain[above] = limits.min, limits.max
    return plain.astype(dtype, copy=False)


Combine = Callable[[Array, Array], Array]

_OPERATION = triton_interpreter._ir.ATOMIC_OP
_COMBINE: dict[Any, Combine] = {
    _OPERATION.ADD: numpy.add,
    _OPERATION.FADD: numpy.add,
    _OPERATION.MIN: numpy.minimum,
    _OPERATION.UMIN: numpy.minimum,
    _OPERATION.MAX: numpy.maximum,
    _OPERATION.UMAX: numpy.maximum,
    _OPERATION.AND: numpy.bitwise_and,
    _OPERATION.OR: numpy.bitwise_or,
    _OPERATION.XOR: numpy.bitwise_xor,
    _OPERATION.XCHG: lambda _, value: value,
}
_UNSIGNED = (_OPERATION.UMIN, _OPERATION.UMAX)


def atomic_function(operation: Any, dtype: Any) -> Combine:
    """Returns the function of an atomic operation on elements of a Triton type, as memory holds them."""
    combine = _COMBINE[operation]
    if operation == _OPERATION.XCHG:
        return combine
    if is_encoded(dtype):
        return lambda old, value: encode(combine(decode(old, dtype), decode(value, dtype)), dtype)
    if operation in _UNSIGNED:
        return lambda old, value: _as_unsigned(combine, old, value)
    return combine


def _as_unsigned(combine: Combine, old: Array, value: Array) -> Array:
    unsigned = f"uint{8 * old.itemsize}"
    return combine(old.view(unsigned), value.view(unsigned)).view(old.dtype)


@dataclass(frozen=True, eq=False)
class IndexLoad:
    """Integers that were loaded from memory.

    Attributes:
        region: the argument's position in the table of arguments.
        offsets: int64, of the block's shape: bytes from the argument's data pointer.
        values: what was loaded, of the same shape.
        live: elements whose value is still used; None for all.
    """

    region: int
    offsets: Array
    values: Array
    live: Array | None

    def mapped(self, change: Callable[[Array], Array]) -> IndexLoad:
        """The same values in another shape."""
        live = None if self.live is None else change(self.live)
        return IndexLoad(self.region, change(self.offsets), change(self.values), live)

    def where(self, chosen: Array) -> IndexLoad:
        """The values restricted to some elements."""
        live = chosen if self.live is None else self.live & chosen
        return IndexLoad(self.region, self.offsets, self.values, live)


@dataclass(frozen=True, eq=False)
class Shadow:
    """The shadow data of a block of values.

    Attributes:
        region: the argument that it points to, for pointers to one argument only.
        loads: the integers loaded from memory that it was computed from.
        wrapped: elements at which integer arithmetic overflowed; None for none.
    """

    region: int | None = None
    loads: tuple[IndexLoad, ...] = ()
    wrapped: Array | None = None

    def mapped(self, change: Callable[[Array], Array]) -> Shadow:
        """The shadow of the same values in another shape."""
        wrapped = None if self.wrapped is None else change(self.wrapped)
        return Shadow(self.region, tuple(load.mapped(change) for load in self.loads), wrapped)

    def joined(self, other: Shadow) -> Shadow:
        """The shadow of a value computed from both."""
        region = other.region if self.region is None else self.region
        return Shadow(region, merge_loads(self.loads, other.loads), mask_union(self.wrapped, other.wrapped))

    def stepped(self, offset: Shadow | None) -> Shadow:
        """The shadow of this pointer moved by an integer."""
        if offset is None:
            return self
        return Shadow(self.region, merge_loads(self.loads, offset.loads), mask_union(self.wrapped, offset.wrapped))


def select_shadow(condition: Array, yes: Shadow | None, no: Shadow | None) -> Shadow | None:
    """The shadow of a selection: loads of one side count only where that side was selected."""
    if yes is None and no is None:
        return None
    yes, no = yes or Shadow(), no or Shadow()
    both = [load for load in yes.loads if load in no.loads]
    only_yes = [load.where(condition) for load in yes.loads if load not in both]
    only_no = [load.where(~condition) for load in no.loads if load not in both]
    wrapped = mask_union(
        None if yes.wrapped is None else yes.wrapped & condition,
        None if no.wrapped is None else no.wrapped & ~condition,
    )
    region = yes.region if yes.region == no.region else None
    return Shadow(region, (*both, *only_yes, *only_no)[:MAX_LOADS], wrapped)


def merge_loads(some: tuple[IndexLoad, ...], others: tuple[IndexLoad, ...]) -> tuple[IndexLoad, ...]:
    """The loads of both, at most MAX_LOADS."""
    if not others or some is others:
        return some
    return (some + tuple(load for load in others if load not in some))[:MAX_LOADS]


def mask_union(one: Array | None, other: Array | None) -> Array | None:
    """The union of two masks; None stands for an empty one."""
    if one is None or other is None:
        return one if other is None else other
    return one | other


def shadow_of(handle: Any) -> Shadow | None:
    """The shadow of a handle, if it has one."""
    shadow: Shadow | None = handle.attr.get(KEY)
    return shadow


def with_shadow(handle: Any, shadow: Shadow | None) -> Any:
    """Sets the shadow of a handle and returns the handle."""
    if shadow is not None:
        handle.attr[KEY] = shadow
    return handle


def join_shadows(handle: Any, one: Any, other: Any) -> Any:
    """Sets the shadow of a handle that was computed from two others, and returns the handle."""
    first, second = one.attr.get(KEY), other.attr.get(KEY)
    if first is None and second is None:
        return handle
    handle.attr[KEY] = second if first is None else first if second is None else first.joined(second)
    return handle


def element_at(array: Array, shape: tuple[int, ...], position: int) -> Any:
    """One element, by its row-major position in a block of `shape` that `array` may be broadcast to."""
    if array.shape != shape:
        array = numpy.broadcast_to(array, shape)
    return array[numpy.unravel_index(position, shape)]
