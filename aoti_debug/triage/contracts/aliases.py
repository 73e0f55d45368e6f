"""Checks for aliases that the graph does not know of: tensors that share memory although each was promised its own.

Shared memory is harmless as long as it is only read: it is a finding only if a launch writes to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from aoti_debug.package.launch_traits import traits_of
from aoti_debug.package.manifest import Site
from aoti_debug.package.recording.values import Tensor
from aoti_debug.runs.diagnosis.dataflow import ByteRange, input_or_weight_name, model_name, span_of
from aoti_debug.runs.diagnosis.findings import Finding, Place, place_of
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.timeline import Argument, Launch
from aoti_debug.triage.results.finding_kinds import CONTRACT

_ATEN = "aten."


def check(run: RunDir) -> tuple[Finding, ...]:
    """Findings of overlapping inputs and of custom operators that return views, if a launch writes to the memory."""
    names, sites = set(run.manifest.inputs), run.manifest.sites
    reading = {site.id for site in sites if not names.isdisjoint(spec.name for spec in site.args)}
    custom = {site.id for site in sites if _promises_a_new_tensor(run, site)}
    findings: list[Finding] = []
    for launches in run.launches.by_call(reading | custom):
        findings += _shared_inputs(run, [launch for launch in launches if launch.site.id in reading])
        findings += _view_results(run, [launch for launch in launches if launch.site.id in custom])
    return tuple({finding.what: finding for finding in findings}.values())


def _shared_inputs(run: RunDir, reading: Sequence[Launch]) -> Iterator[Finding]:
    names = set(run.manifest.inputs)
    inputs = {a.name: (a, s) for x in reading for a in x.args if a.name in names and (s := span_of(a)) is not None}
    for (first_input, first), (second_input, second) in combinations(inputs.values(), 2):
        if not first.overlaps(second):
            continue
        shared = tuple(input_or_weight_name(run.manifest, argument) for argument in (first_input, second_input))
        for launch in run.launches.of_call(reading[0]):
            changed = _written(launch, (first, second))
            if changed is None:
                continue
            name = input_or_weight_name(run.manifest, changed)
            yield Finding(
                CONTRACT,
                f"the inputs {shared[0]} and {shared[1]} share memory, and the model writes to it",
                where=Place(input=name if name in shared else shared[0], argument=changed.name),
                evidence=(
                    f"launch {launch.id} {launch.kernel} writes to {name}; the model was compiled for inputs "
                    "that do not share memory",
                    f"{shared[0]} lies at {first.begin:#x} to {first.end:#x}, {shared[1]} at {second.begin:#x} to "
                    f"{second.end:#x}",
                ),
                next=(f"pass a copy: {shared[0]}.clone()",),
            )
            break


def _view_results(run: RunDir, custom: Sequence[Launch]) -> Iterator[Finding]:
    for launch in custom:
        for result, argument in _shared(launch):
            spans = tuple(s for s in (span_of(result), span_of(argument)) if s is not None)
            later = run.launches.later_in_call(launch)
            writer = next((x for x in later if _written(x, spans, result.name, argument.name) is not None), None)
            if writer is None:
                continue
            name = model_name(run.manifest, argument)
            yield Finding(
                CONTRACT,
                f"{launch.kernel} returned a view of its argument {name}, not a new tensor",
                where=place_of(launch, result.name),
                evidence=(
                    f"launch {writer.id} {writer.kernel} writes to the memory that {result.name} and {name} share",
                    f"{launch.site.op}: its schema promises a new tensor; return result.clone(), or declare the alias",
                ),
            )


def _promises_a_new_tensor(run: RunDir, site: Site) -> bool:
    """True for a custom operator whose results are not declared to share memory with its arguments."""
    is_custom = traits_of(site.kind).user_operator and not site.op.startswith(_ATEN)
    return is_custom and not _may_return_view(run, site.op)


def _may_return_view(run: RunDir, op: str) -> bool:
    """True if an operator's schema declares that a result may share memory with an argument: `-> Tensor(a)`."""
    schema = run.manifest.operator(op)
    return schema is not None and "Tensor(" in schema.text.rpartition("->")[2]


def _shared(launch: Launch) -> Iterator[tuple[Argument, Argument]]:
    """New tensors of a launch, each with an argument whose memory it shares."""
    arguments = {a.name: a for a in launch.args if isinstance(a.before, Tensor)}
    for result in launch.args:
        span = span_of(result)
        if isinstance(result.before, Tensor) or span is None:
            continue
        for argument in arguments.values():
            argument_span = span_of(argument)
            if argument_span is not None and span.overlaps(argument_span):
                yield result, argument


def _written(launch: Launch, spans: tuple[ByteRange, ...], *names: str) -> Argument | None:
    """The argument by which a launch writes to all the spans; with `names`, one of those or a view of one."""
    for argument in launch.args:
        span = span_of(argument)
        is_named = not names or argument.name in names or argument.spec.base in names
        if argument.written and span is not None and is_named and all(span.overlaps(other) for other in spans):
            return argument
    return None
