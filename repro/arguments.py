"""The tensors of a launch as its repro declares them: named, with one role each, on the storages that they shared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from aoti_debug.base.frozen import dataclass
from aoti_debug.package.argument_values import Layout, Tensor
from aoti_debug.package.manifest import Role
from aoti_debug.repro.literals import identifiers
from aoti_debug.repro.recorded_launch import RecordedLaunch, RecordedSlot

ALIGNMENT = 128  # as in templates/memory.py

_ROLES = {Role.IN: "in", Role.OUT: "out", Role.INOUT: "in-out"}


@dataclass(frozen=True)
class StorageBlock:
    """A block of memory that one argument, or several, lay in.

    Attributes:
        address: of its first byte, modulo 128.
    """

    name: str
    bytes: int
    address: int
    device: str


@dataclass(frozen=True)
class TensorArgument:
    """A tensor that is passed to the launch.

    Attributes:
        name: a Python identifier, unique in the launch.
        role: "in", "out", "in-out" or "unknown".
        slot: the slot that its files come from.
    """

    name: str
    role: str
    layout: Layout
    storage: str
    offset: int  # elements from the storage's beginning
    slot: RecordedSlot

    @property
    def written(self) -> bool:
        """True unless the launch only reads it."""
        return self.role != "in"


@dataclass(frozen=True)
class AllocatedResult:
    """A tensor that the launch allocated."""

    name: str
    layout: Layout
    slot: RecordedSlot


@dataclass(frozen=True)
class ReproArguments:
    """The tensors of a launch, ready to be written into a repro.

    Attributes:
        names: slot name -> Python identifier, of tensors and results.
    """

    names: dict[str, str]
    storages: tuple[StorageBlock, ...]
    tensors: tuple[TensorArgument, ...]
    results: tuple[AllocatedResult, ...]

    def missing(self, *, fault: bool) -> Iterator[str]:
        """Yields one text for each tensor that a replay needs and the run did not save.

        Args:
            fault: the launch ended in a fault: its results, and an output's memory before it, are not needed.
        """
        for argument in self.tensors:
            if argument.slot.before is None and not (fault and argument.role == "out"):
                yield _missing(argument.slot, "before")
            elif argument.written and argument.slot.after is None and not fault:
                yield _missing(argument.slot, "after")
        for result in self.results:
            if result.slot.after is None and not fault:
                yield _missing(result.slot, "after")


def arguments_of(launch: RecordedLaunch) -> ReproArguments:
    """The arguments of a launch. A tensor that is passed twice is one argument."""
    passed = [s for s in launch.slots if s.tensor is not None and not s.is_made]
    made = [s for s in launch.slots if s.tensor is not None and s.is_made]
    names = identifiers(s.arg.name for s in (*passed, *made))
    groups: dict[str, list[RecordedSlot]] = {}
    for slot in passed:
        groups.setdefault(slot.arg.name, []).append(slot)

    chosen = {name: next((s for s in slots if s.before is not None), slots[0]) for name, slots in groups.items()}
    storages = _storages({names[name]: s.tensor for name, s in chosen.items() if s.tensor is not None})
    tensors = tuple(
        TensorArgument(
            names[name],
            _role(groups[name]),
            slot.tensor.layout,
            *_place(names[name], slot.tensor, storages),
            _with_after(slot, groups[name]),
        )
        for name, slot in chosen.items()
        if slot.tensor is not None
    )
    results = tuple(AllocatedResult(names[s.arg.name], s.tensor.layout, s) for s in made if s.tensor is not None)
    return ReproArguments(names, tuple(s.block for s in storages), tensors, results)


@dataclass(frozen=True)
class _Region:
    """Addresses from `begin` to `end` of one device, and the arguments that lie there."""

    block: StorageBlock
    begin: int
    end: int
    members: frozenset[str]


def _storages(tensors: dict[str, Tensor]) -> list[_Region]:
    """One region a storage; storages that overlap are one, so that a write through one shows in the other."""
    regions: list[_Region] = []
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].storage_ptr, -item[1].layout.storage_bytes)):
        layout, begin = tensor.layout, tensor.storage_ptr
        empty = layout.numel == 0
        end = begin if empty else begin + layout.storage_bytes
        around = None if empty else next((r for r in regions if _shares(r, tensor)), None)
        if around is None:
            block = StorageBlock(name, end - begin, begin % ALIGNMENT, layout.device)
            regions.append(_Region(block, begin, end, frozenset({name})))
        else:
            end = max(end, around.end)
            block = replace(around.block, bytes=end - around.begin)
            regions[regions.index(around)] = _Region(block, around.begin, end, around.members | {name})
    order = list(tensors)
    return sorted(regions, key=lambda r: order.index(r.block.name))


def _shares(region: _Region, tensor: Tensor) -> bool:
    return (
        region.block.device == tensor.layout.device
        and region.begin <= tensor.storage_ptr < region.end
        and (tensor.data_ptr - region.begin) % max(tensor.layout.item_bytes, 1) == 0
    )


def _place(name: str, tensor: Tensor, regions: list[_Region]) -> tuple[str, int]:
    """The storage of an argument, and where in it the argument begins (elements)."""
    region = next(r for r in regions if name in r.members)
    if tensor.layout.numel == 0:
        return region.block.name, 0
    return region.block.name, (tensor.data_ptr - region.begin) // max(tensor.layout.item_bytes, 1)


def _role(slots: list[RecordedSlot]) -> str:
    roles = {s.arg.role for s in slots}
    if len(roles) == 1:
        return _ROLES.get(next(iter(roles)), "unknown")
    return "in-out" if roles <= set(_ROLES) else "unknown"


def _with_after(slot: RecordedSlot, slots: list[RecordedSlot]) -> RecordedSlot:
    if slot.after is not None:
        return slot
    after = next((s.after for s in slots if s.after is not None), None)
    return RecordedSlot(slot.arg, slot.value, slot.before, after, slot.reason)


def _missing(slot: RecordedSlot, phase: str) -> str:
    return f"{slot.arg.name} {phase} the launch" + (f" ({slot.reason})" if slot.reason else "")
