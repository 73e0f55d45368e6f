"""The options of a comparison of two runs."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.user_code import UserCode

BASE = "aoti_debug_diffs"


@dataclass(frozen=True, kw_only=True)
class DiffOptions:
    """Two runs, or models to run, and how.

    Attributes:
        a, b: each a run directory or the name of a run, an exported program, a compiled or an instrumented package.
        inputs: a .pt or .safetensors file for the models; None for those of the run beside a model, or embedded ones.
        calls: how many times each model is called; None: as often as in the run beside it, or once.
        level: of the runs that are made: 1 saves tensors, 2 keeps their hashes and statistics, hash their hashes only.
        explains: compute with the programs in float64 whether rounding explains what differs.
        out: the directory in which the directory of the runs is made.
        user_code: as for `build` and `run`.
    """

    a: Path
    b: Path
    inputs: Path | None = None
    calls: int | None = None
    level: int = 1
    explains: bool = True
    out: Path = Path(BASE)
    user_code: UserCode = UserCode()
