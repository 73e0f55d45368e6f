"""From a bad index back to the launch that made it, or to the model input that held it.

A launch that reads an index and hands it on (a copy, a permutation, a gather of indices) is not its origin: the walk
goes on as long as an integer input of the launch holds the same value, or at the same place one that is absurd.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from aoti_debug import dtypes
from aoti_debug.abi import Phase
from aoti_debug.diagnosis.dataflow import Dataflow
from aoti_debug.diagnosis.findings import Place, place_of
from aoti_debug.manifest import Role
from aoti_debug.rundir.load_tensors import saved_values
from aoti_debug.rundir.run_directory import RunDir
from aoti_debug.rundir.timeline import Argument, Launch
from aoti_debug.values import Tensor, ravel, unravel

_ABSURD = 1 << 20  # times the largest index
_LONGEST = 64  # launches from the victim to the origin


@dataclass(frozen=True)
class IndexValue:
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

    @property
    def is_bad(self) -> bool:
        return not -self.limit <= self.value < self.limit

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
        and dtypes.is_integer(a.before.layout.dtype)
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


def walk_back(flow: Dataflow, index: IndexValue) -> Walk:
    """Where a bad index came from.

    Args:
        flow: of a run that saved the tensors of `makers`; the walk ends at the first launch of which it has none.
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
        handed_on = _handed_on(flow.run, maker, index)
        evidence.append(f"the index {held}; launch {maker.id} {maker.kernel} wrote it")
        if handed_on is None:
            return Walk(chain[0], tuple(chain), tuple(evidence))
        index = handed_on
    return Walk(chain[0], tuple(chain), tuple(evidence))


def _handed_on(run: RunDir, maker: Launch, index: IndexValue) -> IndexValue | None:
    """The integer input of the maker that held a bad value already."""
    for argument in integer_inputs(maker):
        values = saved_values(run, argument, Phase.BEFORE)
        if values is None:
            continue
        flat = values.reshape(-1)
        position = _corresponding(index, values.shape)
        if position is not None:
            found = IndexValue(maker, argument, position, int(flat[position]), index.limit)
            if found.is_bad and (found.value == index.value or found.is_absurd):
                return found
        same = (flat == index.value).nonzero()
        if len(same):
            return IndexValue(maker, argument, int(same[0]), index.value, index.limit)
    return None


def _corresponding(index: IndexValue, shape: Sequence[int]) -> int | None:
    """The element of a tensor of `shape` that stands where the index stands, dimensions of size 1 being repeated."""
    tensor = index.argument.tensor
    if tensor is None:
        return None
    whole = tensor.layout.shape
    if math.prod(shape) == tensor.layout.numel:
        return index.element
    if len(shape) > len(whole):
        return None
    inner = whole[len(whole) - len(shape) :]
    if any(size not in (1, full) for size, full in zip(shape, inner, strict=True)):
        return None
    there = unravel(index.element, whole)[len(whole) - len(shape) :]
    return ravel([0 if size == 1 else at for size, at in zip(shape, there, strict=True)], shape)


def _same_memory(index: IndexValue, made: Argument) -> int | None:
    """The row-major element of `made` at the address of the index; None where its layout has none there."""
    read, written = index.argument.tensor, made.tensor
    if read is None or written is None or written.layout.item_bytes == 0:
        return None
    at = unravel(index.element, read.layout.shape)
    offset = sum(c * s for c, s in zip(at, read.layout.strides, strict=True)) * read.layout.item_bytes
    distance, rest = divmod(read.data_ptr + offset - written.data_ptr, written.layout.item_bytes)
    return None if rest or distance < 0 else written.layout.row_major(distance)


def coordinates(index: IndexValue) -> str:
    tensor = index.argument.tensor
    shape = tensor.layout.shape if tensor is not None else ()
    return ", ".join(map(str, unravel(index.element, shape)))
