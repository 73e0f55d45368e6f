"""Normalised kernel source: text that is equal for kernels that differ only in names, comments and spaces."""

from __future__ import annotations

import re

from aoti_debug.package.manifest import Kernel

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_PYTHON_COMMENT = re.compile(r"#[^\n]*")
_INCLUDE = re.compile(r"^\s*#\s*include[^\n]*$", re.MULTILINE)
_SPACE = re.compile(r"\s+")
_NAME = "kernel"


def normalised_source(kernel: Kernel) -> str:
    """The kernel's source without comments, includes and decorators, with a fixed name and single spaces."""
    if kernel.language == "triton":
        definition = re.search(rf"^[ \t]*def {re.escape(kernel.name)}\(", kernel.source, re.MULTILINE)
        text = _PYTHON_COMMENT.sub("", kernel.source[definition.start() :] if definition else kernel.source)
    else:
        text = _COMMENT.sub("", _INCLUDE.sub("", kernel.source))
    return _SPACE.sub(" ", re.sub(rf"\b{re.escape(kernel.name)}\b", _NAME, text)).strip()
