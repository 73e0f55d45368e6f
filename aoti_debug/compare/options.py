"""The options of a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from aoti_debug.base.frozen import dataclass
from aoti_debug.instrument.frontend.protocol.messages import LeftOut
from aoti_debug.package.recording.site_filter import EVERYTHING, SiteFilter

BASE = "aoti_debug_compares"


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """The model or run to compare with its program.

    Attributes:
        model: an exported program, a compiled or an instrumented package, or a run directory.
        exported: the exported program that a compiled package came from.
        inputs: a .pt or .safetensors file; None for those embedded in the program or the package.
        random_inputs: the seed of inputs to make, for a first look; None to take given ones.
        calls: how many times the model is called.
        filters: the launches to compare.
        metric: "FILE.py:FUNCTION"; "" for none.
        out: the directory in which the directory of the comparison is made.
        left_out: operators that are called as they are when the model is built; None to note nothing either.
        inductor_configs, imports, libraries, trusted: as for `build` and `run`.
    """

    model: Path
    exported: Path | None = None
    inputs: Path | None = None
    random_inputs: int | None = None
    calls: int = 1
    filters: SiteFilter = EVERYTHING
    metric: str = ""
    out: Path = Path(BASE)
    inductor_configs: Mapping[str, Any] = field(default_factory=dict)
    imports: tuple[str, ...] = ()
    libraries: tuple[Path, ...] = ()
    trusted: bool = False
    left_out: LeftOut | None = None
