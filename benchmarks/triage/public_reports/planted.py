"""Faults of torch that the version at hand does not have (any more).

`--import benchmarks.triage.public_reports.planted` plants one.

AOTI_PUBLIC_REPORT names one; each replaces a part of torch in the process that imports this module.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from benchmarks.triage.public_reports import planted_layers as layers

VARIABLE = "AOTI_PUBLIC_REPORT"
Plant = Callable[[], None]
Function = Callable[..., Any]


def _aten(name: str) -> Any:
    """An operator: "mul.Tensor"."""
    import torch

    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _lowered(name: str) -> Function:
    from torch._inductor.lowering import lowerings

    function: Function = lowerings[_aten(name)]
    return function


def _lowering(name: str, wrong: Callable[[Function], Function]) -> Plant:
    """Replaces a lowering by what `wrong` makes of the right one."""

    def plant() -> None:
        from torch._inductor.lowering import lowerings

        lowerings[_aten(name)] = wrong(lowerings[_aten(name)])

    return plant


def _decomposition(name: str, wrong: Function) -> Plant:
    def plant() -> None:
        from torch._inductor.decomposition import decompositions

        decompositions[_aten(name)] = wrong

    return plant


def _zero_for_small(right: Function) -> Function:
    """A function that is 0 where it should be its small argument."""

    def wrong(x: Any) -> Any:
        import torch
        from torch._inductor.lowering import make_pointwise
        from torch._inductor.virtualized import ops

        def least(a: Any, b: Any) -> Any:
            zero, limit = ops.constant(0.0, torch.float32), ops.constant(1e-6, torch.float32)
            return ops.where(ops.lt(ops.abs(a), limit), zero, b)

        return make_pointwise(least)(x, right(x))

    return wrong


def _one_too_far(right: Function) -> Function:
    return lambda *args, **keywords: _lowered("add.Tensor")(right(*args, **keywords), 1)


def _without_nan(right: Function) -> Function:
    def wrong(x: Any, *args: Any, **keywords: Any) -> Any:
        from torch._inductor.lowering import make_pointwise
        from torch._inductor.virtualized import ops

        number = make_pointwise(lambda a: ops.where(ops.eq(a, a), a, ops.constant(-1e30, x.get_dtype())))(x)
        return right(number, *args, **keywords)

    return wrong


def _accumulating(right: Function) -> Function:
    return lambda x, indices, values, accumulate=False: right(x, indices, values, accumulate=True)


def _uncorrected(right: Function) -> Function:
    return lambda x, dim=None, *, correction=None, keepdim=False: right(x, dim, correction=0, keepdim=keepdim)


def _of_square(right: Function) -> Function:
    return lambda x: right(_lowered("mul.Tensor")(x, x))


def _lowest_bits(right: Function) -> Function:
    return lambda x, by: right(x, _lowered("bitwise_and.Tensor")(by, 63))


def _raising(error: type[Exception], text: str) -> Callable[[Function], Function]:
    def wrong(_: Function) -> Function:
        def lowering(*args: Any, **keywords: Any) -> Any:
            raise error(text)

        return lowering

    return wrong


def _crashing(_: Function) -> Function:
    return lambda *args, **keywords: os.kill(os.getpid(), signal.SIGSEGV)


def _last_of_equal_rows(x: Any, dim: int, index: Any, source: Any, *, alpha: float = 1) -> Any:
    """index_add that keeps what is added last to a row."""
    where = [None] * (dim % x.dim()) + [index]
    return _aten("index_put")(x, where, _aten("index.Tensor")(x, where) + alpha * source)


def _truncating(right: Function) -> Function:
    """Floor division as C++ divides integers."""
    return lambda a, b, rounding_mode=None: right(a, b, rounding_mode="trunc" if rounding_mode else None)


def _one_of_two(_: Function) -> Function:
    def wrong(x: Any, y: Any) -> Any:
        from torch._inductor.lowering import make_pointwise
        from torch._inductor.virtualized import ops

        return make_pointwise(lambda a, b: ops.where(ops.gt(a, b), a, b))(x, y)

    return wrong


def _halves_up(_: Function) -> Function:
    return lambda x: _lowered("floor")(_lowered("add.Tensor")(x, 0.5))


def _of_32_bits(right: Function) -> Function:
    """A product whose lower 32 bits alone are kept."""

    def wrong(x: Any, y: Any) -> Any:
        import torch
        from torch._inductor.lowering import to_dtype

        product = right(x, y)
        is_wide = hasattr(product, "get_dtype") and product.get_dtype() == torch.int64
        return to_dtype(to_dtype(product, torch.int32), torch.int64) if is_wide else product

    return wrong


def _exclusive(right: Function) -> Function:
    return lambda x, *args, **keywords: _lowered("sub.Tensor")(right(x, *args, **keywords), x)


def _saturating(right: Function) -> Function:
    def wrong(x: Any, dtype: Any) -> Any:
        import torch

        is_byte = dtype == torch.uint8 and x.get_dtype() == torch.int32
        return right(_lowered("clamp_max")(_lowered("clamp_min")(x, 0), 255) if is_byte else x, dtype)

    return wrong


def _whole_windows(right: Function) -> Function:
    """A mean over windows that divides each by the size of a whole one."""

    def wrong(x: Any, size: Any, *args: Any, **keywords: Any) -> Any:
        return right(x, size, *args, **{**keywords, "divisor_override": size[0] * size[-1]})

    return wrong


def _without_factor(x: Any, dim: int, index: Any, source: Any, *, alpha: float = 1) -> Any:
    where = [None] * (dim % x.dim()) + [index]
    return _aten("index_put")(x, where, source, accumulate=True)


def _other_order(x: Any, dim: int = -1, *descending: bool) -> Any:
    """Sorts so that the later of equal elements comes first."""
    values, order = _aten("sort.stable")(x.flip(dim), stable=True, dim=dim, descending=any(descending))
    return values, x.shape[dim] - 1 - order


def _angle_of_numbers(x: Any) -> Any:
    """The angle of real numbers, and 0 of NaN."""
    import torch

    return torch.where(x < 0, torch.full_like(x, torch.pi), torch.zeros_like(x))


def _multiplying_relu(_: Function) -> Function:
    def wrong(x: Any) -> Any:
        from torch._inductor.lowering import to_dtype

        is_positive = to_dtype(_lowered("gt.Scalar")(x, 0), x.get_dtype())
        return _lowered("mul.Tensor")(x, is_positive)

    return wrong


def _comparing_copysign(x: Any, sign: Any) -> Any:
    return x.abs() if sign >= 0 else -x.abs()


def _next_columns(right: Function) -> Function:
    def wrong(x: Any, part: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
        return right(x, part, dim, start + 1, end + 1, step)

    return wrong


def _prims_lowering(name: str, wrong: Callable[[Function], Function]) -> Plant:
    def plant() -> None:
        import torch
        from torch._inductor.lowering import lowerings

        operator = getattr(torch.ops.prims, name).default
        lowerings[operator] = wrong(lowerings[operator])

    return plant


def _forgotten_state() -> None:
    """Leaves out the update of a buffer."""
    import torch._inductor.config

    def edit(graph: Any) -> None:
        for node in list(graph.nodes):
            if node.target is _aten("copy_") and not node.users:
                graph.erase_node(node)

    torch._inductor.config.post_grad_custom_post_pass = edit


def _passes_over(target: Function, edit_node: Callable[[Any], None]) -> Plant:
    """A pass that edits each node of the post-grad graph that calls a target."""

    def plant() -> None:
        import torch._inductor.config

        def edit(graph: Any) -> None:
            for node in list(graph.nodes):
                if node.target is target():
                    edit_node(node)

        torch._inductor.config.post_grad_custom_post_pass = edit

    return plant


def _conjugates_lost(node: Any) -> None:
    node.replace_all_uses_with(node.args[0])


def _not_causal(node: Any) -> None:
    node.args = tuple(False if argument is True else argument for argument in node.args)


def _last_of_equal(right: Function) -> Function:
    """The place of the last maximum."""

    def wrong(x: Any, dim: int) -> Any:
        from torch._inductor.lowering import rev

        from_the_end = right(rev(x, [dim]), dim)
        return _lowered("sub.Tensor")(int(x.get_size()[dim]) - 1, from_the_end)

    return wrong


def _without_clamp(_: Function) -> Function:
    def wrong(x: Any, scale: float, zero_point: int, least: int, most: int, dtype: Any) -> Any:
        import torch
        from torch._inductor.lowering import to_dtype

        whole = _lowered("add.Tensor")(_lowered("round")(_lowered("mul.Tensor")(x, 1 / scale)), zero_point)
        return to_dtype(to_dtype(whole, torch.int32), dtype)

    return wrong


def _lost_clamp(x: Any, least: Any = None, most: Any = None) -> Any:
    import torch

    return torch.where(x > least, torch.where(x < most, x, most), least)


def _lowered_operator(operator: Function, wrong: Callable[[Function], Function]) -> Plant:
    def plant() -> None:
        from torch._inductor.lowering import lowerings

        lowerings[operator()] = wrong(lowerings[operator()])

    return plant


def _quantize() -> Any:
    import torch
    import torch.ao.quantization.fx._decomposed

    return torch.ops.quantized_decomposed.quantize_per_tensor.default


def _cosines() -> None:
    """Takes each sine for a cosine."""
    import torch._inductor.config

    def edit(graph: Any) -> None:
        for node in graph.nodes:
            if node.target is _aten("sin"):
                node.target = _aten("cos")

    torch._inductor.config.post_grad_custom_post_pass = edit


def _undeclared() -> None:
    """Generates C++ that uses a name which nothing declares."""
    from torch._inductor.codegen import cpp

    for overrides in (cpp.CppOverrides, cpp.CppVecOverrides):
        overrides.cos = staticmethod(lambda x: f"({x} + tmp_of_another_scope)")


def _no_such_conversion() -> None:
    """Generates C++ that passes a vector for a mask."""
    from torch._inductor.codegen import cpp

    overrides = cpp.CppVecOverrides
    overrides.floor = staticmethod(lambda x: f"at::vec::VecMask<int64_t, 2>({x}).floor_of_mask()")


PLANTS: dict[str, Plant] = {
    "small tanh is 0": _lowering("tanh", _zero_for_small),
    "argmin is one too far": _lowering("argmin", _one_too_far),
    "argmax leaves out NaN": _lowering("argmax", _without_nan),
    "index_put accumulates": _lowering("index_put_", _accumulating),
    "index_add keeps the last": _decomposition("index_add", _last_of_equal_rows),
    "var without correction": _lowering("var.correction", _uncorrected),
    "shifts by the lowest bits": _lowering("bitwise_left_shift.Tensor", _lowest_bits),
    "reciprocal of the square": _lowering("reciprocal", _of_square),
    "floor_divide truncates": _lowering("div.Tensor_mode", _truncating),
    "maximum leaves out NaN": _lowering("maximum", _one_of_two),
    "halves go up": _lowering("round", _halves_up),
    "products of 32 bits": _lowering("mul.Tensor", _of_32_bits),
    "cumsum begins at 0": _lowering("cumsum", _exclusive),
    "bytes saturate": _prims_lowering("convert_element_type", _saturating),
    "asinh by its formula": _decomposition("asinh", lambda x: (x + (x * x + 1).sqrt()).log()),
    "acosh by its formula": _decomposition("acosh", lambda x: (x + (x * x - 1).sqrt()).log()),
    "sinh by exponentials": _decomposition("sinh", lambda x: (x.exp() - (-x).exp()) * 0.5),
    "index_add forgets its factor": _decomposition("index_add", _without_factor),
    "equal numbers in the other order": _decomposition("sort", _other_order),
    "windows are always whole": _lowering("avg_pool2d", _whole_windows),
    "searchsorted is one too far": _lowering("searchsorted.Tensor", _one_too_far),
    "the angle of NaN is 0": _decomposition("angle", _angle_of_numbers),
    "relu multiplies": _lowering("relu", _multiplying_relu),
    "copysign compares": _decomposition("copysign.Scalar", _comparing_copysign),
    "slice_scatter is one too far": _lowering("slice_scatter", _next_columns),
    "buffers keep what they held": _forgotten_state,
    "a pass takes sin for cos": _cosines,
    "argmax takes the last": _lowering("argmax", _last_of_equal),
    "a pass loses conjugates": _passes_over(lambda: _aten("_conj"), _conjugates_lost),
    "a pass drops is_causal": _passes_over(lambda: _aten("_scaled_dot_product_flash_attention_for_cpu"), _not_causal),
    "sigmoid by exponentials": _decomposition("sigmoid", lambda x: x.exp() / (x.exp() + 1)),
    "foreach_add forgets its factor": _lowering("_foreach_add.List", lambda right: lambda x, y, alpha=1: right(x, y)),
    "quantize does not clamp": _lowered_operator(_quantize, _without_clamp),
    "clamp loses NaN": _decomposition("clamp", _lost_clamp),
    "softmax by exponentials": _decomposition("_softmax", layers.softmax_by_exponentials),
    "layer norm without eps": _decomposition("native_layer_norm", layers.layer_norm_without_eps),
    "pools are padded with 0": _decomposition("max_pool2d_with_indices", layers.pool_padded_with_zeros),
    "running variance is biased": _passes_over(lambda: _aten("mul.Tensor"), layers.correction_lost),
    "exclusive or is or": _lowering("bitwise_xor.Tensor", lambda _: lambda x, y: _lowered("bitwise_or.Tensor")(x, y)),
    "sums leave out the tail": _lowering("sum.dim_IntList", layers.without_tail),
    "scatter_reduce keeps what was there": _lowering("scatter_reduce.two", layers.with_itself),
    "a loop and a pass are wrong": layers.both(_lowering("tanh", _zero_for_small), _cosines),
    "cummin asserts": _lowering("cummin", _raising(AssertionError, "0 <= dim < 0")),
    "scatter_reduce asserts": _lowering("scatter_reduce.two", _raising(AssertionError, "index is no integer")),
    "no max_pool2d": _decomposition(
        "max_pool2d_with_indices", _raising(NameError, "name 'window' is not defined")(lambda: None)
    ),
    "isinf crashes": _lowering("isinf", _crashing),
    "cos uses an undeclared name": _undeclared,
    "floor takes a vector for a mask": _no_such_conversion,
}
if os.environ.get(VARIABLE):
    PLANTS[os.environ[VARIABLE]]()
