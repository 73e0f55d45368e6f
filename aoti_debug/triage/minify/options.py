"""The options of a minimisation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.user_code import UserCode

BASE = "aoti_debug_minified"
MAX_SCRIPTS = 200


@dataclass(frozen=True)
class MinifyOptions:
    """A program with a finding.

    Attributes:
        program: an exported program.
        inputs: a .pt or .safetensors file; None for the program's example inputs.
        inductor_configs: the settings that it shows the finding with.
        calls: how many times the triage calls the model.
        stall: seconds after which a model hangs.
        guards: have the triage look for out-of-bounds writes and uninitialised reads, too.
        most_scripts: how many scripts may run, those of an interrupted search among them.
        out: the directory for the directory of the minimisation, which is named by program, settings and inputs.
        user_code: as for `build` and `run`.
    """

    program: Path
    inputs: Path | None = None
    inductor_configs: Mapping[str, Any] = field(default_factory=dict)
    calls: int = 1
    stall: float = 60.0
    guards: bool = False
    most_scripts: int = MAX_SCRIPTS
    out: Path = Path(BASE)
    user_code: UserCode = UserCode()
