"""What the text of Inductor's Triton kernels begins with, and that of the functions that they call."""

from __future__ import annotations

import ast
from pathlib import Path

IMPORTS = """import triton
import triton.language as tl

from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import AutotuneHint, ReductionHint, TileHint, DeviceProperties
triton_helpers.set_driver_to_gpu()

"""
KERNELS = Path(__file__).parent / "interpreter_inductor_kernels.py"


def helpers(*names: str) -> str:
    """Functions of interpreter_inductor_kernels.py with their decorators, in the order that is asked for."""
    text = KERNELS.read_text()
    lines = text.splitlines()
    places = {
        node.name: (node.decorator_list[0].lineno - 1, node.end_lineno)
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef)
    }
    return "\n\n\n".join("\n".join(lines[slice(*places[name])]) for name in names) + "\n"
