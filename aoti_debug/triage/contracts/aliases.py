"""Memory that two tensors share although the graph was promised that each has its own.

Harmless as long as nobody writes to it: only shared memory that a later launch changes is a finding.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from aoti_debug.diagnosis.dataflow import Span, outside_name, span_of
from aoti_debug.diagnosis.findings import Finding, Place, place_of
from aoti_debug.rundir.run_directory import RunDir
from aoti_debug.rundir.timeline import Argument, Launch
from aoti_debug.triage.contracts.kind import CONTRACT
from aoti_debug.values import Tensor
from aoti_debug.wrapper.forms import traits_of

_ATEN = "aten."


def check(run: RunDir) -> tuple[Finding, ...]:
    """Inputs that overlap, and results of custom operators that are views of their arguments, where a launch writes to
    them."""
    by_call: dict[tuple[object, int], list[Launch]] = {}
    for launch in run.launches:
        by_call.setdefault((launch.key.kind, launch.key.call), []).append(launch)
    found: list[Finding] = []
    for launches in by_call.values():
        found += [*_inputs(run, launches), *_results(launches)]
    return tuple({finding.what: finding for finding in found}.values())


def _inputs(run: RunDir, launches: list[Launch]) -> Iterator[Finding]:
    known = set(run.manifest.inputs)
    inputs = {a.name: (a, s) for x in launches for a in x.args if a.name in known and (s := span_of(a)) is not None}
    for (one, first), (other, second) in combinations(inputs.values(), 2):
        if not first.overlaps(second):
            continue
        names = tuple(outside_name(run.manifest, argument) for argument in (one, other))
        for launch in launches:
            changed = _written(launch, (first, second))
            if changed is None:
                continue
            name = outside_name(run.manifest, changed)
            yield Finding(
                CONTRACT,
                f"the inputs {names[0]} and {names[1]} share memory, and the model writes to it",
                where=Place(input=name if name in names else names[0], argument=changed.name),
                evidence=(
                    f"launch {launch.id} {launch.kernel} writes to {changed.name}; the model was compiled for inputs "
                    "with memory of their own",
                    f"{names[0]} lies at {first.begin:#x} to {first.end:#x}, {names[1]} at {second.begin:#x} to "
                    f"{second.end:#x}",
                ),
                next=(f"pass a copy: {names[0]}.clone()",),
            )
            break


def _results(launches: list[Launch]) -> Iterator[Finding]:
    for position, launch in enumerate(launches):
        site = launch.site
        if not traits_of(site.kind).user_operator or site.op.startswith(_ATEN) or "(a" in site.schema:
            continue
        later = launches[position + 1 :]
        for result, argument in _shared(launch):
            spans = tuple(s for s in (span_of(result), span_of(argument)) if s is not None)
            writer = next((x for x in later if _written(x, spans, result.name, argument.name) is not None), None)
            if writer is None:
                continue
            yield Finding(
                CONTRACT,
                f"{launch.kernel} returned a view of its argument {argument.name}, and not a tensor of its own",
                where=place_of(launch, result.name),
                evidence=(
                    f"launch {writer.id} {writer.kernel} writes to the memory that {result.name} and {argument.name} "
                    "share",
                    f"{launch.site.op}: its schema promises a new tensor; return result.clone(), or declare the alias",
                ),
            )


def _shared(launch: Launch) -> Iterator[tuple[Argument, Argument]]:
    """Tensors that a launch made, each with the argument whose memory it has."""
    given = {a.name: a for a in launch.args if isinstance(a.before, Tensor)}
    for result in launch.args:
        span = span_of(result)
        if isinstance(result.before, Tensor) or span is None:
            continue
        for argument in given.values():
            other = span_of(argument)
            if other is not None and span.overlaps(other):
                yield result, argument


def _written(launch: Launch, spans: tuple[Span, ...], *names: str) -> Argument | None:
    """What a launch writes of some memory; with `names`, as one of them or a view of one."""
    for argument in launch.args:
        span = span_of(argument)
        known = not names or argument.name in names or argument.spec.base in names
        if argument.written and span is not None and known and all(span.overlaps(other) for other in spans):
            return argument
    return None
