"""Loads saved exported programs, with torch."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def load(path: str | Path) -> ExportedProgram:
    """Loads a program, which torch can then trace as it could when it was exported.

    torch gives a program that it has loaded fake tensors whose mode never runs an operator to learn the shapes of its
    results: aten.geqrf, aten.histogram and others without a meta kernel could not be traced again. That of an export
    runs them.

    Raises:
        Exception: of torch, or of the program's operators.
    """
    import torch
    from torch._guards import detect_fake_mode

    from aoti_debug.package.printing import print_operator  # imports torch

    print_operator.register()
    program = torch.export.load(path)
    mode = detect_fake_mode([node.meta.get("val") for node in program.graph.nodes])
    if mode is not None:
        mode.allow_fallback_kernels = True
    return program


def registering_modules(operators: list[str]) -> list[str]:
    """The modules of torch that register some of these operators, "torch_nn::op", when they are imported.

    Other modules of torch may name an operator as well: kernels for it, which need more than torch.
    """
    import torch

    root = Path(torch.__file__).parent
    names = b"|".join(re.escape(operator.encode()) for operator in operators)
    registers = re.compile(rb'(?:custom_op|triton_op|define)\(\s*"(?:' + names + rb')"')
    found = [path for path in sorted(root.rglob("*.py")) if registers.search(path.read_bytes())]
    return [".".join(path.relative_to(root.parent).with_suffix("").parts) for path in found]
