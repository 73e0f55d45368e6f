"""An exported program as a graph with its inputs and weights, before any pass of Inductor. Runs in a child process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aoti_debug.base.errors import ArtifactError
from aoti_debug.compare.protocol.request import KnownValue, Recorded, Region
from aoti_debug.instrument.frontend.worker.reference_graphs import ReferenceGraphs
from aoti_debug.package.inputs import input_files
from aoti_debug.package.inputs import signature as signatures
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.reference.program import Graph, NodeKind, Reference, ValueKey

if TYPE_CHECKING:
    import torch


def of_file(path: str, inputs: str) -> tuple[Reference, Region, dict[ValueKey, Any]]:
    """The graph of a program, the region that is all of it, and the tensors that it begins with.

    Args:
        inputs: an inputs file; "" for the program's example inputs.

    Raises:
        ArtifactError: there are no inputs, or they do not fit.
    """
    import torch

    program = torch.export.load(path)
    args, kwargs = _inputs(program, inputs)
    program = program.run_decompositions({})
    graphs = ReferenceGraphs()
    graphs.of_program(program.graph.nodes)
    reference = graphs.reference()
    (graph,) = reference.graphs
    known = _placeholders(program, args, kwargs)
    symbols = Symbols()
    for key, value in known.items():
        types = graph.by_name[key.node].types
        if len(types) == 1 and types[0] is not None:
            for expression, size in zip(types[0].shape, value.shape, strict=True):
                symbols.bind(expression, size)
    output = graph.nodes[-1]
    nodes = graph.sorted(_needed(graph, output.inputs))
    begin = tuple(KnownValue(key, Recorded("", "", "")) for key in known)
    region = Region("", (), graph.name, graph.function, nodes, begin, (), symbols.known())
    return reference, region, known


def _inputs(program: torch.export.ExportedProgram, path: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if path:
        given = input_files.read(path, signatures.describe(program))
        return given.args, dict(given.kwargs)
    if program.example_inputs is None:
        raise ArtifactError("the program has no example inputs", hint="--inputs FILE")
    args, kwargs = program.example_inputs
    return tuple(args), dict(kwargs or {})


def _placeholders(
    program: torch.export.ExportedProgram, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[ValueKey, Any]:
    """The tensors of the inputs of the graph: parameters, buffers, constants, inputs of the user."""
    import torch
    from torch.export.graph_signature import InputKind

    flat = iter(torch.utils._pytree.tree_leaves((args, kwargs)))
    held = {**program.constants, **program.state_dict}
    known = {}
    for spec in program.graph_signature.input_specs:
        value = next(flat) if spec.kind is InputKind.USER_INPUT else held.get(spec.target)
        if isinstance(value, torch.Tensor):
            known[ValueKey(spec.arg.name)] = value.detach()
    return known


def _needed(graph: Graph, outputs: tuple[str, ...]) -> set[str]:
    """The calls that the outputs depend on."""
    pending, found = list(outputs), set()
    while pending:
        node = graph.by_name[pending.pop()]
        if node.kind is NodeKind.CALL and node.name not in found:
            found.add(node.name)
            pending += node.inputs
    return found
