"""Compares inputs with the signature of a model, and weights with what it was compiled for; with advice."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aoti_debug.base import dtypes
from aoti_debug.base.errors import Mismatch
from aoti_debug.package.inputs.signature import Leaf, ModelSignature
from aoti_debug.package.inputs.symbolic_sizes import Symbols, is_symbol
from aoti_debug.package.launch_traits import traits_of
from aoti_debug.package.manifest import Constant, Manifest, Site

if TYPE_CHECKING:
    from torch import Tensor


def mismatches(values: Sequence[Any], signature: ModelSignature, where: str) -> tuple[Mismatch, ...]:
    """Returns all mismatches between flattened inputs and a signature.

    Args:
        where: the source of the inputs, for the messages.
    """
    if len(values) != signature.count:
        expected, actual = _count(signature.count), _count(len(values))
        message = f"the model takes {expected}, {where} has {len(values)}"
        return (_count_mismatch(expected, actual, message, signature),)
    if signature.others:
        values = [value for value in values if _is_tensor(value)]
        if len(values) != len(signature.leaves):
            expected, actual = _count(len(signature.leaves), "tensor"), _count(len(values), "tensor")
            message = f"the model takes {expected}, {where} has {len(values)}"
            return (_count_mismatch(expected, actual, message, signature),)
    checker = _Checker(values, signature, where)
    return tuple(
        mismatch
        for position, (leaf, value) in enumerate(zip(signature.leaves, values, strict=True))
        for mismatch in checker.check(position, leaf, value)
    )


def marked_mismatches(
    values: Sequence[Any], signature: ModelSignature, manifest: Manifest, where: str
) -> tuple[Mismatch, ...]:
    """The inputs that torch negates or conjugates when it reads them, where a generated kernel reads their memory.

    Operators of torch apply such a mark, generated kernels do not.

    Args:
        values: flattened inputs that fit the signature.
        where: their source, for the messages.
    """
    leaves = [position for position, leaf in enumerate(signature.leaves) if leaf.is_tensor]
    tensors = [value for value in values if _is_tensor(value)]
    if not len(leaves) == len(tensors) == len(manifest.inputs):
        return ()
    readers = _readers(manifest.sites)
    return tuple(
        _marked_mismatch(signature.leaves[position], position, tensor, readers[variable], where)
        for position, tensor, variable in zip(leaves, tensors, manifest.inputs, strict=True)
        if (tensor.is_neg() or tensor.is_conj()) and variable in readers
    )


def _readers(sites: Sequence[Site]) -> dict[str, str]:
    """The first generated kernel that is passed the memory of a variable, by the variable."""
    generated = [site for site in sites if traits_of(site.kind).compiled_for_layouts]
    return {argument.base or argument.name: site.kernel for site in reversed(generated) for argument in site.args}


def _marked_mismatch(leaf: Leaf, position: int, tensor: Tensor, reader: str, where: str) -> Mismatch:
    is_negative = tensor.is_neg()
    mark, change = ("is_neg()", "negated") if is_negative else ("is_conj()", "conjugated")
    sentence = (
        f"{_subject(position, leaf, where)} is only marked as {change} ({mark}); {reader} reads its memory as it is"
    )
    advice = f"write the numbers out: {_variable(leaf)}.resolve_{'neg' if is_negative else 'conj'}()"
    return Mismatch(leaf.name, position, "mark", f"not {mark}", mark, sentence, advice)


def weight_mismatches(given: Mapping[str, Any], constants: Iterable[Constant]) -> tuple[Mismatch, ...]:
    """The weights that are not laid out as the model reads them: torch copies or uses their bytes without a check.

    Args:
        given: tensors by the names that a loader of torch takes: those of the model's attributes, or of variables.
        constants: what the model was compiled for.
    """
    known = {name: constant for constant in constants for name in (constant.name, constant.fqn) if name}
    return tuple(
        mismatch
        for name, tensor in given.items()
        if name in known and (mismatch := _weight_mismatch(name, tensor, known[name])) is not None
    )


def is_parameter(constant: Constant) -> bool:
    """True for a parameter of the model; False also where a package does not record what a constant is."""
    return constant.kind == "Parameter"


def missing_weights(given: Iterable[str], constants: Iterable[Constant]) -> tuple[Mismatch, ...]:
    """The parameters that are not given, of a buffer of weights that nothing else has filled.

    Args:
        given: as of `weight_mismatches`.
    """
    names = frozenset(given)
    missing = [one for one in constants if is_parameter(one) and 0 not in one.shape]
    return tuple(
        Mismatch(
            one.fqn or one.name,
            -1,
            "missing",
            "all parameters",
            "",
            f"weight {one.fqn or one.name} was not given to the buffer of weights that swap_constant_buffer made the "
            "active one; torch leaves a parameter without memory there",
            "give all parameters before the swap",
        )
        for one in missing
        if names.isdisjoint((one.name, one.fqn))
    )


def _weight_mismatch(name: str, tensor: Tensor, constant: Constant) -> Mismatch | None:
    dtype, shape = str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)
    is_laid_out = _is_laid_out(tensor, constant)
    is_shape = shape != constant.shape and not is_laid_out
    if dtype != constant.dtype or is_shape:
        promised, found = f"{constant.dtype}{_list(list(constant.shape))}", f"{dtype}{_list(list(shape))}"
        advice = f"its shape has to be {_list(list(constant.shape))}" if is_shape else f"convert it to {constant.dtype}"
        sentence = f"weight {name} was given as {found}; the model was compiled for {promised} and reads its memory so"
        return Mismatch(name, -1, "shape" if is_shape else "dtype", promised, found, sentence, advice)
    if not is_laid_out:
        promised, found = _list(list(constant.strides)), _list(list(tensor.stride()))
        sentence = f"weight {name} was given with strides {found}; the model reads its memory with {promised}"
        advice = _layout_advice("tensor", tensor, constant.strides)
        return Mismatch(name, -1, "strides", promised, found, sentence, advice)
    return _storage_mismatch(name, tensor)


def _is_laid_out(tensor: Tensor, constant: Constant) -> bool:
    """True if the elements lie as those of a constant. torch reads the strides of a tensor, and not its shape."""
    if tensor.numel() != math.prod(constant.shape) or tensor.dim() < len(constant.shape):
        return False
    pairs = zip(constant.shape, tensor.stride(), constant.strides, strict=False)
    return tensor.numel() == 0 or all(size == 1 or actual == expected for size, actual, expected in pairs)


def _storage_mismatch(name: str, tensor: Tensor) -> Mismatch | None:
    """A view of a larger storage: torch copies as many bytes as the storage has, from where the view begins."""
    begin, held = tensor.storage_offset(), tensor.untyped_storage().nbytes()
    if not begin and held <= tensor.nbytes:
        return None
    promised, found = f"{tensor.nbytes} bytes", f"{held} bytes from element {begin} on"
    reads = f", and reads from element {begin} of the copy" if begin else ""
    copies = f"torch copies so many bytes from there, not {tensor.nbytes}{reads}"
    sentence = f"weight {name} was given as a view, from element {begin} on, of a storage of {held} bytes; {copies}"
    return Mismatch(name, -1, "storage", promised, found, sentence, f"give {name} memory of its own: tensor.clone()")


def _count_mismatch(expected: str, actual: str, sentence: str, signature: ModelSignature) -> Mismatch:
    return Mismatch("", -1, "count", expected, actual, sentence, f"the model takes:{signature.indented_lines()}")


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


class _Checker:
    def __init__(self, values: Sequence[Any], signature: ModelSignature, where: str) -> None:
        self._signature = signature
        self._where = where
        self._symbols = Symbols()
        self._binding_inputs: dict[str, str] = {}  # symbol -> the input that gave its size
        self._devices: dict[str, str] = {}  # device type -> the device of the first input that names only the type
        for position, (leaf, value) in enumerate(zip(signature.leaves, values, strict=True)):
            sizes = tuple(getattr(value, "shape", ())) if leaf.is_tensor else ()
            if _is_tensor(value) and value.device.type == leaf.device:
                self._devices.setdefault(leaf.device, str(value.device))
            if len(sizes) == len(leaf.shape):
                for dim, size in zip(leaf.shape, sizes, strict=True):
                    self._symbols.bind(dim.symbol, int(size))
                    if is_symbol(dim.symbol):
                        self._binding_inputs.setdefault(dim.symbol, signature.name(position))

    def check(self, position: int, leaf: Leaf, value: Any) -> Iterator[Mismatch]:
        import torch

        name = self._signature.name(position)
        if not leaf.is_tensor:
            if leaf.constant and repr(value) != leaf.constant:
                yield self._leaf_mismatch(position, leaf, value, "kind", f"export has fixed {name} to {leaf.constant}")
            return
        if not isinstance(value, torch.Tensor):
            yield self._leaf_mismatch(position, leaf, value, "kind", f"{name} has to be a tensor")
            return
        if str(value.dtype) != leaf.dtype:
            yield self._leaf_mismatch(position, leaf, value, "dtype", f"convert it: {_variable(leaf)}.to({leaf.dtype})")
        shape_advice = self._shape_advice(leaf, value)
        if shape_advice:
            yield self._leaf_mismatch(position, leaf, value, "shape", shape_advice)
        if self._is_on_wrong_device(leaf, value):
            yield self._device_mismatch(position, leaf, value)
        if not shape_advice:
            yield from self._stride_mismatch(position, leaf, value)

    def _shape_advice(self, leaf: Leaf, value: Tensor) -> str:
        """Returns what the shape has to be; "" if it fits."""
        fits = len(value.shape) == len(leaf.shape) and all(
            dim.admits(size) for dim, size in zip(leaf.shape, value.shape, strict=True)
        )
        if not fits:
            return f"its shape has to be [{', '.join(map(str, leaf.shape))}]"
        for dim, size in zip(leaf.shape, value.shape, strict=True):
            expected = None if dim.fixed else self._symbols.value(dim.symbol)
            if expected is not None and expected != size:
                bound_by = self._binding_inputs.get(dim.symbol)
                source = f", since {dim.symbol} is {expected} in {bound_by}" if bound_by else ""
                return f"its size {size} has to be {dim.symbol} = {expected}{source}"
        return ""

    def _is_on_wrong_device(self, leaf: Leaf, value: Tensor) -> bool:
        import torch

        expected = torch.device(self._devices.get(leaf.device, leaf.device))
        return value.device.type != expected.type or value.device.index not in (None, expected.index or 0)

    def _stride_mismatch(self, position: int, leaf: Leaf, value: Tensor) -> Iterator[Mismatch]:
        if leaf.strides is None or 0 in value.shape:
            return
        expected = [self._symbols.value(str(stride)) for stride in leaf.strides]
        actual = list(value.stride())
        if all(size == 1 or a == b or b is None for size, a, b in zip(value.shape, actual, expected, strict=True)):
            return
        promised = _list(["?" if stride is None else stride for stride in expected])
        sentence = (
            f"{self._subject(position, leaf)} has strides {_list(actual)}; the model takes {promised} and "
            "reads its memory with those"
        )
        advice = _layout_advice(_variable(leaf), value, expected)
        yield Mismatch(leaf.name, position, "strides", promised, _list(actual), sentence, advice)

    def _device_mismatch(self, position: int, leaf: Leaf, value: Tensor) -> Mismatch:
        expected = self._devices.get(leaf.device, leaf.device)
        why = f"the model takes it on {expected}" if expected == leaf.device else f"another input is on {expected}"
        sentence = f"{self._subject(position, leaf)} is on {value.device}; {why}"
        return Mismatch(
            leaf.name,
            position,
            "device",
            expected,
            str(value.device),
            sentence,
            f"move it: {_variable(leaf)}.to('{expected}')",
        )

    def _leaf_mismatch(self, position: int, leaf: Leaf, value: Any, kind: str, advice: str) -> Mismatch:
        actual = _describe(value)
        sentence = f"{self._subject(position, leaf)} is {actual}; the model takes {leaf}"
        return Mismatch(leaf.name, position, kind, str(leaf), actual, sentence, advice)

    def _subject(self, position: int, leaf: Leaf) -> str:
        return _subject(position, leaf, self._where)


def _subject(position: int, leaf: Leaf, where: str) -> str:
    return f"input {position}{f' ({leaf.name})' if leaf.name else ''} of {where}"


def _variable(leaf: Leaf) -> str:
    """What stands for the value of an input in a line of Python."""
    return leaf.name or "tensor"


def _layout_advice(name: str, value: Tensor, expected: Sequence[int | None]) -> str:
    """Returns an expression that gives a tensor the expected strides."""
    import torch

    formats = [("", torch.contiguous_format)]
    formats += [("memory_format=torch.channels_last", torch.channels_last)] if value.dim() == 4 else []
    formats += [("memory_format=torch.channels_last_3d", torch.channels_last_3d)] if value.dim() == 5 else []
    for argument, memory_format in formats:
        strides = torch.empty(value.shape, device="meta").contiguous(memory_format=memory_format).stride()
        if all(size == 1 or a == b for size, a, b in zip(value.shape, strides, expected, strict=True)):
            return f"change its layout: {name}.contiguous({argument})"
    return (
        f"change its layout: torch.empty_strided({_list(list(value.shape))}, {_list(list(expected))}, "
        f"dtype={name}.dtype, device={name}.device).copy_({name})"
    )


def _list(numbers: Sequence[object]) -> str:
    return f"[{', '.join(map(str, numbers))}]"


def _count(number: int, noun: str = "input") -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _describe(value: Any) -> str:
    import torch

    if isinstance(value, torch.Tensor):
        return f"{dtypes.bare_name(value.dtype)}{list(value.shape)} on {value.device}"
    return f"{value!r}"
