"""Explains an out-of-bounds access that was observed: the argument, the element, and the origin of the index.

It walks back from the index, or a divisor, to the launch that computed it, or to the model input that held it. Each
step was observed: the recorded result of a launch holds the number at the same memory. Through a launch the walk goes
on only if the index is out of range and exactly one of the integers that the launch read equals it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from aoti_debug.base import dtypes
from aoti_debug.base.abi import Phase
from aoti_debug.base.frozen import dataclass
from aoti_debug.package.argument_values import Tensor, unravel
from aoti_debug.package.manifest import Role
from aoti_debug.repro.run_repro import Evidence, SeenAccess
from aoti_debug.runs.diagnosis.dataflow import Dataflow
from aoti_debug.runs.diagnosis.findings import Finding, Place, place_of
from aoti_debug.runs.kernel_source.model_lines import access_line
from aoti_debug.runs.rundir.launch import Argument, Launch
from aoti_debug.runs.rundir.load_tensors import saved_values
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.triage.contracts.contracts import zero_sized

_LONGEST = 64  # launches from the victim to the origin
_MAX_ELEMENTS = 1 << 20  # of the tensors of a launch that wrote floats
_SHOWN = 3  # places that hold the same number
_PREPOSITIONS = {"load": "from", "atomic": "on"}


@dataclass(frozen=True)
class IndexValue:
    """An element of an integer argument of a launch.

    Attributes:
        element: row-major.
        limit: values from -limit to limit - 1 are valid; None where that is not known.
        use: what it is, or is made to: "index", "divisor".
    """

    launch: Launch
    argument: Argument
    element: int
    value: int
    limit: int | None
    use: str = "index"

    @property
    def is_bad(self) -> bool:
        """True if the value is known to be out of range."""
        return self.limit is not None and not -self.limit <= self.value < self.limit


@dataclass(frozen=True)
class Walk:
    """The path of an index from its origin to the launch that used it.

    Attributes:
        origin: the launch that computed the value, or the input that held it; None if neither was observed.
        chain: from the first place that is known to the victim, both included.
        evidence: the steps of the walk, in sentences.
        possible: what may have been before them.
    """

    origin: Place | None
    chain: tuple[Place, ...]
    evidence: tuple[str, ...]
    possible: tuple[str, ...] = ()


def integer_inputs(launch: Launch) -> tuple[Argument, ...]:
    """The integer tensors that a launch may read, each once."""
    return tuple(a for a in _inputs(launch) if a.layout is not None and dtypes.is_integer(a.layout.dtype))


def _inputs(launch: Launch) -> tuple[Argument, ...]:
    """The tensors that a launch may read, each once."""
    roles = (Role.IN, Role.INOUT, Role.UNKNOWN)
    inputs = {a.name: a for a in launch.args if isinstance(a.before, Tensor) and a.role in roles}
    return tuple(inputs.values())


def makers(flow: Dataflow, launch: Launch, most: int = 32) -> tuple[Launch, ...]:
    """The launches that wrote a launch's integer inputs, and those that wrote theirs in turn; nearest first.

    An index may be computed from floats: launches that wrote those count where all of their tensors are small.
    """
    producers: dict[str, Launch] = {}
    waiting = [launch]
    while waiting and len(producers) < most:
        reader = waiting.pop(0)
        integers = integer_inputs(reader)
        for argument in (*integers, *(a for a in _inputs(reader) if a not in integers)):
            producer = flow.writer(reader, argument).launch
            if producer is None or producer.id in producers or not (argument in integers or _is_small(producer)):
                continue
            producers[producer.id] = producer
            waiting.append(producer)
    return tuple(producers.values())


def _is_small(launch: Launch) -> bool:
    """True if no tensor of a launch has many elements."""
    return all(a.layout is None or a.layout.numel <= _MAX_ELEMENTS for a in launch.args)


def walk_back(flow: Dataflow, index: IndexValue) -> Walk:
    """The origin of an index.

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
                return Walk(None, tuple(chain), tuple(evidence))
            origin = Place(input=writer.input, argument=index.argument.name, element=index.element)
            evidence.append(f"the {index.use} came from the model's input: {held}")
            return Walk(origin, (origin, *chain), tuple(evidence))
        producer, result = writer.launch, writer.argument
        name = f"launch {producer.id} {producer.kernel}"
        element = _same_memory(index, result)
        if element is None or not _wrote(flow.run, result, element, index.value):
            possible = f"{held}; {name} may have written it: it wrote this memory last"
            return Walk(None, tuple(chain), tuple(evidence), (possible,))
        place = place_of(producer, result.name, element)
        chain.insert(0, place)
        evidence.append(f"the {index.use} {held}; {name} wrote it")
        equal = _equal(flow.run, producer, index)
        if equal == ():
            return Walk(place, tuple(chain), tuple(evidence))
        if equal is None or len(equal) > 1 or not index.is_bad:
            return Walk(None, tuple(chain), tuple(evidence), tuple(_may_be(producer, equal or ())))
        index = equal[0]
    return Walk(None, tuple(chain), tuple(evidence))


