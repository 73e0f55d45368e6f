"""The stores of a generated kernel, found in its source."""

from __future__ import annotations

import re
from collections.abc import Mapping

from aoti_debug.package.manifest import Kernel, Manifest


def buffer_strides(manifest: Manifest) -> Mapping[str, tuple[str, ...]]:
    """The strides of buffers, inputs and weights, as expressions, by name."""
    strides = {promise.name: promise.strides for promise in manifest.promises}
    return strides | {constant.name: tuple(map(str, constant.strides)) for constant in manifest.constants}


_TRITON = (r"tl\.(?:store|atomic_\w+)\(\s*{p}\b",)
_CPP = (
    r"\bstore\(\s*{p}\b",  # tmp5.store(in_out_ptr0 + …)
    r"\b{p}\[(?:[^\[\]]|\[[^\[\]]*\])*\]\s*(?:[-+*/|&^]|<<|>>)?=(?!=)",  # in_out_ptr0[…] = …
    r"\*\s*\(\s*{p}\b[^;=]*\)\s*=(?!=)",  # *(in_out_ptr0 + …) = …
    r"&\s*\(?\s*{p}\b",  # atomic_add(&in_out_ptr0[…], …), &(in_out_ptr0[…])
    r"[(,]\s*{p}\s*(?:\+[^,;]*)?[,)]",  # transpose_mxn<…>(…, in_out_ptr0 + …, …)
)
_LOAD = r"\b(?:loadu|load|transpose_mxn<[^;\n]*?>)\(\s*{p}\b"  # transpose_mxn reads its first pointer


def stores_to(kernel: Kernel, parameter: str) -> bool:
    """True if a kernel may store to what a parameter points to, under this name.

    A C++ kernel may have other names for it (`auto out_ptr1 = in_out_ptr0`): for what was in the memory before.
    """
    name = re.escape(parameter)
    if kernel.language == "triton":
        return any(re.search(pattern.format(p=name), kernel.source) for pattern in _TRITON)
    source = re.sub(_LOAD.format(p=name), "load(", kernel.source)
    return any(re.search(pattern.format(p=name), source) for pattern in _CPP)


def begins_with_a_store(kernel: Kernel, parameter: str) -> bool:
    """True if a C++ kernel stores a partial result to a parameter before it reads that (`auto out_ptr1 = in_out_ptr0`).

    What was in the memory does not matter then. A name that begins with `in_ptr` is for reading it.
    """
    alias = rf"\bauto out_ptr\w* = {re.escape(parameter)};"
    return kernel.language == "cpp" and re.search(alias, kernel.source) is not None
