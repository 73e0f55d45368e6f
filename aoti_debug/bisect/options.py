"""The options of a bisection."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

BASE = "aoti_debug_bisects"


@dataclass(frozen=True)
class BisectOptions:
    """Two models of one program, a right and a wrong one.

    Attributes:
        good, bad: each an exported program, a compiled or an instrumented package.
        inputs: a .pt or .safetensors file; None for those embedded in the packages.
        calls: how many times each is called.
        out: the directory in which the directory of the bisection is made.
        imports, libraries, trusted: as for `build` and `run`.
    """

    good: Path
    bad: Path
    inputs: Path | None = None
    calls: int = 1
    out: Path = Path(BASE)
    imports: tuple[str, ...] = ()
    libraries: tuple[Path, ...] = ()
    trusted: bool = False
