"""What each result of a generated kernel is made of: which arguments its values come from, which infinite constants."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from aoti_debug.manifest import Arg, Kernel, Manifest
from aoti_debug.rundir.timeline import Launch
from aoti_debug.triage.kernel_source import cpp_text, triton_text
from aoti_debug.triage.kernel_source.statements import Statement


@dataclass(frozen=True)
class Slice:
    """
    Attributes:
        sources: parameters of the kernel whose content at its beginning goes into the values.
        infinities: signs of the infinite constants that do.
        operations: the statements that lead there, in order.
    """

    sources: frozenset[str] = frozenset()
    infinities: frozenset[int] = frozenset()
    operations: tuple[Statement, ...] = ()


def kernel_of(launch: Launch, manifest: Manifest) -> Kernel | None:
    """The generated kernel that a launch started; None for an operator."""
    names = [launch.grid.kernel] if launch.grid else [*launch.site.launches, launch.kernel]
    return next((kernel for name in names if (kernel := manifest.kernel(name)) is not None), None)


def of_launch(launch: Launch, manifest: Manifest) -> Mapping[str, Slice]:
    """Slices by the parameter that is written; empty where the kernel's source is not there or not understood."""
    kernel = kernel_of(launch, manifest)
    if kernel is None:
        return {}
    return of_kernel(kernel, frozenset(spec.param for spec in launch.site.args if _is_pointer(spec)))


@functools.lru_cache(maxsize=1024)
def of_kernel(kernel: Kernel, pointers: frozenset[str]) -> Mapping[str, Slice]:
    """
    Args:
        pointers: the names of the parameters that are tensors.
    """
    if not pointers:
        return {}
    found = statements(kernel, pointers)
    fold = _Fold(pointers)
    for _ in range(2):  # what one turn of a loop leaves for the next one
        fold.begin()
        for statement in found:
            fold.take(statement)
    return {name: _slice(value, found) for name, value in fold.stored.items() if name in pointers}


def statements(kernel: Kernel, pointers: frozenset[str]) -> tuple[Statement, ...]:
    """Those of a kernel; none where its source is not there or not understood."""
    if kernel.language == "triton":
        return tuple(triton_text.statements(kernel.source, pointers))
    return tuple(cpp_text.statements(kernel.source, kernel.name)) if kernel.language == "cpp" else ()


def _is_pointer(spec: Arg) -> bool:
    return bool(spec.param and spec.base)


@dataclass(frozen=True)
class _Made:
    sources: frozenset[str] = frozenset()
    infinities: frozenset[int] = frozenset()
    lines: frozenset[int] = frozenset()

    def __or__(self, other: _Made) -> _Made:
        return _Made(self.sources | other.sources, self.infinities | other.infinities, self.lines | other.lines)


class _Fold:
    """Goes through the statements of a kernel in order."""

    def __init__(self, pointers: frozenset[str]) -> None:
        self._pointers = pointers
        self._variables: dict[str, _Made] = {}
        self._aliases: dict[str, str] = {}
        self._memory: dict[str, _Made] = {}
        self.stored: dict[str, _Made] = {}

    def begin(self) -> None:
        """What is in memory at the kernel's beginning."""
        self._memory = {name: _Made(frozenset({name})) for name in self._pointers}
        self._fresh = set(self._pointers)

    def take(self, statement: Statement) -> None:
        if not statement.store and len(statement.targets) == 1 and self._is_alias(statement):
            return
        made = self._made(statement)
        if not statement.store:
            self._variables |= dict.fromkeys(statement.targets, made)
            return
        for name in self._stored_to(statement.targets):
            self._store(name, made)

    def _is_alias(self, statement: Statement) -> bool:
        """`auto out_ptr3 = in_out_ptr0`."""
        if len(statement.names) != 1 or not statement.text.endswith(f"= {next(iter(statement.names))}"):
            return False
        (name,) = statement.names
        owner = self._aliases.get(name, name)
        if owner not in self._pointers:
            return False
        self._aliases[statement.targets[0]] = owner
        return True

    def _made(self, statement: Statement) -> _Made:
        made = _Made(infinities=statement.infinities, lines=frozenset({statement.line}))
        for name in statement.names:
            owner = self._aliases.get(name, name)
            made |= self._memory.get(owner) or self._variables.get(owner) or _Made()
        if statement.flips:
            made = _Made(made.sources, made.infinities | {-sign for sign in made.infinities}, made.lines)
        return made

    def _stored_to(self, targets: tuple[str, ...]) -> frozenset[str]:
        """The pointers that an address is made of: named in it, or behind its variables."""
        owners = {self._aliases.get(target, target) for target in targets}
        if named := owners & self._pointers:
            return frozenset(named)
        behind = [made.sources for owner in owners if (made := self._variables.get(owner)) is not None]
        return frozenset().union(*behind) if behind else frozenset(owners)

    def _store(self, name: str, made: _Made) -> None:
        before = self._memory.get(name, _Made())
        self._memory[name] = made if name in self._fresh else before | made
        self._fresh.discard(name)
        self.stored[name] = self.stored.get(name, _Made()) | made


def _slice(made: _Made, found: tuple[Statement, ...]) -> Slice:
    return Slice(made.sources, made.infinities, tuple(s for s in found if s.line in made.lines))
