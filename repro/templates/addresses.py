"""Finds the argument and the element that an address belongs to, and groups a sanitizer's reports that are alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace

import torch

from .accesses import Access, CodeLine
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


def placed(access: Access, address: int, extents: Sequence[Extent]) -> Access:
    """The access with the argument that an address lies in, or else is nearest to; unchanged without arguments."""
    if not extents:
        return access

    def distance(extent: Extent) -> int:
        if address >= extent.end:
            return address - extent.end + 1
        return max(extent.begin - address, 0)

    nearest = min(extents, key=lambda e: (distance(e), e.begin < address < e.end, e.storage_end - e.storage_begin))
    element, count = nearest.element(address), (nearest.end - nearest.begin) // nearest.item_bytes
    beyond = element - count + 1 if element >= count else min(element, 0)
    in_storage = beyond != 0 and nearest.storage_begin <= address < nearest.storage_end
    return replace(access, argument=nearest.name, element=element, elements=count, beyond=beyond, in_storage=in_storage)


def locate_accesses(
    accesses: Sequence[Access], extents: Sequence[Extent], text: Mapping[str, str], named: Mapping[str, str]
) -> Iterator[Access]:
    """Yields one access for each source line and kind: the first one, with the count of all.

    Args:
        text: "repro.py:23" -> the text there.
        named: "repro.py:23" -> the argument whose pointer the access there starts from. Without it, an address belongs
            to the argument that it lies in or is nearest to.
    """
    counts = Counter(_alike(access) for access in accesses)
    for access in dict.fromkeys(accesses):
        count = counts.pop(_alike(access), 0)
        if not count:
            continue
        line = _line(access.source)
        own = [extent for extent in extents if extent.name == named.get(line)]
        told = replace(access, source=_told(access.source, text), count=count)
        wild = access.bytes == 0  # the processor does not say where an address that cannot be one leads
        yield told if access.address is None or wild else placed(told, access.address, own or extents)


def _alike(access: Access) -> Access:
    return replace(access, address=None, thread="", program=None, notes=() if access.address else access.notes)


def _line(source: CodeLine | None) -> str:
    return "" if source is None else f"{source.file}:{source.line}"


def _told(source: CodeLine | None, text: Mapping[str, str]) -> CodeLine | None:
    return None if source is None else replace(source, text=text.get(_line(source), ""))
