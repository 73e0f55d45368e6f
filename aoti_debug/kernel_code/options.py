"""The options of `show` for the code of kernels."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CodeOptions:
    """The forms of a kernel's code that are shown: its source, the PTX and the machine code of a Triton kernel."""

    source: bool
    ptx: bool
    sass: bool

    def __bool__(self) -> bool:
        return self.source or self.ptx or self.sass
