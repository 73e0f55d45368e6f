"""The operator `aoti_debug::print_`: a print that survives export, saving and AOTInductor; imports torch."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from aoti_debug.package.printing import template
from aoti_debug.package.printing.template import ValueKind


def register() -> None:
    """Registers `aoti_debug::print_` and `aoti_debug::inspect_`; imports torch."""
    importlib.import_module("aoti_debug.package.printing.inspectors")


NAME = "aoti_debug::print_"

library = torch.library.Library("aoti_debug", "DEF")
library.define("print_(str text, Tensor[] tensors, SymInt[] integers) -> ()")


def _print(text: str, tensors: list[torch.Tensor], integers: list[int]) -> None:
    values: dict[str, Any] = {f"t{number}": tensor for number, tensor in enumerate(tensors)}
    values |= {f"i{number}": integer for number, integer in enumerate(integers)}
    print(text.format(**values))


def _print_nothing(text: str, tensors: list[torch.Tensor], integers: list[int]) -> None:
    pass


library.impl("print_", _print, "CompositeExplicitAutograd")
torch.library.register_fake(NAME, _print_nothing, lib=library)
OPERATOR = torch.ops.aoti_debug.print_.default
torch.fx.node.has_side_effect(OPERATOR)  # graphs keep it, though nobody uses its result


def kind_of(value: Any) -> ValueKind:
    """The kind of a value in a program that is run or traced."""
    if isinstance(value, torch.Tensor):
        return ValueKind.TENSOR
    if isinstance(value, torch.SymInt):
        return ValueKind.INTEGER
    if isinstance(value, torch.SymFloat):
        return ValueKind.FLOAT
    if isinstance(value, torch.SymBool):
        raise template.TemplateError("a comparison of sizes cannot be printed; print the sizes")
    return ValueKind.CONSTANT


def _as_tensor(value: Any) -> torch.Tensor:
    return torch.scalar_tensor(value, dtype=torch.float64)


def print_(format_str: str, /, *args: Any, **kwargs: Any) -> None:
    """Prints `format_str.format(*args, **kwargs)`, as torch._higher_order_ops.print does.

    It prints in eager, can be exported, also within branches and loops, and prints in the package that aoti-debug
    builds. To load an exported program that holds it, import this function first.

    Args:
        args, kwargs: tensors of any shape and dtype, numbers, strings, and lists, tuples and dicts of them.

    Raises:
        TemplateError: a field has no value, or a format that compiled models cannot print.
    """
    made = template.make(format_str, args, kwargs, kind_of, _as_tensor)
    OPERATOR(made.text, list(made.tensors), list(made.integers))


torch.compiler.allow_in_graph(print_)  # branches and loops are traced by Dynamo, which need not look into it
