"""The options of `aoti-debug memory`."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.base.frozen import dataclass

BASE = "aoti_debug_memory"


@dataclass(frozen=True)
class MemoryOptions:
    """The model or run whose memory is shown, and how it is run.

    Attributes:
        what: an exported program, a compiled or an instrumented package; or a run directory or its name.
        inputs: a .pt or .safetensors file; None for those embedded in the package.
        calls: how many times the model is called.
        out: the directory in which the directory of the run is made.
        imports, libraries, trusted: as for `build` and `run`.
    """

    what: Path
    inputs: Path | None = None
    calls: int = 1
    out: Path = Path(BASE)
    imports: tuple[str, ...] = ()
    libraries: tuple[Path, ...] = ()
    trusted: bool = False
