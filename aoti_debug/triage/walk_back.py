"""From a bad index back to the launch that made it, or to the model input that held it.

A launch that reads an index and hands it on (a copy, a permutation, a gather of indices) is not its origin: the walk
goes on as long as an integer input of the launch holds the same value, or at the same place one that is absurd.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aoti_debug.abi import Phase, SaveStatus
from aoti_debug.dataflow import Dataflow
from aoti_debug.findings import Place, place_of
from aoti_debug.launches import Argument, Launch
from aoti_debug.manifest import Role
from aoti_debug.rundir import RunDir
from aoti_debug.tensors import load_values
from aoti_debug.values import Layout, Tensor

if TYPE_CHECKING:
    import torch

_INTEGERS = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"})
_ABSURD = 1 << 20  # times the largest index
_LONGEST = 64  # launches from the victim to the origin


@dataclass(frozen=True)
class Index:
    """An element of an integer argument of a launch.

    Attributes:
        element: row-major.
        limit: valid are the values from -limit to limit - 1.
    """

    launch: Launch
    argument: Argument
    element: int
    value: int
    limit: int

    def is_bad(self, value: int) -> bool:
        return not -self.limit <= value < self.limit

    @property
    def is_absurd(self) -> bool:
        """Whether no computation would take the value for an index, or for a part of one."""
        return abs(self.value) > max(self.limit, 1) * _ABSURD


@dataclass(frozen=True)
class Walk:
    """
    Attributes:
        origin: the launch that made the value, or the input that held it.
        chain: from the origin to the victim, both included.
        evidence: how it went, in sentences.
    """

    origin: Place
    chain: tuple[Place, ...]
    evidence: tuple[str, ...]


def integer_inputs(launch: Launch) -> tuple[Argument, ...]:
    """The integer tensors that a launch may read, each once."""
    found = {
        a.name: a
        for a in launch.args
        if isinstance(a.before, Tensor)
        and a.before.layout.dtype in _INTEGERS
        and a.role in (Role.IN, Role.INOUT, Role.UNKNOWN)
    }
    return tuple(found.values())


def makers(flow: Dataflow, launch: Launch, most: int = 32) -> tuple[Launch, ...]:
    """The launches that made what the launch's integer inputs hold, and what theirs hold in turn; nearest first."""
    found: dict[str, Launch] = {}
    waiting = [launch]
    while waiting and len(found) < most:
        reader = waiting.pop(0)
        for argument in integer_inputs(reader):
            maker = flow.writer(reader, argument).launch
            if maker is not None and maker.id not in found:
                found[maker.id] = maker
                waiting.append(maker)
    return tuple(found.values())


def walk_back(run: RunDir, flow: Dataflow, index: Index) -> Walk:
    """
    Args:
        run: a run that saved the tensors of `makers`; the walk ends at the first launch of which it has none.
        flow: of the same run.
    """
    chain = [place_of(index.launch, index.argument.name, index.element)]
    evidence: list[str] = []
    while len(chain) < _LONGEST:
        writer = flow.writer(index.launch, index.argument)
        held = f"{writer.input or index.argument.name}[{coordinates(index)}] is {index.value}"
        if writer.launch is None or writer.argument is None:
            if not writer.input:
                evidence.append(f"{held}, and nothing recorded says who wrote it")
                return Walk(chain[0], tuple(chain), tuple(evidence))
            origin = Place(input=writer.input, argument=index.argument.name, element=index.element)
            evidence.append(f"the index came from the model's input: {held}")
            return Walk(origin, (origin, *chain), tuple(evidence))
        maker, made = writer.launch, writer.argument
        element = _same_memory(index, made)
        chain.insert(0, place_of(maker, made.name, element))
        handed_on = _handed_on(run, maker, index)
        evidence.append(f"the index {held}; launch {maker.id} {maker.kernel} wrote it")
        if handed_on is None:
            return Walk(chain[0], tuple(chain), tuple(evidence))
        index = handed_on
    return Walk(chain[0], tuple(chain), tuple(evidence))


def _handed_on(run: RunDir, maker: Launch, index: Index) -> Index | None:
    """The integer input of the maker that held a bad value already."""
    for argument in integer_inputs(maker):
        values = saved_values(run, argument, Phase.BEFORE)
        if values is None:
            continue
        flat = values.reshape(-1)
        position = _corresponding(index, values.shape)
        if position is not None:
            found = Index(maker, argument, position, int(flat[position]), index.limit)
            if found.is_bad(found.value) and (found.value == index.value or found.is_absurd):
                return found
        if not index.is_bad(index.value):
            continue
        same = (flat == index.value).nonzero()
        if len(same):
            return Index(maker, argument, int(same[0]), index.value, index.limit)
    return None


def saved_values(run: RunDir, argument: Argument, phase: Phase) -> torch.Tensor | None:
    """The logical tensor as it was saved, contiguous and on the CPU; None where it was not."""
    saved = argument.files.get(phase)
    if saved is None or saved.status is SaveStatus.SKIPPED:
        return None
    return load_values(run.tensor_path(saved))[0]


def _corresponding(index: Index, shape: Sequence[int]) -> int | None:
    """The element of a tensor of `shape` that stands where the index stands, dimensions of size 1 being repeated."""
    tensor = index.argument.tensor
    if tensor is None:
        return None
    count = 1
    for size in shape:
        count *= size
    if count == tensor.layout.numel:
        return index.element
    coordinates = unravel(index.element, tensor.layout.shape)
    if len(shape) > len(coordinates) or count == 0:
        return None
    flat = 0
    if any(size not in (1, full) for size, full in zip(reversed(shape), reversed(tensor.layout.shape), strict=False)):
        return None
    scale = 1
    for size, at in zip(reversed(shape), reversed(coordinates), strict=False):
        flat += (at if size != 1 else 0) * scale
        scale *= size
    return flat


def _same_memory(index: Index, made: Argument) -> int | None:
    """The row-major element of `made` at the address of the index; None where its layout has none there."""
    read, written = index.argument.tensor, made.tensor
    if read is None or written is None or written.layout.item_bytes == 0:
        return None
    at = unravel(index.element, read.layout.shape)
    offset = sum(c * s for c, s in zip(at, read.layout.strides, strict=True)) * read.layout.item_bytes
    distance, rest = divmod(read.data_ptr + offset - written.data_ptr, written.layout.item_bytes)
    return None if rest or distance < 0 else row_major(distance, written.layout)


def row_major(distance: int, layout: Layout) -> int | None:
    """The row-major index of the element that lies `distance` elements from element 0 in memory; None if there is
    none."""
    shape, strides = layout.shape, layout.strides
    coordinates = [0] * len(shape)
    for dim in sorted(range(len(shape)), key=lambda d: -strides[d]):
        if strides[dim] > 0 and shape[dim] > 1:
            coordinates[dim] = min(distance // strides[dim], shape[dim] - 1)
            distance -= coordinates[dim] * strides[dim]
    if distance:
        return None
    flat = 0
    for size, at in zip(shape, coordinates, strict=True):
        flat = flat * size + at
    return flat


def unravel(element: int, shape: Sequence[int]) -> tuple[int, ...]:
    """The coordinates of a row-major index."""
    found: list[int] = []
    for size in reversed(shape):
        element, at = divmod(element, size)
        found.insert(0, at)
    return tuple(found)


def coordinates(index: Index) -> str:
    tensor = index.argument.tensor
    shape = tensor.layout.shape if tensor is not None else ()
    return ", ".join(map(str, unravel(index.element, shape)))
