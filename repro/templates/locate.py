"""Maps a sanitizer's reports to arguments and elements, and groups reports that are alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from .accesses import Access, CodeLine
from .addresses import Extent, place_of


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
        yield _placed(replace(access, source=_told(access.source, text), count=count), own or extents)


def _alike(access: Access) -> Access:
    return replace(access, address=None, thread="", program=None, notes=() if access.address else access.notes)


def _placed(access: Access, extents: Sequence[Extent]) -> Access:
    wild = access.bytes == 0  # the processor does not say where an address that cannot be one leads
    place = None if access.address is None or wild else place_of(access.address, extents)
    if place is None:
        return access
    return replace(
        access,
        argument=place.extent.name,
        element=place.element,
        elements=place.elements,
        beyond=place.beyond,
        in_storage=place.in_storage,
    )


def _line(source: CodeLine | None) -> str:
    return "" if source is None else f"{source.file}:{source.line}"


def _told(source: CodeLine | None, text: Mapping[str, str]) -> CodeLine | None:
    return None if source is None else replace(source, text=text.get(_line(source), ""))
