"""Compares a model's inputs with those that it was exported for: what is wrong with each, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from aoti_debug import dtypes
from aoti_debug.errors import Mismatch
from aoti_debug.inputs.signature import Leaf, ModelSignature
from aoti_debug.inputs.symbolic_sizes import Symbols, is_symbol

if TYPE_CHECKING:
    from torch import Tensor


def mismatches(values: Sequence[Any], signature: ModelSignature, where: str) -> tuple[Mismatch, ...]:
    """Everything that is wrong with the flattened inputs.

    Args:
        where: what they came from, for the sentences.
    """
    if len(values) != signature.count:
        promised, found = _count(signature.count), _count(len(values))
        return (_wrong_count(promised, found, f"the model takes {promised}, {where} has {len(values)}", signature),)
    if signature.others:
        values = [value for value in values if _is_tensor(value)]
        if len(values) != len(signature.leaves):
            promised, found = _count(len(signature.leaves), "tensor"), _count(len(values), "tensor")
            return (_wrong_count(promised, found, f"the model takes {promised}, {where} has {len(values)}", signature),)
    checker = _Checker(values, signature, where)
    return tuple(
        found
        for position, (leaf, value) in enumerate(zip(signature.leaves, values, strict=True))
        for found in checker.check(position, leaf, value)
    )


def _wrong_count(promised: str, found: str, sentence: str, signature: ModelSignature) -> Mismatch:
    return Mismatch("", -1, "count", promised, found, sentence, f"the model takes:{signature.described()}")


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


class _Checker:
    def __init__(self, values: Sequence[Any], signature: ModelSignature, where: str) -> None:
        self._where = where
        self._symbols = Symbols()
        self._seen: dict[str, str] = {}  # symbol -> the input that told its size
        self._devices: dict[str, str] = {}  # kind of device -> the one of the first input that may be on any of them
        for leaf, value in zip(signature.leaves, values, strict=True):
            sizes = tuple(getattr(value, "shape", ())) if leaf.is_tensor else ()
            if _is_tensor(value) and value.device.type == leaf.device:
                self._devices.setdefault(leaf.device, str(value.device))
            if len(sizes) == len(leaf.shape):
                for dim, size in zip(leaf.shape, sizes, strict=True):
                    self._symbols.bind(dim.symbol, int(size))
                    if is_symbol(dim.symbol):
                        self._seen.setdefault(dim.symbol, leaf.name)

    def check(self, position: int, leaf: Leaf, value: Any) -> Iterator[Mismatch]:
        import torch

        if not leaf.is_tensor:
            if leaf.constant and repr(value) != leaf.constant:
                yield self._whole(position, leaf, value, "kind", f"export has fixed {leaf.name} to {leaf.constant}")
            return
        if not isinstance(value, torch.Tensor):
            yield self._whole(position, leaf, value, "kind", f"{leaf.name} has to be a tensor")
            return
        if str(value.dtype) != leaf.dtype:
            yield self._whole(position, leaf, value, "dtype", f"convert it: {leaf.name}.to({leaf.dtype})")
        wrong_shape = self._wrong_shape(leaf, value)
        if wrong_shape:
            yield self._whole(position, leaf, value, "shape", wrong_shape)
        if self._elsewhere(leaf, value):
            yield self._device(position, leaf, value)
        if not wrong_shape:
            yield from self._strides(position, leaf, value)

    def _wrong_shape(self, leaf: Leaf, value: Tensor) -> str:
        """Advice; "" where the shape is as exported."""
        admitted = len(value.shape) == len(leaf.shape) and all(
            dim.admits(size) for dim, size in zip(leaf.shape, value.shape, strict=True)
        )
        if not admitted:
            return f"its shape has to be [{', '.join(map(str, leaf.shape))}]"
        for dim, size in zip(leaf.shape, value.shape, strict=True):
            wanted = None if dim.fixed else self._symbols.value(dim.symbol)
            if wanted is not None and wanted != size:
                known = self._seen.get(dim.symbol)
                source = f", since {dim.symbol} is {wanted} in {known}" if known else ""
                return f"its size {size} has to be {dim.symbol} = {wanted}{source}"
        return ""

    def _elsewhere(self, leaf: Leaf, value: Tensor) -> bool:
        import torch

        expected = torch.device(self._devices.get(leaf.device, leaf.device))
        return value.device.type != expected.type or value.device.index not in (None, expected.index or 0)

    def _strides(self, position: int, leaf: Leaf, value: Tensor) -> Iterator[Mismatch]:
        if leaf.strides is None or 0 in value.shape:
            return
        wanted = [self._symbols.value(str(stride)) for stride in leaf.strides]
        real = list(value.stride())
        if all(size == 1 or a == b or b is None for size, a, b in zip(value.shape, real, wanted, strict=True)):
            return
        promised = _list(["?" if stride is None else stride for stride in wanted])
        sentence = (
            f"{self._subject(position, leaf)} has strides {_list(real)}; the model was exported for {promised} and "
            "reads its memory so"
        )
        advice = _layout_advice(leaf.name, value, wanted)
        yield Mismatch(leaf.name, position, "strides", promised, _list(real), sentence, advice)

    def _device(self, position: int, leaf: Leaf, value: Tensor) -> Mismatch:
        wanted = self._devices.get(leaf.device, leaf.device)
        why = f"the model was exported for {wanted}" if wanted == leaf.device else f"another input is on {wanted}"
        sentence = f"{self._subject(position, leaf)} is on {value.device}; {why}"
        return Mismatch(
            leaf.name, position, "device", wanted, str(value.device), sentence, f"move it: {leaf.name}.to('{wanted}')"
        )

    def _whole(self, position: int, leaf: Leaf, value: Any, kind: str, advice: str) -> Mismatch:
        found = _describe(value)
        sentence = f"{self._subject(position, leaf)} is {found}; the model was exported for {leaf}"
        return Mismatch(leaf.name, position, kind, str(leaf), found, sentence, advice)

    def _subject(self, position: int, leaf: Leaf) -> str:
        return f"input {position} ({leaf.name}) of {self._where}"


def _layout_advice(name: str, value: Tensor, wanted: Sequence[int | None]) -> str:
    """How to come to the wanted strides."""
    import torch

    forms = [("", torch.contiguous_format)]
    forms += [("memory_format=torch.channels_last", torch.channels_last)] if value.dim() == 4 else []
    forms += [("memory_format=torch.channels_last_3d", torch.channels_last_3d)] if value.dim() == 5 else []
    for text, form in forms:
        strides = torch.empty(value.shape, device="meta").contiguous(memory_format=form).stride()
        if all(size == 1 or a == b for size, a, b in zip(value.shape, strides, wanted, strict=True)):
            return f"lay it out anew: {name}.contiguous({text})"
    return (
        f"lay it out anew: torch.empty_strided({_list(list(value.shape))}, {_list(list(wanted))}, dtype={name}.dtype, "
        f"device={name}.device).copy_({name})"
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
