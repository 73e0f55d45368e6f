"""Which argument, and which element of it, an address belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

import torch

from .memory import Argument, Memory


@dataclass(frozen=True)
class Extent:
    """Where an argument lies in memory; ends are exclusive.

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
        """For a report to the parent; `Extent.of_words` reads them."""
        return list(astuple(self))

    @classmethod
    def of_words(cls, words: Sequence[str]) -> Extent:
        return cls(words[0], *(int(word) for word in words[1:]))

    def element(self, address: int) -> int:
        return (address - self.begin) // self.item_bytes


@dataclass(frozen=True)
class Place:
    """
    Attributes:
        element: from the argument's first element, as the kernel counts.
        inside: within the argument.
        text: "element 1024 of in_ptr0, 1 element past its end"
    """

    extent: Extent
    element: int
    inside: bool
    text: str


def extents_of(arguments: Iterable[Argument], memory: Memory) -> list[Extent]:
    """The arguments that have elements."""
    found = []
    for argument in arguments:
        view = memory.views[argument.name]
        if view.numel() == 0:
            continue
        block = memory.blocks[argument.storage]
        begin, item = view.data_ptr(), view.element_size()
        storage = block.whole.data_ptr() + block.first
        found.append(
            Extent(argument.name, begin, begin + reach(view) * item, storage, storage + block.described.bytes, item)
        )
    return found


def reach(view: torch.Tensor) -> int:
    """How many elements lie from its first one to its last one, gaps included."""
    return 1 + sum((int(size) - 1) * int(step) for size, step in zip(view.shape, view.stride(), strict=True))


def place_of(address: int, extents: Sequence[Extent]) -> Place | None:
    """The argument that an address lies in, or else the one that it is nearest to; None without arguments."""
    if not extents:
        return None

    def distance(extent: Extent) -> int:
        if address >= extent.end:
            return address - extent.end + 1
        return max(extent.begin - address, 0)

    nearest = min(extents, key=lambda e: (distance(e), e.begin < address < e.end, e.storage_end - e.storage_begin))
    element, count = nearest.element(address), (nearest.end - nearest.begin) // nearest.item_bytes
    what = f"element {element} of {nearest.name}"
    if 0 <= element < count:
        return Place(nearest, element, True, what)
    beyond = element - count + 1 if element >= count else -element
    text = f"{what}, {beyond} element{'' if beyond == 1 else 's'} "
    text += f"past its end ({count} elements)" if element >= count else f"before its beginning ({count} elements)"
    if nearest.storage_begin <= address < nearest.storage_end:
        text += ", inside its storage"
    return Place(nearest, element, False, text)
