"""Explains an out-of-bounds access: the argument, the element, and the origin of the index."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from aoti_debug.abi import Phase
from aoti_debug.diagnosis.dataflow import Dataflow
from aoti_debug.diagnosis.findings import Finding, place_of
from aoti_debug.repro.evidence import Evidence, SeenAccess
from aoti_debug.rundir.load_tensors import saved_values
from aoti_debug.rundir.run_directory import RunDir
from aoti_debug.rundir.timeline import Launch
from aoti_debug.triage.contracts.contracts import zero_sized
from aoti_debug.triage.kernel_source.model_lines import access_line, index_line
from aoti_debug.triage.memory_errors.walk_back import IndexValue, coordinates, integer_inputs, walk_back

_PREPOSITIONS = {"load": "from", "atomic": "on"}


def explain(finding: Finding, flow: Dataflow, launch: Launch, seen: Iterable[Evidence]) -> Finding:
    """The finding with the argument, the element and the origin of the index, as far as they are known.

    Args:
        flow: of a run that saved the launch's tensors, and those of the launches that made its indices.
        launch: the guilty launch of that run.
        seen: what the repro's trials saw, the most trustworthy first.
    """
    access = _best_access(seen)
    line = access_line(launch)
    sentences: tuple[str, ...] = ()
    victim = replace(finding.where or place_of(launch), frame=line)
    if access is not None:
        sentences = tuple(_sentences(access))
        if access.argument:
            victim = replace(victim, argument=access.argument, element=_element(launch, access))
    finding = replace(finding, where=victim)
    index = _faulty_index(flow.run, launch, access)
    if index is None:
        computing_line = index_line(launch, line)
        return replace(
            finding,
            evidence=(
                *sentences,
                *(f"{argument.name} has no elements" for argument in zero_sized(launch)),
                *finding.evidence,
            ),
            origin=replace(place_of(launch), frame=computing_line) if computing_line != line else None,
        )
    if _is_computed_here(index, access):
        computed = (
            f"the kernel computes the index from {index.argument.name}[{coordinates(index)}], which is {index.value}"
        )
        origin = replace(place_of(launch, index.argument.name, index.element), frame=index_line(launch, line))
        return replace(finding, evidence=(*sentences, computed, *finding.evidence), origin=origin)
    walk = walk_back(flow, index)
    origin = walk.origin
    if origin.launch and origin.launch != launch.id:
        origin = replace(origin, frame=index_line(flow.run.launch(origin.launch), line))
    return replace(
        finding,
        evidence=(*sentences, *walk.evidence, *finding.evidence),
        origin=origin,
        chain=(origin, *walk.chain[1:-1], victim) if len(walk.chain) > 1 else (),
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


def _is_computed_here(index: IndexValue, access: SeenAccess | None) -> bool:
    """True if the launch computes the index from a value that is no bad index itself."""
    if not index.is_bad:
        return True
    return not (index.is_absurd or access is None or access.kind == "index" or _is_used_unchanged(index, access))


def _is_used_unchanged(index: IndexValue, access: SeenAccess) -> bool:
    """True if the value itself, as an index along some dimension, leads to the accessed element."""
    accessed = index.launch.argument(access.argument)
    if access.element is None or accessed is None or accessed.tensor is None:
        return True
    layout = accessed.tensor.layout
    for size, stride in zip(layout.shape, layout.strides, strict=True):
        if stride > 0 and access.element // stride in (index.value, index.value + size):
            return True
    return False


def _element(launch: Launch, access: SeenAccess) -> int | None:
    """The accessed element: row-major if it lies inside the argument, else counted in memory order."""
    argument = launch.argument(access.argument)
    if access.element is None or argument is None or argument.tensor is None or access.beyond:
        return access.element
    return argument.tensor.layout.row_major(access.element)


def _best_access(seen: Iterable[Evidence]) -> SeenAccess | None:
    """The access with an index, or else the first one."""
    accesses = [access for evidence in seen for access in evidence.accesses]
    return next((a for a in accesses if a.index is not None), accesses[0] if accesses else None)


def _sentences(access: SeenAccess) -> Iterable[str]:
    if access.kind == "assertion":
        yield f"an assertion of the kernel failed: {access.what}"
    elif access.kind == "index":
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


def _faulty_index(run: RunDir, launch: Launch, access: SeenAccess | None) -> IndexValue | None:
    """The element of an integer argument that led out of bounds.

    It is the one that a trial reports, or else the element that is furthest out of range.
    """
    limit = _index_limit(launch, access.argument if access is not None else "")
    if access is not None and access.index is not None:
        argument = launch.argument(access.index.argument)
        if argument is not None and argument.tensor is not None:
            element = argument.tensor.layout.row_major(access.index.element)
            if element is not None:
                return IndexValue(launch, argument, element, access.index.value, limit)
    worst: IndexValue | None = None
    for argument in integer_inputs(launch):
        values = saved_values(run, argument, Phase.BEFORE)
        if values is None or values.numel() == 0:
            continue
        flat = values.reshape(-1)
        for position in {int(flat.argmax()), int(flat.argmin())}:
            index = IndexValue(launch, argument, position, int(flat[position]), limit)
            if index.is_bad and (worst is None or abs(index.value) > abs(worst.value)):
                worst = index
    return worst


def _index_limit(launch: Launch, accessed: str) -> int:
    """The longest dimension of the accessed tensor, or of any tensor that is no index: valid indices are below it."""
    target = launch.argument(accessed) if accessed else None
    if target is not None and target.tensor is not None and target.tensor.layout.numel == 0:
        return 0
    others = [a for a in launch.args if a not in integer_inputs(launch)]
    shapes = [a.tensor.layout.shape for a in ([target] if target else others) if a.tensor is not None]
    return max((size for shape in shapes for size in shape), default=0)
