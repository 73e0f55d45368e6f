"""The calls of the whole program that a run's outputs are compared with."""

from __future__ import annotations

from aoti_debug.abi import CallKind
from aoti_debug.compare.plan import KnownValue, ProgramOutput, ProgramRun
from aoti_debug.compare.regions import Regions
from aoti_debug.reference.program import MODEL, Graph, NodeKind, Reference, ValueKey
from aoti_debug.rundir.run_directory import RunDir


def program_runs(run: RunDir, reference: Reference, regions: Regions) -> tuple[ProgramRun, ...]:
    """One call of the program for each call of the model, with the inputs and weights that its launches read first."""
    graph = reference.graph("", MODEL)
    if graph is None:
        return ()
    return tuple(
        _program_run(run, graph, regions, call.call) for call in run.timeline.calls if call.kind is CallKind.MODEL
    )


def _program_run(run: RunDir, graph: Graph, regions: Regions, call: int) -> ProgramRun:
    inputs: dict[ValueKey, KnownValue] = {}
    outputs: list[ProgramOutput] = []
    symbols: dict[str, int] = {}
    for region in regions.regions:
        key = run.launch(region.launch).key
        if (key.kind, key.call, region.graph) != (CallKind.MODEL, call, ""):
            continue
        symbols |= region.symbols
        for item in region.inputs:
            if not item.value.after and graph.by_name[item.value.node].kind is not NodeKind.CALL:
                inputs.setdefault(item.value, item)
        outputs += [ProgramOutput(region.launch, item) for item in region.outputs]
    return ProgramRun("", MODEL, tuple(inputs.values()), tuple(outputs), symbols)
