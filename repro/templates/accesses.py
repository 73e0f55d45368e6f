"""Wrong memory accesses, as any of the tools reports them, and their texts for people and for the evidence file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

SeenBy = Literal["bounds", "assertion", "division", "sanitizer", "guard", "pattern", "operator"]

# The fields that the evidence file has; the others are for the text only.
PUBLISHED = ("kind", "what", "argument", "parameter", "element", "elements", "beyond", "bytes", "program", "count")


@dataclass(frozen=True)
class CodeLine:
    """A line of source.

    Attributes:
        line: 0 where it is not known.
    """

    file: str
    line: int
    text: str = ""


@dataclass(frozen=True)
class LoadedIndex:
    """An element of an integer tensor that an address was computed from.

    Attributes:
        argument: of the launch.
        element: from the argument's first element, in memory.
        parameter: the kernel's own name of the argument; "" where it is the same.
    """

    argument: str
    element: int
    value: int
    parameter: str = ""


@dataclass(frozen=True)
class Access:
    """One wrong access, or several of one kind of which this is the first.

    Attributes:
        seen_by: "bounds": an interpreter or checked pointers; "assertion": the kernel itself; "division": checked
            divisions of integers; "sanitizer"; "guard": a
            guard zone that changed; "pattern": an output that depends on uninitialised memory; "operator": the
            index arguments of an operator.
        kind: "load", "store", "read", "write", "atomic", "access", "uninitialised read", "assertion", "division",
            "index", "race", "undefined behaviour", "overrun"; "" where the tool does not say.
        what: in the tool's own words; the message of an assertion.
        argument: of the launch, whose memory it belongs to; "" where it belongs to none.
        parameter: the kernel's own name of the argument; "" where it is the same.
        element: from the argument's first element, in memory; None where it is none in particular.
        elements: how many lie between the argument's first and last one, both included.
        beyond: elements outside of them: > 0 past the end, < 0 before the beginning, 0 inside or in a gap.
        in_storage: outside of the argument, inside the storage behind it.
        bytes: size of the access; of a guard zone, how many changed; 0 where it is not said.
        address: where no argument is known yet, or a tool names it.
        kernel: the function.
        thread: "thread (5,0,0) in block (3,0,0)"; "" on the CPU.
        program, position: of a Triton kernel: the program of the grid, and the position in its block.
        mask: of an interpreted access: "none" or "true".
        count: of how many accesses this is the first.
        index: the index that led there.
        wrapped: the address was computed from an integer that passed the end of its type.
        reach: of a guard zone: how far behind the storage the last changed byte lies.
        notes: what else is known of it, one line each.
    """

    seen_by: SeenBy
    kind: str = ""
    what: str = ""
    argument: str = ""
    parameter: str = ""
    element: int | None = None
    elements: int = 0
    beyond: int = 0
    in_storage: bool = False
    bytes: int = 0
    address: int | None = None
    source: CodeLine | None = None
    kernel: str = ""
    thread: str = ""
    program: tuple[int, int, int] | None = None
    position: tuple[int, ...] = ()
    mask: str = ""
    count: int = 1
    index: LoadedIndex | None = None
    wrapped: bool = False
    reach: int = 0
    notes: tuple[str, ...] = ()

    def named(self, arguments: Mapping[str, str]) -> Access:
        """Returns the access with the launch's argument names in place of the kernel's parameter names.

        Args:
            arguments: parameter -> argument of the launch.
        """
        index = self.index
        if index is not None and index.argument in arguments:
            index = replace(index, argument=arguments[index.argument], parameter=index.argument)
        if self.argument not in arguments:
            return replace(self, index=index)
        return replace(self, argument=arguments[self.argument], parameter=self.argument, index=index)

    def to_json(self) -> str:
        """For a message to the parent process; `Access.from_json` reads it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Access:
        """Reads the text that `to_json` wrote."""
        data = json.loads(text)
        program = data["program"]
        return cls(
            **{
                **data,
                "source": CodeLine(**data["source"]) if data["source"] else None,
                "index": LoadedIndex(**data["index"]) if data["index"] else None,
                "program": None if program is None else (program[0], program[1], program[2]),
                "position": tuple(data["position"]),
                "notes": tuple(data["notes"]),
            }
        )

    def evidence(self) -> dict[str, Any]:
        """The access as the evidence file has it."""
        data = asdict(self)
        index = data["index"] and {name: data["index"][name] for name in ("argument", "element", "value")}
        return {**{name: data[name] for name in PUBLISHED}, "source": data["source"], "index": index}


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


def place_text(access: Access) -> str:
    """Returns the text of a place: "element 1024 of in_ptr0, 1 element past its end (1024 elements)"."""
    text = f"element {access.element} of {access.argument}"
    if access.beyond == 0:
        return text
    outside, side = abs(access.beyond), "past its end" if access.beyond > 0 else "before its beginning"
    text += f", {outside} element{'' if outside == 1 else 's'} {side} ({access.elements} elements)"
    return f"{text}, inside its storage" if access.in_storage else text


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
            text += f": {place_text(access)}"
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
        text += f": {place_text(access)}"
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
