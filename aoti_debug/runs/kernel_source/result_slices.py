"""Slices a generated kernel by its results: the arguments and infinite constants that each is computed from."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from aoti_debug.base.frozen import dataclass
from aoti_debug.package.manifest import Kernel, Manifest
from aoti_debug.runs.kernel_source import cpp_text, triton_text
from aoti_debug.runs.kernel_source.statements import Statement
from aoti_debug.runs.rundir.timeline import Launch


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
