"""The options of a profile."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.base.frozen import dataclass

BASE = "aoti_debug_profiles"
CALLS = 50
WARM_UP = 3  # calls before any time is taken


@dataclass(frozen=True)
class ProfileOptions:
    """A model to measure, and how.

    Attributes:
        model: an exported program, a compiled or an instrumented package.
        inputs: a .pt or .safetensors file; None for those embedded in the package.
        calls: how many calls are measured, after WARM_UP others; on a GPU, after some without its profiler, too.
        against: an older model of the same program, measured in turn with the model; None for none.
        out: the directory in which the directory of the profile is made.
        imports, libraries, trusted: as for `build` and `run`.
        cuda_graph: measure replays of a CUDA graph that captures a call.
    """

    model: Path
    inputs: Path | None = None
    calls: int = CALLS
    against: Path | None = None
    out: Path = Path(BASE)
    imports: tuple[str, ...] = ()
    libraries: tuple[Path, ...] = ()
    trusted: bool = False
    cuda_graph: bool = False
