"""Recorded runs of models that are one long chain of operators, with their reference: no model, no compiler."""

from __future__ import annotations

from pathlib import Path

import torch

from aoti_debug.package import manifest as manifests
from aoti_debug.package import program_graphs
from aoti_debug.package.program_graphs import FORMAT, MODEL, BufferValue, Graph, Node, NodeKind, Reference, TensorType
from aoti_debug.package.pt2 import archive, trust
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from tests import archives
from tests.triage.recorder import Recorder

SHAPE = (4,)
KIND = TensorType("float32", "cpu", tuple(map(str, SHAPE)), ("1",))


def reference(operators: tuple[str, ...], altered: int = -1) -> Reference:
    """The graph of a chain; the operators take one tensor, or `aten.add.Tensor`, which adds 1.

    Args:
        altered: the operator that adds 2.
    """
    nodes = [Node("x", NodeKind.INPUT, types=(KIND,))]
    for at, target in enumerate(operators):
        before: tuple[object, ...] = (
            {"node": nodes[-1].name},
            *((1 + (at == altered),) if target == "aten.add.Tensor" else ()),
        )
        nodes.append(Node(f"node_{at}", NodeKind.CALL, target, before, types=(KIND,)))
    nodes.append(Node("output", NodeKind.OUTPUT, "output", ([{"node": nodes[-1].name}],)))
    held = tuple(BufferValue(f"buf{at}", f"node_{at}") for at in range(len(operators)))
    return Reference(FORMAT, torch.__version__, (Graph("", MODEL, tuple(nodes), held),))


def chain(
    base: Path,
    operators: tuple[str, ...],
    wrong: int = -1,
    step: int = 1,
    error: float = 1.0,
    altered: int = -1,
    first: float = 0.0,
) -> RunDir:
    """A run of a chain, one launch for `step` operators; each one adds 1 to its input.

    Args:
        wrong: the launch that adds `error` as well.
        altered: the operator that adds 2, in the graph too.
        first: the first element of the input.
    """
    recorder = Recorder(base, inputs=("x",))
    recorder.journal.call_begin()
    name, value = "x", torch.arange(4, dtype=torch.float32) + first
    for number, at in enumerate(range(step - 1, len(operators), step)):
        added = step + (at - step < altered <= at)
        result = value + added + error * (number == wrong)
        recorder.launch(f"cpp_fused_add_{number}", {name: value}, {f"buf{at}": result})
        name, value = f"buf{at}", result
    recorder.journal.call_end(launches=len(operators) // step)
    recorder.journal.run_end()
    path = recorder.write()
    attach(path, reference(operators, altered))
    return open_run(path)


def attach(run: Path, graph: Reference) -> None:
    """Makes the package of a run, which holds its reference."""
    manifest = open_run(run).manifest.json_text.encode()
    members = {
        manifests.MEMBER: manifest,
        program_graphs.MEMBER: program_graphs.to_json(graph).encode(),
        **archives.FRAME,
    }
    package = archives.write(run / "package.pt2", members)
    trust.remember(archive.inspect(package))