def _may_be(producer: Launch, equal: tuple[IndexValue, ...]) -> list[str]:
    if not equal:
        return []
    places = ", ".join(f"{index.argument.name}[{coordinates(index)}]" for index in equal[:_SHOWN])
    more = f" and {len(equal) - _SHOWN} more" if len(equal) > _SHOWN else ""
    return [f"{producer.id} {producer.kernel} may have taken it from {places}{more}, which it read and which is equal"]


def _wrote(run: RunDir, result: Argument, element: int, value: int) -> bool:
    """True if the recorded result of a launch holds the value."""
    values = saved_values(run, result, Phase.AFTER)
    return values is not None and element < values.numel() and int(values.reshape(-1)[element]) == value


def _equal(run: RunDir, producer: Launch, index: IndexValue) -> tuple[IndexValue, ...] | None:
    """The elements of the producer's integer inputs that equal the index; None if not all of these were saved."""
    found: list[IndexValue] = []
    for argument in integer_inputs(producer):
        values = saved_values(run, argument, Phase.BEFORE)
        if values is None:
            return None
        positions = (values.reshape(-1) == index.value).nonzero().reshape(-1).tolist()
        found += [replace(index, launch=producer, argument=argument, element=position) for position in positions]
    return tuple(found)


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


def explain(finding: Finding, flow: Dataflow, launch: Launch, seen: Iterable[Evidence]) -> Finding:
    """The finding with the argument, the element and the origin of the index, as far as a trial has reported them.

    Args:
        flow: of a run that saved the launch's tensors, and those of the launches that made its indices.
        launch: the guilty launch of that run.
        seen: what the repro's trials saw, the most trustworthy first.
    """
    seen = tuple(seen)
    access = best_access(seen)
    victim = replace(finding.where or place_of(launch), frame=access_line(launch))
    sentences: tuple[str, ...] = ()
    if access is not None:
        after = _after_assertion(access, seen)
        sentences = (*_sentences(access), *(() if after is None else tuple(_sentences(after))[:1]))
        accessed = after or access
        if accessed.argument:
            victim = replace(victim, argument=accessed.argument, element=_element(launch, accessed))
    finding = replace(finding, where=victim)
    index = None if access is None else _index(launch, access)
    if index is None:
        empty = tuple(f"{argument.name} has no elements" for argument in zero_sized(launch))
        return replace(finding, evidence=(*sentences, *empty, *finding.evidence))
    if not (index.is_bad or access is None or access.kind == "index" or _is_without(seen, access)):
        computed = f"the address is computed from {index.argument.name}[{coordinates(index)}], which is {index.value}"
        return replace(finding, evidence=(*sentences, computed, *finding.evidence))
    walk = walk_back(flow, index)
    return replace(
        finding,
        evidence=(*sentences, *walk.evidence, *finding.evidence),
        possible=(*walk.possible, *finding.possible),
        origin=walk.origin,
        chain=(*walk.chain[:-1], victim) if len(walk.chain) > 1 else (),
    )


