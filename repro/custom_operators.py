"""Custom operators: the libraries and modules that must be loaded before they can be called."""

from __future__ import annotations

import keyword
from dataclasses import replace

from aoti_debug.package.manifest import Manifest
from aoti_debug.repro.script import Script

# Namespaces of operators that `import torch` registers.
OF_TORCH = frozenset({"aten", "prim", "prims", "quantized", "mkl", "mkldnn", "onednn", "c10d", "_c10d_functional"})


def is_operator(op: str) -> bool:
    """True for "mylib.op.default" or "mylib::op.default": three identifiers, which `torch.ops.` can precede."""
    parts = op.replace("::", ".").split(".")
    return len(parts) == 3 and all(part.isidentifier() and not keyword.iskeyword(part) for part in parts)


def is_of_torch(op: str) -> bool:
    """True for an operator that `import torch` registers: "aten.addmm.out", "aten::complex.default"."""
    return op.replace("::", ".").partition(".")[0] in OF_TORCH


def with_operator_libraries(manifest: Manifest, op: str, script: Script) -> Script:
    """Returns the script with the libraries and modules that the package was built with, where its operator needs them.

    Args:
        op: "mylib.op.default"
    """
    if is_of_torch(op):
        return script
    sources = [*(f"the library {path}" for path in manifest.libraries), *(f"the module {m}" for m in manifest.imports)]
    where = f": {' and '.join(sources)}" if sources else " (--load-library PATH or --import MODULE)"
    needs = f"what defines torch.ops.{op}{where}"
    return replace(script, libraries=manifest.libraries, modules=manifest.imports, needs=needs)
