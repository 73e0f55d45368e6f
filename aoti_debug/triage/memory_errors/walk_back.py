"""Walks back from a bad index to the launch that computed it, or to the model input that held it.

A launch that only moves an index (a copy, a permutation, a gather of indices) is not its origin: the walk continues as
long as an integer input of the launch holds the same value, or an absurd one at the same place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from aoti_debug import dtypes
from aoti_debug.abi import Phase
from aoti_debug.diagnosis.dataflow import Dataflow
from aoti_debug.diagnosis.findings import Place, place_of
from aoti_debug.lazy.dataclass import dataclass
from aoti_debug.manifest import Role
from aoti_debug.recording.values import Tensor, ravel, unravel
from aoti_debug.rundir.load_tensors import saved_values
from aoti_debug.rundir.run_directory import RunDir
from aoti_debug.rundir.timeline import Argument, Launch

_ABSURD = 1 << 20  # times the largest index
_LONGEST = 64  # launches from the victim to the origin


@dataclass(frozen=True)
class IndexValue:
    """An element of an integer argument of a launch.

    Attributes:
        element: row-major.
        limit: values from -limit to limit - 1 are valid.
    """

    launch: Launch
    argument: Argument
    element: int
    value: int
    limit: int

    @property
    def is_bad(self) -> bool:
        """True if the value is out of range."""
        return not -self.limit <= self.value < self.limit

    @property
    def is_absurd(self) -> bool:
        """True if the value is so large that it cannot be an index, nor an operand of one."""
        return abs(self.value) > max(self.limit, 1) * _ABSURD


@dataclass(frozen=True)
class Walk:
    """The path of an index from its origin to the launch that used it.

    Attributes:
        origin: the launch that computed the value, or the input that held it.
        chain: from the origin to the victim, both included.
        evidence: the steps of the walk, in sentences.
    """

    origin: Place
    chain: tuple[Place, ...]
    evidence: tuple[str, ...]


def integer_inputs(launch: Launch) -> tuple[Argument, ...]:
    """The integer tensors that a launch may read, each once."""
    inputs = {
        a.name: a
        for a in launch.args
        if isinstance(a.before, Tensor)
        and dtypes.is_integer(a.before.layout.dtype)
        and a.role in (Role.IN, Role.INOUT, Role.UNKNOWN)
    }
    return tuple(inputs.values())


def makers(flow: Dataflow, launch: Launch, most: int = 32) -> tuple[Launch, ...]:
    """The launches that wrote a launch's integer inputs, and those that wrote theirs in turn; nearest first."""
    producers: dict[str, Launch] = {}
    waiting = [launch]
    while waiting and len(producers) < most:
        reader = waiting.pop(0)
        for argument in integer_inputs(reader):
            producer = flow.writer(reader, argument).launch
            if producer is not None and producer.id not in producers:
                producers[producer.id] = producer
                waiting.append(producer)
    return tuple(producers.values())


def walk_back(flow: Dataflow, index: IndexValue) -> Walk:
    """The origin of a bad index.

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
                evidence.append(f"{held}, and no recorded launch wrote it")
                return Walk(chain[0], tuple(chain), tuple(evidence))
            origin = Place(input=writer.input, argument=index.argument.name, element=index.element)
            evidence.append(f"the index came from the model's input: {held}")
            return Walk(origin, (origin, *chain), tuple(evidence))
        producer, result = writer.launch, writer.argument
        element = _same_memory(index, result)
        chain.insert(0, place_of(producer, result.name, element))
        source = _source_index(flow.run, producer, index)
        evidence.append(f"the index {held}; launch {producer.id} {producer.kernel} wrote it")
        if source is None:
            return Walk(chain[0], tuple(chain), tuple(evidence))
        index = source
    return Walk(chain[0], tuple(chain), tuple(evidence))


def _source_index(run: RunDir, producer: Launch, index: IndexValue) -> IndexValue | None:
    """The element of the producer's integer inputs that held the bad value already; None if it computed the value."""
    for argument in integer_inputs(producer):
        values = saved_values(run, argument, Phase.BEFORE)
        if values is None:
            continue
        flat = values.reshape(-1)
        position = _corresponding(index, values.shape)
        if position is not None:
            candidate = IndexValue(producer, argument, position, int(flat[position]), index.limit)
            if candidate.value == index.value or candidate.is_absurd:
                return candidate
        equal = (flat == index.value).nonzero()
        if len(equal):
            return IndexValue(producer, argument, int(equal[0]), index.value, index.limit)
    return None


def _corresponding(index: IndexValue, shape: Sequence[int]) -> int | None:
    """The element of a tensor of `shape` at the coordinates of the index, with broadcasting; None if shapes differ."""
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
    position = unravel(index.element, whole)[len(whole) - len(shape) :]
    return ravel([0 if size == 1 else at for size, at in zip(shape, position, strict=True)], shape)


def _same_memory(index: IndexValue, result: Argument) -> int | None:
    """The row-major element of `result` at the address of the index; None if its layout has none at that address."""
    read, written = index.argument.tensor, result.tensor
    if read is None or written is None or written.layout.item_bytes == 0:  # 0: unknown dtype
        return None
    at = unravel(index.element, read.layout.shape)
    offset = sum(c * s for c, s in zip(at, read.layout.strides, strict=True)) * read.layout.item_bytes
    distance, rest = divmod(read.data_ptr + offset - written.data_ptr, written.layout.item_bytes)
    return None if rest or distance < 0 else written.layout.row_major(distance)


def coordinates(index: IndexValue) -> str:
    """The coordinates of an index in its tensor: "3, 0"."""
    tensor = index.argument.tensor
    shape = tensor.layout.shape if tensor is not None else ()
    return ", ".join(map(str, unravel(index.element, shape)))
