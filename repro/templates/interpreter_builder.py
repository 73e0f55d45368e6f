"""Triton's interpreter with every access checked: computes a kernel's operations, block by block."""

from __future__ import annotations

from typing import Any

import numpy
import triton.language as tl
from triton.runtime import interpreter as triton_interpreter

from .accesses import Access, LoadedIndex
from .interpreter_libdevice import asm_function, fused, library_function
from .interpreter_memory import AccessCollector, CheckedMemory, OutOfBounds, current_line
from .interpreter_values import (
    ALWAYS,
    KEY,
    Array,
    IndexLoad,
    Shadow,
    atomic_function,
    decode,
    element_at,
    encode,
    encode_towards_zero,
    is_encoded,
    join_shadows,
    mask_union,
    numpy_dtype,
    select_shadow,
    shadow_of,
    to_integers,
    with_shadow,
)
from .kernel import NotInterpretableError

Handle = triton_interpreter.TensorHandle
WRAPPING = (numpy.add, numpy.subtract, numpy.multiply)
BOOLEAN_ARITHMETIC = (*WRAPPING, numpy.fmod)
WAITS = 1000  # this many atomics in a row that leave one address unchanged are a wait for another program


class CheckedBuilder(triton_interpreter.InterpreterBuilder):  # type: ignore[misc]
    """Replaces the compiler's builder: the operations of `triton.language` call its `create_…` methods.

    A program that waits for another one (a barrier across the grid) cannot be run: programs run one after another.
    """

    def __init__(self, memory: CheckedMemory, report: AccessCollector) -> None:
        super().__init__()
        # Device assertions are on. Triton's own check of overflow is off: it costs more than the operation, and stops.
        self.options = triton_interpreter.InterpreterOptions(debug=True, sanitize_overflow=False)
        self.memory = memory
        self.report = report
        self._waits, self._waits_for = 0, 0

    def start(self, program: tuple[int, int, int]) -> None:
        """Begins a program of the grid."""
        self.set_grid_idx(*program)
        self._waits = 0

    # Shadows follow values through shapes, casts and arithmetic.

    def create_splat(self, ret_ty: Any, arg: Any) -> Any:
        handle = Handle(
            numpy.full(ret_ty.shape, arg.data.reshape(-1)[0], dtype=numpy_dtype(arg.dtype)), arg.dtype.scalar
        )
        if ALWAYS in arg.attr:
            handle.attr[ALWAYS] = True
        shadow = shadow_of(arg)
        shape = tuple(ret_ty.shape)
        return with_shadow(handle, shadow and shadow.mapped(lambda a: numpy.broadcast_to(a.reshape(-1)[:1], shape)))

    def create_broadcast(self, arg: Any, shape: Any) -> Any:
        return self._reshaped(super().create_broadcast(arg, shape), arg, lambda a: numpy.broadcast_to(a, shape))

    def create_expand_dims(self, arg: Any, axis: int) -> Any:
        return self._reshaped(super().create_expand_dims(arg, axis), arg, lambda a: numpy.expand_dims(a, axis))

    def create_reshape(self, arg: Any, shape: Any, allow_reorder: Any) -> Any:
        result = super().create_reshape(arg, shape, allow_reorder)
        return self._reshaped(result, arg, lambda a: a.reshape(shape))

    def create_trans(self, arg: Any, perm: Any) -> Any:
        return self._reshaped(super().create_trans(arg, perm), arg, lambda a: numpy.transpose(a, perm))

    def create_unsplat(self, arg: Any) -> Any:
        return self._reshaped(super().create_unsplat(arg), arg, lambda a: a.reshape(-1)[:1])

    def _reshaped(self, result: Any, arg: Any, change: Any) -> Any:
        if ALWAYS in arg.attr:
            result.attr[ALWAYS] = True
        shadow = shadow_of(arg)
        return with_shadow(result, shadow and shadow.mapped(change))

    def create_bitcast(self, src: Any, dst_type: Any) -> Any:
        return with_shadow(super().create_bitcast(src, dst_type), shadow_of(src))

    create_int_to_ptr = create_bitcast
    create_ptr_to_int = create_bitcast

    def create_addptr(self, ptr: Any, offset: Any) -> Any:
        result = super().create_addptr(ptr, offset)
        shadow = shadow_of(ptr)
        return with_shadow(result, shadow and shadow.stepped(shadow_of(offset)))

    # Casts

    def cast_impl(self, src: Any, dst_type: Any) -> Any:
        source, target = src.dtype.scalar, dst_type.scalar
        values = decode(src.data, source)
        if is_encoded(target):
            return Handle(encode(values, target), target)
        dtype = numpy_dtype(target)
        if values.dtype.kind == "f" and dtype.kind in "iu":
            return Handle(to_integers(values, dtype), target)
        result = Handle(values.astype(dtype), target)
        shadow = shadow_of(src)
        if dtype.kind == "i" and values.dtype.kind in "iu" and dtype.itemsize < values.itemsize:
            shadow = _wrapped(shadow, result.data != values)
        return with_shadow(result, shadow)

    def create_fp_to_fp(self, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        target = dst_type.scalar
        towards_zero = rounding_mode == triton_interpreter._ir.ROUNDING_MODE.RTZ
        if towards_zero and target in (tl.bfloat16, tl.float16):
            return Handle(encode_towards_zero(decode(src.data, src.dtype.scalar), target), target)
        return self.cast_impl(src, dst_type)

    # Arithmetic

    def binary_op(self, lhs: Any, rhs: Any, op: Any) -> Any:
        dtype = lhs.dtype.scalar
        left, right = lhs.data, rhs.data
        if is_encoded(dtype):
            output = op(decode(left, dtype), decode(right, dtype))
            return Handle(output, tl.int1) if output.dtype == bool else Handle(encode(output, dtype), dtype)
        if left.dtype == bool and right.dtype == bool and op in BOOLEAN_ARITHMETIC:
            return Handle((op(left.astype(numpy.int8), right.astype(numpy.int8)) & 1).astype(bool), tl.int1)
        output = op(left, right)
        if output.dtype == bool:
            return Handle(output, tl.int1)
        result_dtype = numpy_dtype(dtype)
        if output.dtype != result_dtype:
            output = output.astype(result_dtype)
        result = Handle(output, dtype)
        if result_dtype.kind in "iu":
            join_shadows(result, lhs, rhs)
            if result_dtype.kind == "i" and result_dtype.itemsize == 4 and op in WRAPPING:
                overflow = _overflowed(op, left, right, output)
                if overflow is not None:
                    with_shadow(result, _wrapped(shadow_of(result), overflow))
        return result

    def create_minnumf(self, lhs: Any, rhs: Any) -> Any:
        return self.binary_op(lhs, rhs, numpy.fmin)

    def create_maxnumf(self, lhs: Any, rhs: Any) -> Any:
        return self.binary_op(lhs, rhs, numpy.fmax)

    def create_idiv(self, lhs: Any, rhs: Any) -> Any:
        return join_shadows(super().create_idiv(lhs, rhs), lhs, rhs)

    def create_ashr(self, lhs: Any, rhs: Any) -> Any:
        signed = triton_interpreter._get_signed_np_dtype(lhs.data.dtype)
        output = numpy.right_shift(lhs.data.astype(signed), rhs.data.astype(signed)).astype(lhs.data.dtype)
        return join_shadows(Handle(output, lhs.dtype.scalar), lhs, rhs)

    def create_select(self, cond: Any, lhs: Any, rhs: Any) -> Any:
        dtype = lhs.dtype.scalar
        values = numpy.where(cond.data, lhs.data, rhs.data).astype(numpy_dtype(dtype), copy=False)
        result = Handle(values, dtype)
        return with_shadow(result, select_shadow(cond.data, shadow_of(lhs), shadow_of(rhs)))

    def create_fma(self, x: Any, y: Any, z: Any) -> Any:
        dtype = z.dtype.scalar
        return self._result(fused(*(decode(operand.data, dtype) for operand in (x, y, z))), dtype)

    def create_clampf(self, arg: Any, lo: Any, hi: Any, propagate_nans: Any) -> Any:
        dtype = arg.dtype.scalar
        values, low, high = (decode(operand.data, dtype) for operand in (arg, lo, hi))
        if propagate_nans == triton_interpreter._ir.PROPAGATE_NAN.NONE:
            return self._result(numpy.fmin(numpy.fmax(values, low), high), dtype)
        return self._result(numpy.clip(values, low, high), dtype)

    def unary_op(self, arg: Any, op: Any) -> Any:
        dtype = arg.dtype.scalar
        return self._result(op(decode(arg.data, dtype)), dtype)

    def create_erf(self, arg: Any) -> Any:
        return self.unary_op(arg, library_function("__nv_erf"))

    def create_rsqrt(self, arg: Any) -> Any:
        return self.unary_op(arg, lambda x: 1 / numpy.sqrt(x))

    def create_dot(self, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
        """Products and sums in the accumulator's type; tf32 is not rounded to."""
        left, right = decode(a.data, a.dtype.scalar), decode(b.data, b.dtype.scalar)
        return Handle(numpy.matmul(left, right, dtype=d.data.dtype) + d.data, d.dtype.scalar)

    def create_extern_elementwise(
        self, library: str, path: str, symbol: str, arguments: Any, return_type: Any, is_pure: Any
    ) -> Any:
        result = library_function(symbol)(*(argument.data for argument in arguments))
        return Handle(result.astype(numpy_dtype(return_type.scalar), copy=False), return_type.scalar)

    def create_inline_asm(self, asm: str, constraints: str, values: Any, types: Any, is_pure: Any, pack: int) -> Any:
        if asm.startswith("griddepcontrol."):  # launches do not overlap here
            return _AsmResult(Handle(numpy.zeros(1, dtype=numpy.int32), tl.int32))
        if pack != 1 or len(types) != 1:
            raise NotInterpretableError(f"inline assembly of several elements or results: {asm}")
        result = asm_function(asm)(*(value.data for value in values))
        return _AsmResult(Handle(result.astype(numpy_dtype(types[0].scalar), copy=False), types[0].scalar))

    def create_grid_dependency_wait(self) -> None:
        """Nothing: launches do not overlap here."""

    create_grid_dependency_launch_dependents = create_grid_dependency_wait

    def _result(self, values: Array, dtype: Any) -> Any:
        if is_encoded(dtype):
            return Handle(encode(values, dtype), dtype)
        return Handle(values.astype(numpy_dtype(dtype), copy=False), dtype)

    # Memory

    def get_int1(self, value: Any) -> Any:
        handle = super().get_int1(value)
        if value:
            handle.attr[ALWAYS] = True
        return handle

    def create_load(self, ptr: Any, *policy: Any) -> Any:
        return self.create_masked_load(ptr, None, None)

    def create_store(self, ptr: Any, val: Any, *policy: Any) -> None:
        self.create_masked_store(ptr, val, None)

    def create_masked_load(self, ptrs: Any, mask: Any, other: Any, *policy: Any, **more: Any) -> Any:
        dtype = ptrs.get_element_ty()
        shadow = shadow_of(ptrs)
        region = None if shadow is None else shadow.region
        lanes = _lanes(mask)
        values, offsets, outside = self.memory.load(ptrs.data, region, lanes, numpy_dtype(dtype))
        for out_of_bounds in outside:
            self._outside("load", ptrs, out_of_bounds, mask, shadow)
        if other is not None and lanes is not None:
            values = numpy.where(lanes, values, other.data)
        result = Handle(values, dtype)
        if offsets is not None and region is not None and values.dtype.kind in "iu" and not is_encoded(dtype):
            result.attr[KEY] = Shadow(None, (IndexLoad(region, offsets, values, lanes),))
        return result

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, *policy: Any) -> None:
        shadow = shadow_of(ptrs)
        self._waits = 0
        dtype = numpy_dtype(ptrs.get_element_ty())
        values = value.data.astype(dtype, copy=False)
        region = None if shadow is None else shadow.region
        for out_of_bounds in self.memory.store(ptrs.data, region, _lanes(mask), values):
            self._outside("store", ptrs, out_of_bounds, mask, shadow)

    def create_atomic_rmw(self, operation: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
        combine = atomic_function(operation, val.dtype.scalar)
        flat = numpy.broadcast_to(val.data, ptr.data.shape).reshape(-1)
        return self._updated(ptr, val, mask, lambda old, positions: combine(old, flat[positions]))

    def create_atomic_cas(self, ptr: Any, cmp: Any, val: Any, sem: Any, scope: Any) -> Any:
        expected = numpy.broadcast_to(cmp.data, ptr.data.shape).reshape(-1)
        desired = numpy.broadcast_to(val.data, ptr.data.shape).reshape(-1)

        def swap(old: Array, positions: Array) -> Array:
            return numpy.where(old == expected[positions], desired[positions], old)

        return self._updated(ptr, val, None, swap)

    def _updated(self, ptr: Any, val: Any, mask: Any, change: Any) -> Any:
        shadow = shadow_of(ptr)
        changed = False

        def watched(old: Array, positions: Array) -> Array:
            nonlocal changed
            new: Array = change(old, positions)
            changed = changed or bool((new != old).any())
            return new

        region = None if shadow is None else shadow.region
        before, outside = self.memory.update(ptr.data, region, _lanes(mask), val.data, watched)
        for out_of_bounds in outside:
            self._outside("atomic", ptr, out_of_bounds, mask, shadow)
        again = not changed and ptr.data.size == 1 and ptr.data.item() == self._waits_for
        self._waits, self._waits_for = (self._waits + 1 if again else 0), int(ptr.data.flat[0])
        if self._waits > WAITS:
            raise NotInterpretableError("it waits for another program; the interpreter runs programs one after another")
        return Handle(before, val.dtype.scalar)

    def _outside(self, what: str, ptrs: Any, out_of_bounds: OutOfBounds, mask: Any, shadow: Shadow | None) -> None:
        line = current_line()
        owner = out_of_bounds.region
        argument = "" if owner is None else owner.name
        if self.report.counted(what, line, argument, out_of_bounds.positions.size):
            return
        shape = ptrs.data.shape
        position, offset = int(out_of_bounds.positions[0]), int(out_of_bounds.offsets[0])
        element = None if owner is None else offset // owner.itemsize
        shadow = shadow or Shadow()
        self.report.add(
            Access(
                "bounds",
                what,
                argument=argument,
                element=element,
                elements=0 if owner is None else owner.elements,
                beyond=0 if owner is None or element is None else owner.beyond(element),
                bytes=out_of_bounds.width,
                address=offset % (1 << 64) if owner is None else None,
                source=line,
                in_storage=owner is not None and owner.in_storage(offset, out_of_bounds.width),
                program=self.grid_idx,
                position=tuple(int(i) for i in numpy.unravel_index(position, shape)),
                mask="none" if _lanes(mask) is None else "true",
                count=int(out_of_bounds.positions.size),
                index=self._index(shadow, shape, position),
                wrapped=shadow.wrapped is not None and bool(element_at(shadow.wrapped, shape, position)),
            )
        )

    def _index(self, shadow: Shadow, shape: tuple[int, ...], position: int) -> LoadedIndex | None:
        """The load with the largest value among those that an address was computed from: the likeliest culprit."""
        live = [load for load in shadow.loads if load.live is None or element_at(load.live, shape, position)]
        indices = []
        for load in live:
            owner = self.memory.regions[load.region]
            element = int(element_at(load.offsets, shape, position)) // owner.itemsize
            indices.append(LoadedIndex(owner.name, element, int(element_at(load.values, shape, position))))
        return max(indices, key=lambda index: abs(index.value), default=None)

    # Assertions

    def create_assert(self, condition: Any, message: str) -> None:
        failed = numpy.flatnonzero(~condition.data.astype(bool))
        if failed.size == 0:
            return
        line = current_line()
        position = tuple(int(i) for i in numpy.unravel_index(failed[0], condition.data.shape))
        shape, known = condition.data.shape, shadow_of(condition) or Shadow()
        self.report.failed(
            Access(
                "assertion",
                "assertion",
                str(message) or "tl.assume",
                source=line,
                program=self.grid_idx,
                position=position,
                count=int(failed.size),
                index=self._index(known, shape, int(failed[0])),
            )
        )

    def create_assume(self, condition: Any) -> None:
        self.create_assert(condition, "")


class _AsmResult:
    def __init__(self, handle: Any) -> None:
        self.handle = handle

    def get_result(self, index: int) -> Any:
        return self.handle


def _lanes(mask: Any) -> Array | None:
    """bool, of the block's shape; None if every element is accessed. Block pointers give a bare array."""
    if mask is None or (not isinstance(mask, numpy.ndarray) and ALWAYS in mask.attr):
        return None
    lanes: Array = mask if isinstance(mask, numpy.ndarray) else mask.data
    return lanes.astype(bool, copy=False)


def _overflowed(op: Any, left: Array, right: Array, output: Array) -> Array | None:
    """Elements at which int32 arithmetic overflowed; None if there are none."""
    passed = op(left, right, dtype=numpy.int64) != output
    return passed if passed.any() else None


def _wrapped(shadow: Shadow | None, passed: Array) -> Shadow | None:
    if not passed.any():
        return shadow
    shadow = shadow or Shadow()
    return Shadow(shadow.region, shadow.loads, mask_union(shadow.wrapped, passed))
