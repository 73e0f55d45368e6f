"""The options of a bisection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.user_code import UserCode

BASE = "aoti_debug_bisects"


@dataclass(frozen=True, kw_only=True)
class BisectOptions:
    """Two models of one program, a right and a wrong one.

    Attributes:
        good, bad: each an exported program, a compiled or an instrumented package.
        inputs: a .pt or .safetensors file; None for those embedded in the packages.
        calls: how many times each is called.
        out: the directory in which the directory of the bisection is made.
        user_code: as for `build` and `run`.
    """

    good: Path
    bad: Path
    inputs: Path | None = None
    calls: int = 1
    out: Path = Path(BASE)
    user_code: UserCode = UserCode()


@dataclass(frozen=True, kw_only=True)
class SettingsOptions:
    """A program that is wrong once it is compiled.

    Attributes:
        program: an exported program.
        inductor_configs: the settings that it is wrong with.
        inputs: a .pt or .safetensors file; None for the program's example inputs.
        calls: how many times the model is called.
        out: the directory for the directory of the bisection, which is named by program and settings.
        user_code: as for `build` and `run`.
    """

    program: Path
    inductor_configs: Mapping[str, Any] = field(default_factory=dict)
    inputs: Path | None = None
    calls: int = 1
    out: Path = Path(BASE)
    user_code: UserCode = UserCode()
