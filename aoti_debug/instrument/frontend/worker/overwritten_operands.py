"""The operators within branches and loops of an exported program that overwrite what they are passed; imports torch.

torch lowers no such branch or loop: "body_fn might be modifying the input!" names none of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aoti_debug.instrument.frontend.worker.reference_graphs import ReferenceGraphs
from aoti_debug.package.reference.node_text import node_text
from aoti_debug.package.reference.program import HIGHER_ORDER, Graph, Node, NodeKind, Reference, is_view

REFUSED = "might be modifying the input!"


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
