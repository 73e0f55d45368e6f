"""Edits the source of one Triton kernel while it is lowered: `--import wrong_triton` with AOTI_WRONG_TRITON=FILE.json.

FILE.json: {"right": the source of the kernel, "wrong": the same with an edit}. Kernels are told apart by what follows
their signature. Only the process that lowers has the variable; elsewhere the import does nothing.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

VARIABLE = "AOTI_WRONG_TRITON"
_SIGNATURE = re.compile(r"^def \w+\([^\n]*\):\n", re.MULTILINE)


def edited(source: str, right: str, wrong: str) -> str:
    """The source of a kernel, with the body of `wrong` if it has that of `right`."""
    bodies = [text[match.end() :] for text in (source, right, wrong) if (match := _SIGNATURE.search(text))]
    if len(bodies) < 3 or _body(bodies[0]) != _body(bodies[1]):
        return source
    return source.replace(_body(bodies[0]), _body(bodies[2]))


def _body(text: str) -> str:
    """The indented lines at the beginning."""
    lines = text.splitlines()
    count = next((n for n, line in enumerate(lines) if line and not line.startswith(" ")), len(lines))
    return "\n".join(lines[:count]).rstrip()


def _plant(path: Path) -> None:
    from torch._inductor.codegen.triton import TritonScheduling

    edit, define = json.loads(path.read_text()), TritonScheduling.define_kernel

    def define_kernel(self: Any, source: str, *args: Any, **kwargs: Any) -> Any:
        return define(self, edited(source, edit["right"], edit["wrong"]), *args, **kwargs)

    TritonScheduling.define_kernel = define_kernel


if os.environ.get(VARIABLE):
    _plant(Path(os.environ[VARIABLE]))
