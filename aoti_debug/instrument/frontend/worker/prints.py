"""Lowers the prints and inspectors of a program to C functions of the runtime; imports torch.

`torch._higher_order_ops.print` exports, but Inductor lowers neither it nor prints within branches and loops. Its nodes
are replaced by calls of `aoti_debug::print_`. That and `aoti_debug::inspect_` are lowered to kernels with side effects:
each comes after the one before it, and is never left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aoti_debug.instrument.frontend.worker.answer_request import StepError
from aoti_debug.package import origins
from aoti_debug.package.printing import template
from aoti_debug.package.printing.template import TemplateError, ValueKind

_PARAMETERS = {
    "print_": "const char* text, const AtenTensorHandle* tensors, int64_t n_tensors, const int64_t* integers, "
    "int64_t n_integers, void* result",
    "inspect_": "const char* tag, const char* phase, const AtenTensorHandle* tensors, int64_t n_tensors, void* result",
}
_PRINT, _INSPECT = (f"aoti_debug.{name}.default" for name in _PARAMETERS)
_EFFECT = "aoti_debug"
_HINT = "the values of a print are tensors, numbers, strings, and lists of these"


def shims(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The declarations of the C functions of operators: {"aoti_debug::print_": …}.

    Args:
        names: "print_", "inspect_".
    """
    return {
        f"aoti_debug::{name}": tuple(
            f"AOTITorchError aoti_torch_{device}_{name}({_PARAMETERS[name]})" for device in ("cpu", "cuda")
        )
        for name in names
    }


def replace_prints(program: Any) -> tuple[str, ...]:
    """Replaces the print operators of torch in an exported program; returns which operators of ours it has then.

    Raises:
        StepError: the format of a print and its values do not go together.
    """
    import torch

    torch_print = getattr(torch.ops.higher_order, "print", None)
    found: set[str] = set()
    for module in program.graph_module.modules():
        graph = getattr(module, "graph", None)
        for node in () if graph is None else tuple(graph.nodes):
            is_torch_print = torch_print is not None and node.target is torch_print
            found |= {"inspect_"} if str(node.target) == _INSPECT else set()
            if not (is_torch_print or str(node.target) == _PRINT):
                continue
            found.add("print_")
            try:
                (_replace if is_torch_print else _without_numbers)(graph, node)
            except TemplateError as error:
                raise StepError("print", _place(node), _HINT) from error
        if graph is not None and found:
            module.recompile()
    return tuple(sorted(found))


def _replace(graph: Any, node: Any) -> None:
    import torch

    from aoti_debug.package.printing import print_operator

    def kind_of(value: Any) -> ValueKind:
        return print_operator.kind_of(value.meta["val"]) if isinstance(value, torch.fx.Node) else ValueKind.CONSTANT

    def as_tensor(value: Any) -> Any:
        return _read_tensor(graph, value)

    with graph.inserting_before(node):
        text, *args = node.args
        made = template.make(text, args, node.kwargs, kind_of, as_tensor)
        new = graph.call_function(
            print_operator.OPERATOR, (template.c_safe(made.text), list(made.tensors), list(made.integers))
        )
    new.meta = {**node.meta, "val": None}
    node.replace_all_uses_with(new)
    graph.erase_node(node)


def _read_tensor(graph: Any, number: Any) -> Any:
    """The tensor of no dimension that a number was read from: Inductor makes no tensor of a float.

    Raises:
        TemplateError: it was computed.
    """
    import torch

    if number.target not in (torch.ops.aten.item.default, torch.ops.aten._local_scalar_dense.default):
        raise TemplateError("it prints a float that is computed from others outside of tensors; print a tensor instead")
    tensor = number.args[0]
    if tensor.meta["val"].dim() == 0:
        return tensor
    scalar = graph.call_function(torch.ops.aten.reshape.default, (tensor, []))
    scalar.meta["val"] = tensor.meta["val"].reshape([])
    return scalar


def _without_numbers(graph: Any, node: Any) -> None:
    """Has a print read the tensors that its floats were read from."""
    import torch

    text, tensors, integers = node.args
    with graph.inserting_before(node):
        read = [
            _read_tensor(graph, tensor.args[0]) if tensor.target is torch.ops.aten.scalar_tensor.default else tensor
            for tensor in tensors
        ]
    made = {tensor for tensor in tensors if tensor not in read}
    node.args = (template.c_safe(text), read, integers)
    for tensor in made:
        if not tensor.users:
            graph.erase_node(tensor)


def _place(node: Any) -> str:
    """The model line of a node: "model.py:23"; its format where that is not known."""
    lines = origins.own_frames([str(node.meta.get("stack_trace") or "")])
    return lines[0].place if lines else repr(node.args[0])


def register_lowering(name: str) -> Any:
    """Makes Inductor lower an operator of ours to a call of its C shim; returns the operator."""
    import torch
    from torch._inductor import dependencies, ir, lowering
    from torch._inductor.virtualized import V

    lowered = getattr(torch.ops.aoti_debug, name).default

    class PrintKernel(ir.FallbackKernel):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.previous_print = V.graph.effectful_ops.get(_EFFECT)
            V.graph.effectful_ops[_EFFECT] = self

        def get_read_writes(self) -> Any:
            read_writes = super().get_read_writes()
            if self.previous_print is not None:
                read_writes.reads.add(dependencies.StarDep(self.previous_print.get_name()))
            return read_writes

        def has_side_effects(self) -> bool:
            return True

        @classmethod
        def find_device(cls, tensor_args: Any, example_output: Any) -> Any:
            return super().find_device(tensor_args, example_output) or torch.device("cpu")

    def lower(*args: Any, **kwargs: Any) -> Any:
        return PrintKernel.create(lowered, *args, **kwargs)

    lowering.lowerings[lowered] = lower
    return lowered
