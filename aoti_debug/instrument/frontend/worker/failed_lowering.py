"""Names the node of a graph that a lowering has failed at; imports torch.

That is the node that torch worked on when it raised an exception. torch lowers no branch or loop whose operators
overwrite what it is passed, and names none of them: "body_fn might be modifying the input!".
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

from aoti_debug.instrument.frontend.worker.reference_graphs import ReferenceGraphs
from aoti_debug.package import origins
from aoti_debug.package.node_text import node_text
from aoti_debug.package.program_graphs import HIGHER_ORDER, Graph, Node, NodeKind, Reference, is_view

_NAMES = ("node", "n", "fx_node", "target_node", "user")  # what functions of torch call the node that they work on
_OUTER = ("torch/_inductor/compile_fx.py", "torch/_functorch/aot_autograd.py")  # they work on graphs
_INTERPRETER = "torch/fx/interpreter.py"
REFUSED = "might be modifying the input!"


def node_at_work(error: BaseException | None) -> str:
    """Says which call the innermost function worked on that had one; "" if none had."""
    for code, line, node in _nodes(error):
        lines = origins.own_frames([str(node.meta.get("stack_trace") or "")])
        at = f", {lines[0].place}: {lines[0].text.strip()}" if lines else ""
        return f"{code.co_name} ({code.co_filename}:{line}) raised it at node {node.name}, a call of {node.target}{at}"
    return ""


def traced_node(error: BaseException | None) -> Any:
    """The torch.fx.Node of the exported program that torch traced when it raised an exception; None if it did not."""
    traced = (node for code, _, node in _nodes(error) if code.co_filename.endswith(_INTERPRETER))
    return next(traced, None)


def _nodes(error: BaseException | None) -> Iterator[tuple[CodeType, int, Any]]:
    """Yields the calls that functions worked on, innermost first, each with the function and its line."""
    import torch

    frames = [] if error is None else list(traceback.walk_tb(error.__traceback__))
    for frame, line in reversed(frames):
        if frame.f_code.co_filename.endswith(_OUTER):
            return
        node = next((frame.f_locals[name] for name in _NAMES if name in frame.f_locals), None)
        if isinstance(node, torch.fx.Node) and node.op == "call_function":
            yield frame.f_code, line, node


def overwritten_operands(program: Any, error: BaseException | None) -> str:
    """Says which operators overwrite an operand of their branch or loop; "" if torch did not refuse any.

    Args:
        program: a torch.export.ExportedProgram.
        error: that ended its lowering.
    """
    if REFUSED not in str(error):
        return ""
    graphs = ReferenceGraphs()
    try:
        graphs.record_exported(program)
    except Exception:  # noqa: BLE001 - torch's own classes change from one version to the next
        return ""
    reference = graphs.reference().of_exported
    return "" if reference is None else "; ".join(dict.fromkeys(_sentences(reference)))


def _sentences(reference: Reference) -> Iterator[str]:
    for graph in reference.graphs:
        for call in graph.nodes:
            if not call.target.startswith(HIGHER_ORDER):
                continue
            bodies = (graph.by_name[name] for name in call.inputs)
            for body in (node.target for node in bodies if node.kind is NodeKind.SUBGRAPH):
                inner = next((other for other in reference.graphs if other.name == body), None)
                if inner is not None:
                    yield from _of_body(reference, inner, call)


def _of_body(reference: Reference, body: Graph, call: Node) -> Iterator[str]:
    for node in body.nodes:
        for name in node.mutates:
            base = body.by_name[name]
            while is_view(base):
                base = body.by_name[base.inputs[0]]
            if base.kind is NodeKind.INPUT:
                line = reference.line(node)
                place = "" if line is None else f" ({Path(line.file).name}:{line.line} in {line.function})"
                operator = call.target.removeprefix(HIGHER_ORDER)
                yield (
                    f"{node.target} overwrites {base.name}, which {operator} is passed, in {body.name}{place}: "
                    f"{node_text(node)}; torch refuses that, and may accept a copy: {base.name}.clone()"
                )
