"""A C++ kernel with checked pointers: finds out-of-bounds accesses and the index that each came from."""

from __future__ import annotations

import ctypes
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from .accesses import Access, CodeLine, LoadedIndex
from .checked_source import NotCheckableError, checked_source, parameters_of
from .cpp_build import CppCompiler, library_of
from .memory import reach

HEADER = Path(__file__).with_name("checked_pointer.h")
KINDS = ("load", "store", "atomic", "element", "pointer", "check", "division")  # as in the header
MAX_TRIALS, MAX_EXPLAINED = 64, 24  # launches to find one index; accesses whose index is sought
TRIAL_SECONDS = 20.0  # for all of them
_STORED = re.compile(r"\w\[.*\]\s*(?:[-+*/%|&^]|<<|>>)?=(?!=)")
_ALIAS = re.compile(r"\s*auto\s*\*?\s*(\w+)\s*=\s*(\w+)\s*;")
_BOUND = re.compile(r"<\s*(\d+)L?\b")

Launch = Callable[[], "str | None"]


class _Pointer(ctypes.Structure):
    """replay::Pointer<T>: an extent, the offset in it, and the line that moved it there."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_int64),
        ("argument", ctypes.c_int64),
        ("offset", ctypes.c_int64),
        ("line", ctypes.c_int64),
    )


@dataclass(frozen=True)
class _Loaded:
    """An integer that was loaded before a wrong access. `argument`: the position in the call."""

    argument: int
    element: int
    value: int


@dataclass(frozen=True)
class _Record:
    """The first of alike wrong accesses, as the header counts them."""

    kind: str
    line: int
    argument: int
    element: int
    bytes: int
    count: int
    same: int
    loaded: tuple[_Loaded, ...]
    message: str


class CheckedCalls:
    """The kernel, compiled with checked pointers.

    Attributes:
        accesses: those of the last call that were wrong.

    Raises:
        SystemExit: its source is of no form whose pointers can be checked, or the compiler refuses it so.
    """

    def __init__(self, name: str, source: str, compiler: CppCompiler, folder: Path) -> None:
        try:
            text = checked_source(source, name, HEADER.read_text(encoding="utf-8"))
            self.parameters = parameters_of(source, name)
        except NotCheckableError as error:
            raise SystemExit(f"{name} cannot be run with checked pointers: {error}") from error
        try:
            built = library_of(compiler, text, name, folder)
        except SystemExit as error:
            raise SystemExit(f"{name} cannot be run with checked pointers: {error}") from error
        self.library = ctypes.CDLL(str(built))
        self.library.replay_records.restype = ctypes.c_char_p
        self.lines = source.splitlines()
        self.accesses: tuple[Access, ...] = ()

    def pointer(self, position: int, tensor: torch.Tensor | None) -> _Pointer:
        """The checked pointer to a tensor at that position of the call."""
        if tensor is None:
            return _Pointer(None, 0, position, 0, 0)
        return _Pointer(tensor.data_ptr(), _span(tensor) * tensor.element_size(), position, 0, 0)

    def run(self, launch: Launch, tensors: Sequence[torch.Tensor | None], names: Sequence[str]) -> str | None:
        """Launches the kernel and collects its out-of-bounds accesses.

        More launches, with one index changed in each, find the index that each access came from. Afterwards the tensors
        hold what the first launch wrote.

        Args:
            launch: returns the text of an exception that left the kernel.
            tensors, names: by the position in the call; None and "" for what is no tensor.

        Returns: the text of the exception, if there was no wrong access.
        """
        memory = _CallMemory(tensors)
        self.library.replay_watch(-1, -1, -1, ctypes.c_int64(0))
        begun = time.monotonic()
        message = launch()
        deadline = begun + TRIAL_SECONDS
        records = self._records()
        after = memory.copy()
        explained = [self._index(record, launch, memory, deadline) for record in records[:MAX_EXPLAINED]]
        memory.restore(after)
        indices = [*explained, *([None] * (len(records) - len(explained)))]
        self.accesses = tuple(
            self._access(record, loaded, tensors, names) for record, loaded in zip(records, indices, strict=True)
        )
        return None if self.accesses else message

    def _records(self) -> list[_Record]:
        _, *lines = self.library.replay_records().decode(errors="replace").splitlines()
        return [_record(line) for line in lines]

    def _index(self, record: _Record, launch: Launch, memory: _CallMemory, deadline: float) -> _Loaded | None:
        """The only integer without which there are fewer such accesses; None where there is none, or several.

        One without which the line accesses less often decides how often it does,
        and is no part of the index.
        """
        found: list[_Loaded] = []
        reached: int | None = None
        for loaded in _likeliest(record)[:MAX_TRIALS]:
            if reached is None:
                memory.restore(memory.before)
                _, reached = self._watched(record, launch)
            memory.restore(memory.before)
            if time.monotonic() > deadline:
                return None
            if not memory.change(loaded):
                continue
            _, times = self._watched(record, launch)
            if times == reached and self._alike(record) < record.count:
                found.append(loaded)
        if record.kind == "division" and len(found) > 1:  # a dividend and its divisor, -1
            found = [loaded for loaded in found if loaded.value == -1]
        return found[0] if len(found) == 1 else None

    def _alike(self, record: _Record) -> int:
        """The number of accesses of the last launch that are like one of the first launch."""
        alike = (record.kind, record.line, record.argument, record.message)
        return sum(r.count for r in self._records() if (r.kind, r.line, r.argument, r.message) == alike)

    def _watched(self, record: _Record, launch: Launch) -> tuple[int, int]:
        """The accesses like a recorded one in one more launch, and all of its line and argument."""
        kind = KINDS.index(record.kind)
        self.library.replay_watch(kind, record.line, record.argument, ctypes.c_int64(record.element))
        launch()
        _, same, reached = self.library.replay_records().split(maxsplit=3)[:3]
        return int(same), int(reached)

    def _access(
        self, record: _Record, loaded: _Loaded | None, tensors: Sequence[torch.Tensor | None], names: Sequence[str]
    ) -> Access:
        text = self.lines[record.line - 1].strip() if 0 < record.line <= len(self.lines) else ""
        index = None
        if loaded is not None:
            index = LoadedIndex(names[loaded.argument], loaded.element, loaded.value, self.parameters[loaded.argument])
        seen = Access("bounds", source=CodeLine("SOURCE", record.line, text), count=record.count, index=index)
        if record.kind == "check":
            return replace(seen, seen_by="assertion", kind="assertion", what=record.message)
        if record.kind == "division":
            return replace(seen, seen_by="division", kind="division", what=record.message)
        tensor, parameter = tensors[record.argument], self.parameters[record.argument]
        elements = 0 if tensor is None else _span(tensor) * tensor.element_size() // record.bytes
        element = record.element
        return replace(
            seen,
            kind=_kind(record.kind, text, _aliases(self.lines, record.line, parameter)),
            argument=names[record.argument],
            parameter=parameter,
            element=element,
            elements=elements,
            beyond=min(element, 0) if element < elements else element - elements + 1,
            in_storage=tensor is not None and _in_storage(tensor, element * record.bytes, record.bytes),
            bytes=record.bytes,
        )


class _CallMemory:
    """The storages behind the arguments of a call.

    Attributes:
        before: their bytes at construction.
    """

    def __init__(self, tensors: Sequence[torch.Tensor | None]) -> None:
        self.tensors = tensors
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage() for t in tensors if t is not None}
        self.bytes = [torch.empty(0, dtype=torch.uint8).set_(storage) for storage in storages.values()]
        self.before = self.copy()

    def copy(self) -> list[torch.Tensor]:
        return [held.clone() for held in self.bytes]

    def restore(self, copies: Sequence[torch.Tensor]) -> None:
        for held, copy in zip(self.bytes, copies, strict=True):
            held.copy_(copy)

    def change(self, loaded: _Loaded) -> bool:
        """Replaces that integer by another one; False if memory does not hold the loaded value.

        A thread remembers what other kernels of this process loaded, too: the dynamic linker makes their variables one.
        """
        tensor = self.tensors[loaded.argument] if loaded.argument < len(self.tensors) else None
        if tensor is None or not 0 <= loaded.element < _span(tensor):
            return False
        row = torch.as_strided(tensor, (_span(tensor),), (1,), tensor.storage_offset())
        if int(row[loaded.element]) != loaded.value:
            return False
        row[loaded.element] = 0 if loaded.value else 1
        return True


def _record(line: str) -> _Record:
    numbers, _, message = line.partition("|")
    kind, place, argument, element, size, count, same, *rest = (int(word) for word in numbers.split())
    triples = zip(rest[::3], rest[1::3], rest[2::3], strict=True)
    loaded = tuple(dict.fromkeys(_Loaded(*triple) for triple in triples))
    return _Record(KINDS[kind], place, argument, element, size, count, same, loaded, message)


def _likeliest(record: _Record) -> list[_Loaded]:
    """The integers that were loaded before, those first that would explain the access."""
    if record.kind == "division":
        return sorted(record.loaded, key=lambda loaded: abs(loaded.value))
    bound = _BOUND.search(record.message)
    size = int(bound[1]) if bound is not None else None

    def unlikely(loaded: _Loaded) -> tuple[bool, int]:
        if size is not None:
            return -size <= loaded.value < size, -abs(loaded.value)
        return not _leads_to(loaded.value, record.element), -abs(loaded.value)

    return sorted(record.loaded, key=unlikely)


def _leads_to(value: int, element: int) -> bool:
    """True if the element may lie in row `value` of rows of some length."""
    if value == 0 or (value < 0) != (element < 0):
        return False
    length = -(element // -value) if value < 0 else element // value
    return length > 0 and 0 <= element - length * value < length


def _aliases(lines: Sequence[str], line: int, parameter: str) -> frozenset[str]:
    """The names of a parameter above a line: `auto in_ptr6 = bias;` gives it another one."""
    names = {parameter}
    for text in lines[: max(line - 1, 0)]:
        alias = _ALIAS.match(text)
        if alias is not None and alias[2] in names:
            names.add(alias[1])
    return frozenset(names)


def _kind(kind: str, text: str, names: frozenset[str]) -> str:
    """The kind of access of `name[index]` on its line, where the kernel may use another name for it."""
    if kind != "element":
        return "access" if kind == "pointer" else kind
    name = re.compile(rf"\b(?:{'|'.join(sorted(names))})\b")
    if re.search(rf"atomic_add\(\s*&\s*{name.pattern}", text):
        return "atomic"
    stored = _STORED.search(text)
    if stored is None or (name.search(text) and not name.search(text[: stored.end()])):
        return "load"
    return "store"


def _span(tensor: torch.Tensor) -> int:
    return reach(tensor) if tensor.numel() else 0


def _in_storage(tensor: torch.Tensor, offset: int, width: int) -> bool:
    begin = int(tensor.storage_offset()) * int(tensor.element_size()) + offset
    return 0 <= begin <= int(tensor.untyped_storage().nbytes()) - width