def explain_overrun(finding: Finding, flow: Dataflow, launch: Launch, seen: Iterable[Evidence]) -> Finding:
    """The finding of a write past the end of a buffer, with the index that led there, if one did.

    Args:
        flow, launch, seen: as for `explain`.
    """
    with_index = [evidence for evidence in seen if any(access.index for access in evidence.accesses)]
    if not with_index:
        return finding
    explained = explain(finding, flow, launch, with_index)
    if explained.origin is None or finding.where is None or explained.where is None:
        return finding
    return replace(explained, where=replace(finding.where, frame=explained.where.frame))


def best_access(seen: Iterable[Evidence]) -> SeenAccess | None:
    """The access with an index, or else the first one; None where no trial has reported any."""
    accesses = [access for evidence in seen for access in evidence.accesses]
    return next((a for a in accesses if a.index is not None), accesses[0] if accesses else None)


def _is_without(seen: Iterable[Evidence], access: SeenAccess) -> bool:
    """True if the trial has found that the access does not happen without the index that it names."""
    return any(evidence.mode == "checked" and access in evidence.accesses for evidence in seen)


def _after_assertion(access: SeenAccess, seen: Iterable[Evidence]) -> SeenAccess | None:
    """The access that the index of a failed assertion led to where the kernel went on; None if none was seen."""
    if access.kind != "assertion" or access.index is None:
        return None
    accesses = (other for evidence in seen for other in evidence.accesses)
    return next((other for other in accesses if other.argument and other.index == access.index), None)


def _element(launch: Launch, access: SeenAccess) -> int | None:
    """The accessed element: row-major if it lies inside the argument, else counted in memory order."""
    argument = launch.argument(access.argument)
    if access.element is None or argument is None or argument.tensor is None or access.beyond:
        return access.element
    return argument.tensor.layout.row_major(access.element)


def _sentences(access: SeenAccess) -> Iterable[str]:
    if access.kind == "assertion":
        yield f"an assertion of the kernel failed: {access.what}"
    elif access.kind in ("index", "division"):
        yield access.what
    else:
        kind = access.kind or "access"
        text = f"out-of-bounds {kind} {_PREPOSITIONS.get(kind, 'to')} {access.argument}"
        if access.element is not None and access.elements:
            text += f": element {access.element} of {access.elements}"
        if access.beyond:
            text += f", {abs(access.beyond)} {'past the end' if access.beyond > 0 else 'before the beginning'}"
        yield text
    if access.source is not None and access.source.text:
        yield f"in the kernel's line: {access.source.text.strip()}"


def _index(launch: Launch, access: SeenAccess) -> IndexValue | None:
    """The element of an integer argument that a trial reports as the one that led out of bounds."""
    argument = None if access.index is None else launch.argument(access.index.argument)
    if access.index is None or argument is None or argument.tensor is None:
        return None
    element = argument.tensor.layout.row_major(access.index.element)
    if element is None:
        return None
    if access.kind == "division":
        return IndexValue(launch, argument, element, access.index.value, None, "divisor")
    return IndexValue(launch, argument, element, access.index.value, _index_limit(launch, access.argument))


def _index_limit(launch: Launch, accessed: str) -> int:
    """The longest dimension of the accessed tensor, or of any tensor that is no index: valid indices are below it."""
    target = launch.argument(accessed) if accessed else None
    if target is not None and target.tensor is not None and target.tensor.layout.numel == 0:
        return 0
    others = [a for a in launch.args if a not in integer_inputs(launch)]
    shapes = [a.tensor.layout.shape for a in ([target] if target else others) if a.tensor is not None]
    return max((size for shape in shapes for size in shape), default=0)
