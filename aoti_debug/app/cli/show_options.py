"""The options of `show` for the code of kernels, and those of `--calls`."""

from __future__ import annotations

from pathlib import Path

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


@dataclass(frozen=True)
class CallOptions:
    """The options of `--calls`.

    Attributes:
        operators: patterns of operators and kernels; a kernel is taken for any operator that it holds.
        where: a condition that one tensor of a call must meet; "" for none.
        hashes: print the hash of every tensor.
        eager: the exported program to call in eager in place of the launches; None for the launches.
        trusted: call it even if it was not made on this account.
    """

    operators: tuple[str, ...] = ()
    where: str = ""
    hashes: bool = False
    eager: Path | None = None
    trusted: bool = False
