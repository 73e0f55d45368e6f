"""Explains an out-of-bounds access that was observed: the argument, the element, and the origin of the index."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from aoti_debug.repro.evidence import Evidence, SeenAccess
from aoti_debug.runs.diagnosis.dataflow import Dataflow
from aoti_debug.runs.diagnosis.findings import Finding, place_of
from aoti_debug.runs.kernel_source.model_lines import access_line
from aoti_debug.runs.rundir.timeline import Launch
from aoti_debug.triage.contracts.contracts import zero_sized
from aoti_debug.triage.memory_errors.walk_back import IndexValue, coordinates, integer_inputs, walk_back

_PREPOSITIONS = {"load": "from", "atomic": "on"}


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
