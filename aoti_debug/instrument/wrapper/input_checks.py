"""Recovers the input signature of a compiled model from the input checks in its wrapper."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field, replace

from aoti_debug.base.dtypes import device_name
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import json_data
from aoti_debug.package.inputs.signature import Dim, Leaf, ModelSignature, keyword_names

_CHECK = re.compile(
    r"static void check_input_(\d+)\(.*?(?=^AOTI_NOINLINE|^void AOTInductorModel)", re.DOTALL | re.MULTILINE
)
_DTYPE = re.compile(r"_expected_dtype = (?:aoti_torch_dtype_|cached_torch_dtype_)(\w+?)(?:\(\))?;")
_SIZE = re.compile(r"if \((\d+) != \w+_size\[(\d+)\]\)")
_MINIMUM = re.compile(r"if \(\w+_size\[(\d+)\] < (\d+)\)")
_MAXIMUM = re.compile(r"if \(\w+_size\[(\d+)\] > (\d+)\)")
_STRIDE = re.compile(r"if \((\d+) != \w+_stride\[(\d+)\]\)")
_DEVICE = re.compile(r"_expected_device_type = (\d+);")
_SYMBOL = re.compile(r"\bint64_t (s\d+) = (\w+)_size\[(\d+)\];")
_ASSERTED = re.compile(r'\bassert_size_stride\((\w+), \{([^{}]*)\}, \{([^{}]*)\}, "input"\)')
_LONG = re.compile(r"\b(\d+)L\b")
_IN_SPEC = re.compile(r'\bin_spec_ = R"(?P<d>[^(]*)\((.*?)\)(?P=d)";', re.DOTALL)
_UNBOUNDED = (1 << 31) - 1
_AT_LEAST_TWO = 2  # what Inductor writes for every size that is not fixed, also where the program admits 0 and 1


def signature(wrapper: str, names: tuple[str, ...], device: str) -> ModelSignature:
    """Returns the input signature of a wrapper.

    Those of keyword arguments have names. Of an input without a check nothing else is known: its dtype is "". Arguments
    that are not tensors are not inputs of the generated code; only their number is known.

    Args:
        names: variables of the inputs, in order.
        device: device type of inputs whose check names none: "cpu", "cuda". The code runs on any device of its type.
    """
    checks = {int(m.group(1)): m.group() for m in _CHECK.finditer(wrapper)}
    layouts = _layouts(wrapper)
    leaves = tuple(
        _leaf(checks.get(position, ""), device, layouts.get(name, _Layout())) for position, name in enumerate(names)
    )
    match = _IN_SPEC.search(wrapper)
    spec = match.group(2) if match else ""
    others = _leaf_count(spec) - len(leaves)
    if others < 0:
        return ModelSignature(leaves)
    keywords = keyword_names(ModelSignature(leaves, spec, others)) or ("",) * len(leaves)
    return ModelSignature(
        tuple(replace(leaf, name=name) for leaf, name in zip(leaves, keywords, strict=True)), spec, others
    )


@dataclass(frozen=True)
class _Layout:
    """The symbolic sizes and strides of an input.

    Attributes:
        symbols: of sizes, by dimension: "s77", "2*s77".
        strides: one expression per dimension; None if not all are known.
    """

    symbols: Mapping[int, str] = field(default_factory=dict)
    strides: tuple[int | str, ...] | None = None


def _layouts(wrapper: str) -> Mapping[str, _Layout]:
    """Returns the sizes and strides that run_impl reads or asserts, by input."""
    symbols_by_input: dict[str, dict[int, str]] = {}
    for symbol, name, dim in _SYMBOL.findall(wrapper):
        symbols_by_input.setdefault(name, {})[int(dim)] = symbol
    layouts = {name: _Layout(symbols) for name, symbols in symbols_by_input.items()}
    for name, sizes, strides in _ASSERTED.findall(wrapper):
        symbols = {dim: text for dim, text in enumerate(_expressions(sizes)) if not text.isdigit()}
        layouts[name] = _Layout(symbols, tuple(int(text) if text.isdigit() else text for text in _expressions(strides)))
    return layouts


def _expressions(text: str) -> list[str]:
    return [word for part in _LONG.sub(r"\1", text).split(",") if (word := part.strip())]


def _leaf(check: str, device: str, layout: _Layout) -> Leaf:
    dtype = _DTYPE.search(check)
    sizes = {int(dim): Dim(int(size), int(size)) for size, dim in _SIZE.findall(check)}
    lowest = {int(dim): int(size) for dim, size in _MINIMUM.findall(check)}
    highest = {int(dim): int(size) for dim, size in _MAXIMUM.findall(check)}
    strides = {int(dim): int(stride) for stride, dim in _STRIDE.findall(check)}
    count = max([*sizes, *lowest, *highest, *strides, -1]) + 1
    shape = tuple(
        sizes.get(dim) or _dim(lowest.get(dim), highest.get(dim), layout.symbols.get(dim, "")) for dim in range(count)
    )
    number = _DEVICE.search(check)
    return Leaf(
        name="",
        dtype=f"torch.{dtype.group(1)}" if dtype else "",
        device=device_name(int(number.group(1)), -1) if number else device,
        shape=shape,
        strides=tuple(strides[dim] for dim in range(count)) if len(strides) == count else layout.strides,
    )


def _dim(minimum: int | None, maximum: int | None, symbol: str) -> Dim:
    limit = -1 if maximum is None or maximum >= _UNBOUNDED else maximum
    least = 0 if minimum is None or minimum == _AT_LEAST_TWO else minimum
    return Dim(least, limit, symbol)


def _leaf_count(spec: str) -> int:
    """Counts the leaves of a serialized pytree; -1 if it cannot be read."""
    try:
        pending, count = [json_data.parse_value(spec)[1]], 0
        while pending:
            node = pending.pop()
            pending += node["children_spec"]
            count += node["type"] is None
        return count
    except (ValueError, LookupError, TypeError):
        return -1
