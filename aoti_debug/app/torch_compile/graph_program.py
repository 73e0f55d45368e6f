"""A graph of AOT autograd as an exported program: tensors in, tensors out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from aoti_debug.base.frozen import dataclass
from aoti_debug.package.origins import own_frames

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram


@dataclass(frozen=True)
class SizeOf:
    """A size that an input tensor has.

    Attributes:
        position: of the tensor among the inputs of the graph.
    """

    position: int
    dim: int


@dataclass(frozen=True)
class GraphInputs:
    """The inputs of a graph, by what becomes of them.

    Attributes:
        tensors: positions of the tensors.
        sizes: position -> the size that an integer input stands for.
        numbers: positions of other inputs, which are constants of the exported program.
        symbolic: position -> dimensions of tensors whose size may be another one in another call.
        overwritten: positions of tensors that the graph writes to.
    """

    tensors: tuple[int, ...]
    sizes: dict[int, SizeOf]
    numbers: tuple[int, ...]
    symbolic: dict[int, tuple[int, ...]]
    overwritten: tuple[int, ...]

    def constants(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The values of those inputs that are constants of the exported program."""
        return tuple(inputs[position] for position in self.numbers)


def inputs_of(graph: torch.fx.GraphModule) -> GraphInputs:
    """Reads the inputs from the values that the graph was traced with."""
    import torch

    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    values = [node.meta.get("val") for node in placeholders]
    tensors = tuple(position for position, value in enumerate(values) if isinstance(value, torch.Tensor))
    sizes, symbolic = {}, {}
    known: dict[str, SizeOf] = {}
    for position in tensors:
        dims = [d for d, size in enumerate(values[position].shape) if isinstance(size, torch.SymInt)]
        if dims:
            symbolic[position] = tuple(dims)
        for dim in dims:
            known.setdefault(str(values[position].shape[dim]), SizeOf(position, dim))
    for position, value in enumerate(values):
        if isinstance(value, torch.SymInt) and str(value) in known:
            sizes[position] = known[str(value)]
    others = tuple(n for n in range(len(values)) if n not in tensors and n not in sizes)
    copied = {node.args[0] for node in graph.graph.nodes if node.target == torch.ops.aten.copy_.default}
    overwritten = tuple(n for n, node in enumerate(placeholders) if node in copied)
    return GraphInputs(tensors, sizes, others, symbolic, overwritten)


@dataclass(frozen=True)
class GraphOutputs:
    """The outputs of a graph, by where they come from.

    Attributes:
        passed: output -> the input that it is.
        computed: outputs that the exported program computes, in its order: tensors.
        numbers: outputs that are computed from sizes.
        sizes: the part of the graph that returns them.
        count: of all; the others are None.
    """

    passed: dict[int, int]
    computed: tuple[int, ...]
    numbers: tuple[int, ...]
    sizes: torch.fx.GraphModule
    count: int

    def joined(self, inputs: Sequence[Any], results: Sequence[Any]) -> list[Any]:
        """All outputs, from the inputs of a call and the results of the exported program."""
        outputs: list[Any] = [None] * self.count
        for number, position in self.passed.items():
            outputs[number] = inputs[position]
        if self.numbers:
            for number, value in zip(self.numbers, self.sizes(*inputs), strict=True):
                outputs[number] = value
        for number, result in zip(self.computed, results, strict=True):
            outputs[number] = result
        return outputs


def outputs_of(graph: torch.fx.GraphModule) -> GraphOutputs:
    """Reads the outputs of a graph."""
    import torch

    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    (returned,) = next(node for node in graph.graph.nodes if node.op == "output").args
    passed: dict[int, int] = {}
    computed: list[int] = []
    numbers: list[int] = []
    for number, value in enumerate(returned):
        if value in placeholders:
            passed[number] = placeholders.index(value)
        elif isinstance(value, torch.fx.Node):
            (computed if isinstance(value.meta.get("val"), torch.Tensor) else numbers).append(number)
    return GraphOutputs(
        passed, tuple(computed), tuple(numbers), _returning(graph, numbers, _is_signature), len(returned)
    )


def exported(graph: torch.fx.GraphModule, inputs: Sequence[Any], *, dynamic: bool) -> ExportedProgram:
    """Exports the part of a graph that computes tensors; its inputs are the graph's tensors, in their order.

    Args:
        inputs: of one call; its tensors are the example inputs.
        dynamic: sizes that are symbolic in the graph are so in the program, too; otherwise they are those of `inputs`.
    """
    import torch
    from torch.fx import traceback

    known, outputs = inputs_of(graph), outputs_of(graph)
    computed = _returning(graph, outputs.computed)
    constants = dict(zip(known.numbers, known.constants(inputs), strict=True))

    class Graph(torch.nn.Module):  # type: ignore[misc]
        def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            values: dict[int, Any] = {**constants, **dict(zip(known.tensors, tensors, strict=True))}
            values |= {position: values[size.position].shape[size.dim] for position, size in known.sizes.items()}
            with traceback.preserve_node_meta():
                ordered = [values[position] for position in range(len(values))]
                results: tuple[torch.Tensor, ...] = torch.fx.Interpreter(computed).run(*ordered)
            return results

    shapes: Any = None
    if dynamic:
        auto = torch.export.Dim.AUTO
        shapes = (tuple(dict.fromkeys(known.symbolic.get(position, ()), auto) for position in known.tensors),)
    tensors = tuple(inputs[position].detach() for position in known.tensors)
    with torch.no_grad():
        return torch.export.export(Graph(), tensors, dynamic_shapes=shapes, strict=False)


def _returning(
    graph: torch.fx.GraphModule, computed: Sequence[int], kept: Callable[[torch.fx.Node], bool] | None = None
) -> torch.fx.GraphModule:
    """The graph with fewer outputs.

    Args:
        kept: whether a node is kept that no output needs; None for those with side effects.
    """
    import torch

    copy = torch.fx.Graph()
    values: dict[torch.fx.Node, torch.fx.Node] = {}
    copied: Callable[..., Any] = copy.graph_copy
    returned = copied(graph.graph, values)
    copy.output(tuple(returned[number] for number in computed))
    copy.eliminate_dead_code(kept)
    return torch.fx.GraphModule(graph, copy)


def _is_signature(node: torch.fx.Node) -> bool:
    return node.op in ("placeholder", "output")


def model_line(graph: torch.fx.GraphModule) -> str:
    """The line of the model that the first operator comes from, "model.py:12 in forward"; "" if it has none."""
    stacks = (node.meta.get("stack_trace") for node in graph.graph.nodes if node.op == "call_function")
    frames = own_frames([stack for stack in stacks if stack])
    return f"{frames[0].place} in {frames[0].function}" if frames else ""
