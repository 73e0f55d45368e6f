"""An operator's schema as its C function sees it, and the libraries and modules that a custom one needs."""

from __future__ import annotations

import keyword
import re
from dataclasses import replace
from itertools import accumulate

from aoti_debug.package.manifest import Manifest, OperatorSchema, Parameter
from aoti_debug.repro.script import Script

_PAIRS = ("List[", "Device")  # a pointer and a length; a device's type and index
_VERSION = re.compile(r"_v(\d+)\Z")


def missing(op: str, manifest: Manifest) -> str:
    """Returns the reason why the schema of an operator is not known; "" if it is."""
    known = manifest.operator(op) is not None
    return "" if known else f"the package does not hold the schema of {op}; build it again with this version"


def of_version(schema: OperatorSchema, callee: str) -> OperatorSchema:
    """Returns the schema with the parameters that a version of the operator's C function takes.

    Args:
        callee: the C function; a trailing `_v2` is its version.
    """
    suffix = _VERSION.search(callee)
    version = int(suffix[1]) if suffix else 1
    return replace(schema, parameters=tuple(p for p in schema.parameters if p.since <= version))


def width(schema: OperatorSchema) -> int:
    """The number of parameters of the C function that stand for arguments."""
    return sum(_width(parameter) for parameter in schema.parameters)


def in_c(schema: OperatorSchema) -> list[tuple[int, Parameter]]:
    """(index of the first C parameter, parameter), in the order of the C function: outputs to write come first."""
    order = [p for p in schema.parameters if p.out] + [p for p in schema.parameters if not p.out]
    starts = accumulate((_width(p) for p in order), initial=0)
    return list(zip(starts, order, strict=False))


def random_reason(schema: OperatorSchema) -> str:
    """Returns the reason why the values of an operator's results cannot be compared; "" if they can."""
    return f"{schema.op} draws random numbers" if schema.random else ""


def _width(parameter: Parameter) -> int:
    return 2 if parameter.type.startswith(_PAIRS) else 1


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
