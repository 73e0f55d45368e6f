"""Slices a generated kernel by its results: the arguments and infinite constants that each is computed from."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Mapping, Sequence
from enum import Enum

from aoti_debug.base.frozen import dataclass
from aoti_debug.package.manifest import Kernel, Manifest
from aoti_debug.runs.kernel_source import cpp_text, triton_text
from aoti_debug.runs.kernel_source.arithmetic import Statement
from aoti_debug.runs.rundir.launch import Launch


@dataclass(frozen=True)
class KernelSlice:
    """The part of a kernel that computes one result.

    Attributes:
        sources: the parameters whose content before the kernel goes into the result.
        infinities: the signs (1, -1) of the infinite constants that go into it.
        operations: the statements that compute it, in order.
    """

    sources: frozenset[str] = frozenset()
    infinities: frozenset[int] = frozenset()
    operations: tuple[Statement, ...] = ()


def kernel_of(launch: Launch, manifest: Manifest) -> Kernel | None:
    """The generated kernel that a launch started; None for an operator."""
    names = [launch.grid.kernel] if launch.grid else [*launch.site.launches, launch.kernel]
    return next((kernel for name in names if (kernel := manifest.kernel(name)) is not None), None)


def launch_slices(launch: Launch, manifest: Manifest) -> Mapping[str, KernelSlice]:
    """The slices of a launch by the parameter that is written; empty if the source is missing or not understood."""
    kernel = kernel_of(launch, manifest)
    if kernel is None:
        return {}
    return kernel_slices(kernel, frozenset(spec.param for spec in launch.site.args if spec.param and spec.base))


@functools.lru_cache(maxsize=1024)
def kernel_slices(kernel: Kernel, pointers: frozenset[str]) -> Mapping[str, KernelSlice]:
    """The slices of a kernel by the parameter that is written.

    Args:
        pointers: the names of the parameters that are tensors.
    """
    if not pointers:
        return {}
    kernel_statements = statements(kernel, pointers)
    dataflow = _KernelDataflow(pointers)
    for _ in range(2):  # twice: one iteration of a loop may use variables of the one before
        dataflow.reset_memory()
        for statement in kernel_statements:
            dataflow.add(statement)
    return {name: _slice(value, kernel_statements) for name, value in dataflow.stored.items() if name in pointers}


def statements(kernel: Kernel, pointers: frozenset[str]) -> tuple[Statement, ...]:
    """The statements of a kernel; none if its source is missing or not understood."""
    if kernel.language == "triton":
        return triton_text.statements(kernel.source, pointers)
    return tuple(cpp_text.statements(kernel.source, kernel.name)) if kernel.language == "cpp" else ()


@dataclass(frozen=True)
class CheckedIndex:
    """An index that a kernel checks, by the parameters of the kernel.

    Attributes:
        operand: what the index is computed from; "" if that are several, or it is not known.
        is_as_read: True if the index is an element of the operand as it is; a negative one may count from the end.
        table: what is read or written with it; "" if it is not known.
    """

    operand: str
    is_as_read: bool
    table: str


_CHECK = "index out of bounds"
_LOAD = re.compile(r"load\(\w+\)")
_SAME = re.compile(r"(?:to_int64_t|int64_t|same)\((.*)\)")
_SUM = re.compile(r"(\w+) \+ (\w+)")
_LESS = re.compile(r"(\w+) < (\w+)")
_WHERE = re.compile(r"where\((\w+), (\w+), (\w+)\)")
_USES = 6  # lines behind a check in which the index is used


def checked_index(launch: Launch, manifest: Manifest, assertion: str) -> CheckedIndex | None:
    """The index that a failed assertion of a generated C++ kernel is about; None if its source does not tell.

    Args:
        assertion: "index out of bounds: 0 <= tmp2 < 100L".
    """
    kernel = kernel_of(launch, manifest)
    if kernel is None or kernel.language != "cpp":
        return None
    pointers = frozenset(spec.param for spec in launch.site.args if spec.param and spec.base)
    lines = kernel.source.splitlines()
    known = statements(kernel, pointers)
    variable, size = assertion.split()[-3], int(assertion.split()[-1].rstrip("L"))
    found = {
        _index_at(known, lines, number, variable, size, pointers)
        for number, line in enumerate(lines, 1)
        if f'"{assertion}"' in line
    }
    return found.pop() if len(found) == 1 else None


def _index_at(
    known: Sequence[Statement], lines: Sequence[str], number: int, variable: str, size: int, pointers: frozenset[str]
) -> CheckedIndex:
    """The index that line `number`, from 1, checks."""
    computed = _computed_by(known, number, variable, pointers)
    read = {name for statement in computed for name in statement.names & pointers}
    variables = {variable, *(target for statement in computed for target in statement.targets)}
    behind = itertools.takewhile(lambda line: _CHECK not in line, lines[number : number + _USES])
    tables = [table for line in behind for table in _indexed(line, variables, pointers)]
    operand = read.pop() if len(read) == 1 else ""
    return CheckedIndex(operand, bool(operand) and _is_as_read(computed, size), tables[0] if tables else "")


def _computed_by(
    known: Sequence[Statement], number: int, variable: str, pointers: frozenset[str]
) -> tuple[Statement, ...]:
    """The statements before a line that a variable is computed by, the last first."""
    found: list[Statement] = []
    waiting = {variable}
    for statement in reversed([s for s in known if s.line < number and not s.store and not s.tail]):
        if waiting.isdisjoint(statement.targets):
            continue
        found.append(statement)
        waiting -= set(statement.targets)
        condition = _WHERE.fullmatch(statement.value)
        waiting |= (statement.names - pointers) | ({condition[1]} if condition else set())
    return tuple(found)


class _Known(Enum):
    """What is known of a variable of an index."""

    READ = "read"  # an element as it is
    FROM_END = "from the end"  # an element and the size
    NEGATIVE = "negative"  # whether the element is


def _is_as_read(computed: Sequence[Statement], size: int) -> bool:
    """True if only conversions, and the size added to what is negative, lie between an element and its index.

    Args:
        computed: the statements that compute it, the last first.
    """
    variables: dict[str, _Known | int | None] = {}
    last: _Known | int | None = None
    for statement in reversed(computed):
        last = _known(statement.value, variables, size)
        variables |= dict.fromkeys(statement.targets, last)
    return last is _Known.READ


def _known(value: str, variables: Mapping[str, _Known | int | None], size: int) -> _Known | int | None:
    def of(name: str) -> _Known | int | None:
        return int(name) if name.isdecimal() else variables.get(name)

    if _LOAD.fullmatch(value):
        return _Known.READ
    if inner := _SAME.fullmatch(value):
        return _known(inner[1], variables, size)
    if parts := _SUM.fullmatch(value):
        return _Known.FROM_END if {of(parts[1]), of(parts[2])} == {_Known.READ, size} else None
    if parts := _LESS.fullmatch(value):
        return _Known.NEGATIVE if (of(parts[1]), of(parts[2])) == (_Known.READ, 0) else None
    if parts := _WHERE.fullmatch(value):
        wraps = (_Known.NEGATIVE, _Known.FROM_END, _Known.READ)
        return _Known.READ if tuple(map(of, parts.groups())) == wraps else None
    return of(value)


def _indexed(line: str, variables: set[str], pointers: frozenset[str]) -> list[str]:
    """The parameters that a line of code reads or writes with one of the variables in the index."""
    accesses = re.findall(r"\b(\w+)(?:\[| \+ )([^;]*)", line)
    return [name for name, rest in accesses if name in pointers and variables & set(re.findall(r"\w+", rest))]


@dataclass(frozen=True)
class _ValueOrigin:
    sources: frozenset[str] = frozenset()
    infinities: frozenset[int] = frozenset()
    lines: frozenset[int] = frozenset()

    def __or__(self, other: _ValueOrigin) -> _ValueOrigin:
        return _ValueOrigin(self.sources | other.sources, self.infinities | other.infinities, self.lines | other.lines)


class _KernelDataflow:
    """Follows values through the statements of a kernel, taken in order."""

    def __init__(self, pointers: frozenset[str]) -> None:
        self._pointers = pointers
        self._variables: dict[str, _ValueOrigin] = {}
        self._aliases: dict[str, str] = {}
        self._memory: dict[str, _ValueOrigin] = {}
        self.stored: dict[str, _ValueOrigin] = {}

    def reset_memory(self) -> None:
        """Sets the memory to its state before the kernel."""
        self._memory = {name: _ValueOrigin(frozenset({name})) for name in self._pointers}
        self._unwritten = set(self._pointers)

    def add(self, statement: Statement) -> None:
        """Applies a statement."""
        if not statement.store and len(statement.targets) == 1 and self._is_alias(statement):
            return
        value = self._value(statement)
        if not statement.store:
            self._variables |= dict.fromkeys(statement.targets, value)
            return
        for name in self._stored_pointers(statement.targets):
            self._store(name, value)

    def _is_alias(self, statement: Statement) -> bool:
        """True for `auto out_ptr3 = in_out_ptr0`, which is noted."""
        if len(statement.names) != 1 or not statement.text.endswith(f"= {next(iter(statement.names))}"):
            return False
        (name,) = statement.names
        owner = self._aliases.get(name, name)
        if owner not in self._pointers:
            return False
        self._aliases[statement.targets[0]] = owner
        return True

    def _value(self, statement: Statement) -> _ValueOrigin:
        value = _ValueOrigin(infinities=statement.infinities, lines=frozenset({statement.line}))
        for name in statement.names:
            owner = self._aliases.get(name, name)
            value |= self._memory.get(owner) or self._variables.get(owner) or _ValueOrigin()
        if statement.negates:
            value = _ValueOrigin(value.sources, value.infinities | {-sign for sign in value.infinities}, value.lines)
        return value

    def _stored_pointers(self, targets: tuple[str, ...]) -> frozenset[str]:
        """The pointers that an address is computed from: named in it, or the sources of its variables."""
        owners = {self._aliases.get(target, target) for target in targets}
        if named := owners & self._pointers:
            return frozenset(named)
        sources = [value.sources for owner in owners if (value := self._variables.get(owner)) is not None]
        return frozenset().union(*sources) if sources else frozenset(owners)

    def _store(self, name: str, value: _ValueOrigin) -> None:
        before = self._memory.get(name, _ValueOrigin())
        self._memory[name] = value if name in self._unwritten else before | value
        self._unwritten.discard(name)
        self.stored[name] = self.stored.get(name, _ValueOrigin()) | value


def _slice(value: _ValueOrigin, kernel_statements: tuple[Statement, ...]) -> KernelSlice:
    operations = tuple(s for s in kernel_statements if s.line in value.lines)
    return KernelSlice(value.sources, value.infinities, operations)
