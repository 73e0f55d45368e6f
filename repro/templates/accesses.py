"""What a sanitizer reports, as text for the user."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from .addresses import Extent, place_of


@dataclass(frozen=True)
class Access:
    """One report of a sanitizer.

    Attributes:
        what: as the sanitizer names it: "heap-buffer-overflow", "Invalid __global__ read".
        kind: "read", "write", "atomic" or "".
        bytes: size of the access; 0 where it is not said.
        address: None where the report is of none.
        kernel: the function.
        source: "repro.py:23"; "" without line information.
        thread: "thread (5,0,0) in block (3,0,0)"; "" on the CPU.
        note: what else the sanitizer says of it.
    """

    what: str
    kind: str = ""
    bytes: int = 0
    address: int | None = None
    kernel: str = ""
    source: str = ""
    thread: str = ""
    note: str = ""


def lines_of(
    accesses: Sequence[Access], extents: Sequence[Extent], source_line: Mapping[str, str], named: Mapping[str, str]
) -> Iterator[str]:
    """Those of one source line and kind together; the first of them stands for all.

    Args:
        source_line: "repro.py:23" -> the text there.
        named: "repro.py:23" -> the argument whose pointer the access there starts from. Without it, an address belongs
            to the argument that it lies in or is nearest to.
    """
    counts = Counter(_alike(access) for access in accesses)
    for access in dict.fromkeys(accesses):
        count = counts.pop(_alike(access), 0)
        if not count:
            continue
        own = [extent for extent in extents if extent.name == named.get(access.source)]
        yield _what(access, own or extents) + (f" (and {count - 1} more like it)" if count > 1 else "")
        if access.source:
            yield f"    {access.source}  {source_line.get(access.source, '')}".rstrip()
        where = " of ".join(text for text in (access.thread, access.kernel) if text)
        if where:
            yield f"    {where}"
        if access.note:
            yield f"    {access.note}"


def _alike(access: Access) -> Access:
    return replace(access, address=None, thread="", note="" if access.address else access.note)


def _what(access: Access, extents: Sequence[Extent]) -> str:
    text = access.what
    if access.kind:
        text += f": {access.kind} of {access.bytes} byte{'' if access.bytes == 1 else 's'}"
    if access.address is None:
        return text
    place = place_of(access.address, extents)
    return f"{text} at {access.address:#x}: {place.text}" if place else f"{text} at {access.address:#x}"
