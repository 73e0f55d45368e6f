"""Which bytes belong to an argument, by enumeration of small views."""

from __future__ import annotations

import random

import numpy
import pytest
import torch

from aoti_debug.repro.templates.interpreter_memory import ArgumentView, CheckedMemory


def a_view(chance: random.Random) -> torch.Tensor:
    """Strided somehow, with an offset, of some type, in a storage that is hardly larger."""
    shape = [chance.randint(0, 4) for _ in range(chance.randint(0, 3))]
    strides = [chance.choice([0, 1, 2, 3, 5, 12]) for _ in shape]
    offset = chance.randint(0, 3)
    last = sum((size - 1) * step for size, step in zip(shape, strides, strict=True) if size)
    dtype = chance.choice([torch.uint8, torch.float16, torch.float32, torch.int64])
    memory = torch.arange(offset + last + 1 + chance.randint(0, 2)).to(dtype)
    return memory.as_strided(shape, strides, offset)


def bytes_of(view: torch.Tensor) -> set[int]:
    """Of all its elements, from its data pointer on."""
    found: set[int] = set()
    for index in numpy.ndindex(*view.shape):
        first = sum(i * step for i, step in zip(index, view.stride(), strict=True)) * view.itemsize
        found |= set(range(first, first + view.itemsize))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_an_access_is_inside_if_all_its_bytes_are_the_views(seed: int) -> None:
    view = a_view(random.Random(seed))
    region, own = ArgumentView(0, "x", view), bytes_of(view)
    offsets = numpy.arange(-20, max(own, default=0) + 30)
    for width in (1, 2, 4, 8):
        expected = [set(range(at, at + width)) <= own for at in offsets.tolist()]
        assert region.inside(offsets, width).tolist() == expected


@pytest.mark.parametrize("seed", range(40))
def test_what_is_inside_is_read_and_written_and_nothing_else(seed: int) -> None:
    chance = random.Random(1000 + seed)
    view = a_view(chance)
    memory, whole = CheckedMemory({"x": view}), view.untyped_storage()
    region = memory.regions[0]
    before = bytes(whole)
    offsets = numpy.arange(-20, 60, dtype=numpy.int64)
    mask = numpy.array([chance.random() < 0.8 for _ in offsets])
    pointers = offsets.view(numpy.uint64) + region.base
    values, _, strays = memory.load(pointers, 0, mask, numpy.dtype(numpy.uint8))
    own = bytes_of(view)
    shift = view.storage_offset() * view.itemsize
    inside = [bool(m) and at in own for at, m in zip(offsets.tolist(), mask, strict=True)]
    assert values.tolist() == [before[shift + at] if ok else 0 for at, ok in zip(offsets.tolist(), inside, strict=True)]
    outside = {at for at, m, ok in zip(offsets.tolist(), mask, inside, strict=True) if m and not ok}
    assert {at for stray in strays for at in stray.offsets.tolist()} == outside
    memory.store(pointers, None, mask, numpy.full(offsets.shape, 0xA5, dtype=numpy.uint8))
    expected = bytearray(before)
    for at, ok in zip(offsets.tolist(), inside, strict=True):
        if ok:
            expected[shift + at] = 0xA5
    assert bytes(whole) == bytes(expected)


def test_a_tensor_of_another_device_is_refused() -> None:
    with pytest.raises(ValueError, match="x is on meta; the interpreter takes CPU tensors"):
        CheckedMemory({"x": torch.empty(3, device="meta")})
