"""The calls of the whole program that a run's outputs are compared with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from aoti_debug.abi import CallKind, Phase
from aoti_debug.compare.protocol.request import (
    CallStates,
    ExportedRun,
    KnownValue,
    ProgramOutput,
    ProgramRun,
    ProgramState,
    Recorded,
    RecordedWeight,
)
from aoti_debug.compare.regions.finder import storage_of
from aoti_debug.compare.regions.regions import Regions
from aoti_debug.compare.regions.states import model_calls
from aoti_debug.compare.regions.strides import buffer_strides
from aoti_debug.manifest import Role
from aoti_debug.recording.values import Layout
from aoti_debug.reference.program import MODEL, Graph, NodeKind, Reference, ValueKey
from aoti_debug.rundir.run_directory import RunDir
from aoti_debug.rundir.timeline import Argument, Launch


def program_runs(
    run: RunDir, reference: Reference, regions: Regions, states: Sequence[CallStates] = ()
) -> tuple[ProgramRun, ...]:
    """One call of the program for each call of the model, with the inputs and weights that its launches read first.

    Args:
        states: what the calls overwrite, to be compared.
    """
    graph = reference.graph("", MODEL)
    if graph is None:
        return ()
    of_call = {call.call: call.states for call in states}
    return tuple(_program_run(run, graph, regions, call, of_call.get(call, ())) for call in model_calls(run))


def exported_run(
    run: RunDir, reference: Reference, regions: Regions, returned: Path | None, states: Sequence[CallStates] = ()
) -> ExportedRun | None:
    """The calls of a run that the exported program is to make too; None if nothing was called, or nothing is kept.

    Args:
        returned: the folder with what the last call returned; None if it was not saved.
        states: what the calls overwrite, to be compared.
    """
    graph = reference.graph("", MODEL)
    calls = model_calls(run)
    if graph is None or not calls:
        return None
    last = replace(_program_run(run, graph, regions, calls[-1]), outputs=())
    weights = tuple(_weights(run))
    return ExportedRun(len(calls), "" if returned is None else str(returned), weights, last, tuple(states))


def _weights(run: RunDir) -> Iterator[RecordedWeight]:
    """The weights that launches were passed as a whole, before any launch overwrote them."""
    names = {constant.name: constant.fqn for constant in run.manifest.constants if constant.fqn}
    seen: set[str] = set()
    for launch in run.launches:
        for argument, path in _recorded(run, launch):
            is_whole = argument.name == (argument.spec.base or argument.name)
            if argument.name in names and argument.name not in seen and is_whole:
                seen.add(argument.name)
                yield RecordedWeight(names[argument.name], path)
        seen.update(argument.spec.base or argument.name for argument in launch.args if argument.written)


def _program_run(
    run: RunDir, graph: Graph, regions: Regions, call: int, states: tuple[ProgramState, ...] = ()
) -> ProgramRun:
    outputs: list[ProgramOutput] = []
    symbols: dict[str, int] = {}
    for region in regions.regions:
        key = run.launch(region.launch).key
        if (key.kind, key.call, region.graph) == (CallKind.MODEL, call, ""):
            symbols |= region.symbols
            outputs += [ProgramOutput(region.launch, item) for item in region.outputs]
    begin = tuple(_begin(run, graph, regions, call).values())
    return ProgramRun("", MODEL, begin, tuple(outputs), symbols, call, states)


def _begin(run: RunDir, graph: Graph, regions: Regions, call: int) -> Mapping[ValueKey, KnownValue]:
    """The inputs and weights of a call, as they were before it."""
    strides = buffer_strides(run.manifest)
    weights = {constant.name: constant.fqn or constant.name for constant in run.manifest.constants}
    known: dict[ValueKey, KnownValue] = {}
    views: dict[ValueKey, dict[Layout | None, Recorded]] = defaultdict(dict)
    overwritten: set[str] = set()
    for launch in run.launches:
        if (launch.key.kind, launch.key.call) != (CallKind.MODEL, call):
            continue
        for argument, path in _recorded(run, launch):
            base = argument.spec.base or argument.name
            node = graph.by_name.get(graph.weights.get(weights.get(base, ""), base))
            if node is not None and node.kind is not NodeKind.CALL and node.name not in overwritten:
                recorded = Recorded(launch.id, argument.name, path, strides.get(base, ()), storage_of(argument))
                if argument.name == base:
                    known.setdefault(ValueKey(node.name), KnownValue(ValueKey(node.name), recorded))
                else:
                    views[ValueKey(node.name)].setdefault(argument.layout, recorded)
        for write in regions.values.writes.get(launch.key, ()):
            if write.value is None or launch.site.subgraph:
                continue
            saved = write.argument.files.get(Phase.AFTER)
            if write.value.after:
                overwritten.add(write.value.node)
            elif graph.by_name.get(write.value.node, graph.nodes[-1]).kind is NodeKind.WEIGHT and saved and saved.path:
                # a weight that Inductor has put into the source of a kernel
                place = Recorded(launch.id, write.argument.name, str(run.tensor_path(saved)))
                known.setdefault(write.value, KnownValue(write.value, place))
    for value, (first, *others) in ((value, tuple(parts.values())) for value, parts in views.items()):
        known.setdefault(value, KnownValue(value, first, tuple(others)))
    return known


def _recorded(run: RunDir, launch: Launch) -> Iterator[tuple[Argument, str]]:
    """The arguments that a launch read, each with the file of its tensor."""
    for argument in launch.args:
        saved = argument.files.get(Phase.BEFORE)
        if argument.role in (Role.IN, Role.INOUT, Role.UNKNOWN) and saved is not None and saved.path:
            yield argument, str(run.tensor_path(saved))
