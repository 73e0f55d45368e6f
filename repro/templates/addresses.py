"""Finds the argument and the element that an address belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

import torch

from .access_text import place_text
from .memory import LaunchArgument, LaunchMemory


@dataclass(frozen=True)
class Extent:
    """The address range of an argument; ends are exclusive.

    Attributes:
        begin, end: from its first element to its last one.
        storage_begin, storage_end: the storage behind it.
    """

    name: str
    begin: int
    end: int
    storage_begin: int
    storage_end: int
    item_bytes: int

    def words(self) -> list[str | int]:
        """For a message to the parent process; `Extent.from_words` reads them."""
        return list(astuple(self))

    @classmethod
    def from_words(cls, words: Sequence[str]) -> Extent:
        """Reads what `words` wrote."""
        return cls(words[0], *(int(word) for word in words[1:]))

    def element(self, address: int) -> int:
        """The element that an address lies in, from the argument's first one."""
        return (address - self.begin) // self.item_bytes


@dataclass(frozen=True)
class ArgumentPlace:
    """An address as an element of an argument, or relative to one.

    Attributes:
        element: from the argument's first element, as the kernel counts.
        elements: of the argument, gaps included.
        beyond: elements outside of the argument: > 0 past its end, < 0 before its beginning, 0 inside.
        in_storage: outside of the argument, inside the storage behind it.
    """

    extent: Extent
    element: int
    elements: int
    beyond: int
    in_storage: bool

    @property
    def text(self) -> str:
        """The place in words: "element 1024 of in_ptr0, 1 element past its end (1024 elements)"."""
        return place_text(self.extent.name, self.element, self.elements, self.beyond, self.in_storage)


def extents_of(arguments: Iterable[LaunchArgument], memory: LaunchMemory) -> list[Extent]:
    """Returns the address ranges of the arguments that have elements."""
    extents = []
    for argument in arguments:
        view = memory.views[argument.name]
        if view.numel() == 0:
            continue
        block = memory.blocks[argument.storage]
        begin, item = view.data_ptr(), view.element_size()
        storage = block.whole.data_ptr() + block.first
        extents.append(
            Extent(argument.name, begin, begin + reach(view) * item, storage, storage + block.described.bytes, item)
        )
    return extents


def reach(view: torch.Tensor) -> int:
    """The number of elements from its first one to its last one, gaps included."""
    return 1 + sum((int(size) - 1) * int(step) for size, step in zip(view.shape, view.stride(), strict=True))


def place_of(address: int, extents: Sequence[Extent]) -> ArgumentPlace | None:
    """The argument that an address lies in, or else the one that it is nearest to; None without arguments."""
    if not extents:
        return None

    def distance(extent: Extent) -> int:
        if address >= extent.end:
            return address - extent.end + 1
        return max(extent.begin - address, 0)

    nearest = min(extents, key=lambda e: (distance(e), e.begin < address < e.end, e.storage_end - e.storage_begin))
    element, count = nearest.element(address), (nearest.end - nearest.begin) // nearest.item_bytes
    beyond = element - count + 1 if element >= count else min(element, 0)
    in_storage = beyond != 0 and nearest.storage_begin <= address < nearest.storage_end
    return ArgumentPlace(nearest, element, count, beyond, in_storage)
