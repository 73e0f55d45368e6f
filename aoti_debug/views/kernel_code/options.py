"""The options of `show` for the code of kernels."""

from __future__ import annotations

from aoti_debug.base.frozen import dataclass


@dataclass(frozen=True)
class CodeOptions:
    """The forms of a kernel's code that are shown: its source, the PTX and the machine code of a Triton kernel.

    Attributes:
        trusted: a disassembler may read the machine code of a run that was not made on this account.
    """

    source: bool
    ptx: bool
    sass: bool
    trusted: bool = False

    def __bool__(self) -> bool:
        return self.source or self.ptx or self.sass
