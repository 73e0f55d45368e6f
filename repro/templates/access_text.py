"""The texts of wrong accesses, for people and for the evidence file."""

from __future__ import annotations

from collections.abc import Iterator

from .accesses import Access

PREPOSITIONS = {"load": "from", "atomic": "on"}  # "out-of-bounds load from table"; "to" for other accesses


def lines_of(access: Access) -> list[str]:
    """Returns the lines of text for an access: a summary, then indented details."""
    texts = {
        "bounds": _bounds,
        "assertion": _assertion,
        "division": _division,
        "sanitizer": _sanitizer,
        "guard": _guard,
        "pattern": _pattern,
        "operator": _operator,
    }
    return list(texts[access.seen_by](access))


def place_text(name: str, element: int, elements: int, beyond: int, in_storage: bool) -> str:
    """Returns the text of a place: "element 1024 of in_ptr0, 1 element past its end (1024 elements)"."""
    text = f"element {element} of {name}"
    if beyond == 0:
        return text
    side = "past its end" if beyond > 0 else "before its beginning"
    text += f", {abs(beyond)} element{'' if abs(beyond) == 1 else 's'} {side} ({elements} elements)"
    return f"{text}, inside its storage" if in_storage else text


def _bounds(access: Access) -> Iterator[str]:
    effect = {"load": "returned 0", "access": "redirected to scratch memory"}.get(access.kind, "dropped")
    name = _name(access, access.argument, access.parameter)
    target = f" {PREPOSITIONS.get(access.kind, 'to')} {name}" if name else ""
    yield f"out-of-bounds {access.kind}{target}: {_outside(access)}; {effect}"
    yield from _source_and_program(access)
    yield from _index(access)
    if access.wrapped:
        yield "  integer overflow: the offset wrapped around"
    yield from (f"  {note}" for note in access.notes)
    if access.count > 1:
        yield f"  {access.count} such accesses at this line"


def _outside(access: Access) -> str:
    if access.element is None:
        return f"address {access.address or 0:#x} is in no argument"
    if access.beyond == 0:
        return f"element {access.element} is outside the view, inside the storage"
    side = "past the end" if access.beyond > 0 else "before the start"
    storage = " of the view, inside the storage" if access.in_storage else ""
    return f"element {access.element} of {access.elements}, {abs(access.beyond)} {side}{storage}"


def _assertion(access: Access) -> Iterator[str]:
    times = f", {access.count} times in all" if access.count > 1 else ""
    yield f"assertion failed: {access.what}{times}"
    yield from _source_and_program(access)
    yield from _index(access)


def _division(access: Access) -> Iterator[str]:
    times = f", {access.count} times in all" if access.count > 1 else ""
    yield f"{access.what}{times}"
    yield from _source_and_program(access)
    yield from _index(access, "divisor")


def _index(access: Access, what: str = "index") -> Iterator[str]:
    index = access.index
    if index is not None:
        name = _name(access, index.argument, index.parameter)
        yield f"  the {what} came from {name}: element {index.element} is {index.value}"


def _name(access: Access, argument: str, parameter: str) -> str:
    """The kernel's name of the argument; for a C++ kernel with the launch's name, which its call does not show."""
    if access.program is not None or not parameter:
        return parameter or argument
    return f"{argument} ({parameter})"


def _source_and_program(access: Access) -> Iterator[str]:
    source = access.source
    if source is not None:
        yield f"  {source.file}:{source.line}: {source.text}".rstrip()
    if access.program is not None:
        mask = {"none": ", no mask", "true": ", mask true"}.get(access.mask, "")
        yield f"  program {_tuple(access.program)}, position {_tuple(access.position)} of the block{mask}"


def _sanitizer(access: Access) -> Iterator[str]:
    text = access.what
    if access.kind not in ("", "race", "undefined behaviour"):
        kind = access.kind.rpartition(" ")[2]
        text += f": {kind} of {access.bytes} byte{'' if access.bytes == 1 else 's'}"
    if access.address is not None:
        text += f" at {access.address:#x}"
        if access.element is not None:
            place = place_text(access.argument, access.element, access.elements, access.beyond, access.in_storage)
            text += f": {place}"
    yield text + (f" (and {access.count - 1} more like it)" if access.count > 1 else "")
    source = access.source
    if source is not None:
        where = f"{source.file}:{source.line}" if source.line else source.file
        yield f"    {where}  {source.text}".rstrip()
    where = " of ".join(text for text in (access.thread, access.kernel) if text)
    if where:
        yield f"    {where}"
    if access.notes:
        yield f"    {'; '.join(access.notes)}"


def _guard(access: Access) -> Iterator[str]:
    where = {"before": "before the beginning", "between": "between the elements", "past": "past the end"}[access.what]
    text = f"{access.bytes} bytes were written {where} of {access.argument}"
    if access.what != "between":
        text += f", up to {access.reach} bytes {access.what} its storage"
    if access.element is not None:
        place = place_text(access.argument, access.element, access.elements, access.beyond, access.in_storage)
        text += f": {place}"
    yield text


def _pattern(access: Access) -> Iterator[str]:
    if access.element is None:
        yield f"{access.what} of {access.argument} depends on uninitialised memory"
        return
    count = f"{access.count} of {access.elements} elements of {access.argument}"
    yield f"{count} depend on uninitialised memory: {'; '.join(access.notes)}"


def _operator(access: Access) -> Iterator[str]:
    index = access.index
    assert index is not None
    yield f"{access.what}: element {index.element} of {index.argument} is {index.value}"
    if access.count > 1:
        yield f"  {access.count} such elements of {index.argument}"


def _tuple(numbers: tuple[int, ...]) -> str:
    return "(" + ", ".join(map(str, numbers)) + ")"
