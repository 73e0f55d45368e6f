"""The process that computes the values of a start in eager.

`python -m aoti_debug.triage.minify.eager_worker REQUEST`

Every value is written before the next one is computed, since an operator may end the process.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug.base import dtypes
from aoti_debug.base.errors import ArtifactError
from aoti_debug.base.machine import user_code
from aoti_debug.base.machine.files import json_data
from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.evaluation import Evaluation
from aoti_debug.compare.fx_repro.script_text import describe
from aoti_debug.compare.protocol.request import KnownValue, Recorded, Region
from aoti_debug.compare.worker.region_values import region_inputs
from aoti_debug.instrument.frontend.worker.reference_graphs import ReferenceGraphs
from aoti_debug.package import program_graphs
from aoti_debug.package.inputs import input_files
from aoti_debug.package.inputs import signature as signatures
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.printing import print_operator
from aoti_debug.package.program_graphs import Graph, NodeKind, Reference, ValueKey
from aoti_debug.package.pt2 import archive, load_program
from aoti_debug.triage.minify.start_parts import END, REFERENCE, REGION, VALUES, EagerValue, EvaluateRequest

if TYPE_CHECKING:
    import torch

_MAX_ELEMENTS = 16  # of a tensor that is written as a literal
_PLAIN = ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "bool")


def of_file(path: str, inputs: str) -> tuple[Reference, Region, dict[ValueKey, Any]]:
    """The graph of a program, the region that is all of it, and the tensors that it begins with.

    Args:
        inputs: an inputs file; "" for the program's example inputs.

    Raises:
        ArtifactError: there are no inputs, or they do not fit.
    """
    program = load_program.load(path)
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
    region = Region(
        graph=graph.name,
        function=graph.function,
        nodes=nodes,
        inputs=begin,
        symbols=symbols.known(),
    )
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


def main() -> int:
    """Answers the request."""
    request = json_data.parse(EvaluateRequest, Path(sys.argv[1]).read_bytes())
    import torch

    print_operator.register()
    user_code.load(request.imports, request.libraries)
    with torch.no_grad():
        _compute(request)
    return 0


def _compute(request: EvaluateRequest) -> None:
    folder = Path(request.folder)
    if request.region is None:
        reference, region, known = of_file(request.program, request.inputs)
        (folder / REFERENCE).write_text(program_graphs.to_json(reference))
        (folder / REGION).write_text(json_data.to_text(region))
    else:
        region = request.region
        reference = program_graphs.from_json(archive.inspect(request.package).read(program_graphs.MEMBER))
    graph = reference.graph(region.graph, region.function)
    assert graph is not None
    symbols = Symbols(known=region.symbols)
    if request.region is not None:
        given = region_inputs(graph, region, symbols, request.device, None)
        known = {key: value for key, value in given.known.items() if str(key) not in given.parts}
    evaluation = Evaluation(reference, graph, Arithmetic.EAGER, request.device)
    with _Written(folder) as written:
        for key, value in known.items():
            evaluation.set(key, value)
            written.add(key, value)
        for name in region.nodes:
            node = graph.by_name[name]
            if node.kind is NodeKind.CALL and not node.size:
                written.begin(name)
            earlier = set(evaluation.values)
            evaluation.run(node, symbols.value(node.size) if node.size else None)
            for key in evaluation.values.keys() - earlier:
                written.add(key, evaluation.values[key])
            if name in evaluation.random:
                written.line(EagerValue(name, is_random=True))
            failure = evaluation.failures.get(name, "")
            if failure.startswith(
                f"{node.target} fails here: "
            ):  # others: of what it reads, of a lack of an evaluation
                written.line(EagerValue(name, failure=failure))
        written.line(END)


class _Written:
    """The values that are written so far."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lines = (folder / VALUES).open("w", encoding="utf-8")
        self._count = 0

    def __enter__(self) -> _Written:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()

    def begin(self, node: str) -> None:
        """Notes that a node is about to be computed."""
        self.line(EagerValue(node))

    def add(self, key: ValueKey, value: Any) -> None:
        """Writes a value; one that is no dense tensor is left out."""
        import torch

        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.is_quantized:
            return
        file = f"{self._count}.pt"
        self._count += 1
        plain = value.detach().resolve_conj().resolve_neg()
        torch.save(plain.clone().cpu(), self._folder / file)
        numbers = plain.double() if plain.is_floating_point() else plain
        self.line(
            EagerValue(
                key.node,
                key.after,
                file,
                tensor=describe(plain),
                literal=_literal(plain),
                has_nan=bool(torch.isnan(numbers).any()),
                has_infinity=bool(torch.isinf(numbers).any()),
            )
        )

    def line(self, value: EagerValue) -> None:
        """Writes a line."""
        self._lines.write(json_data.to_text(value, indent=None) + "\n")
        self._lines.flush()


def _literal(value: torch.Tensor) -> str:
    """An expression of a tensor of few elements; "" for others."""
    name = dtypes.bare_name(value.dtype)
    if value.numel() > _MAX_ELEMENTS or not value.numel() or name not in _PLAIN or not value.is_contiguous():
        return ""
    numbers = value.cpu().float() if name in ("float16", "bfloat16") else value.cpu()
    return f"torch.tensor({_nested(numbers.numpy().tolist(), name)}, dtype=torch.{name})"


def _nested(value: Any, dtype: str) -> str:
    """A number, or a list of numbers, with no more digits than its dtype needs."""
    import numpy as np

    if isinstance(value, list):
        return f"[{', '.join(_nested(item, dtype) for item in value)}]"
    if not isinstance(value, float):
        return repr(value)
    if not np.isfinite(value):
        return f'float("{value}")'
    return str(np.float64(value) if dtype == "float64" else np.float32(value))


if __name__ == "__main__":
    sys.exit(main())
