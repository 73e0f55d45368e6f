"""Wrong memory accesses, as any of the tools reports them. `access_text` turns them into text."""

from __future__ import annotations

import json
from collections.abc import Mapping
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
