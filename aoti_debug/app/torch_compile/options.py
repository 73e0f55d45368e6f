"""The options of the backend: `torch.compile(model, backend="aoti_debug", options={"level": 1})`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from aoti_debug.base.errors import UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.package.recording import levels

BASE = "aoti_debug_compiled"


@dataclass(frozen=True)
class CompileOptions:
    """The settings of the packages that graphs become.

    Attributes:
        level: 0 off, 1 save, 2 print values, 3 kernel names, 4 (hash) hashes only.
        filter: patterns of kernel names, with commas between them; "!" excludes.
        phase: "before", "after" or "both"; "" for the level's own choice.
        inductor_configs: settings of torch._inductor.config.
        out: where the directory of a compilation is made.
    """

    level: int = 3
    filter: str = ""
    phase: str = ""
    inductor_configs: Mapping[str, Any] = field(default_factory=dict)
    out: Path = Path(BASE)


def from_mapping(values: Mapping[str, Any] | None) -> CompileOptions:
    """The options that a user gave.

    Raises:
        UsageError: one is not known, or has a wrong value.
    """
    known = {member.name: member for member in dataclasses.fields(CompileOptions)}
    given = dict(values or {})
    if unknown := sorted(set(given) - set(known)):
        raise UsageError(
            f'the backend "aoti_debug" has no option {", ".join(map(repr, unknown))}',
            hint=f"it has {', '.join(known)}",
        )
    if "level" in given:
        given["level"] = levels.number(given["level"])
    chosen = CompileOptions(**given)
    if chosen.phase not in ("", "before", "after", "both"):
        raise UsageError(f"phase is {chosen.phase!r}", hint='"before", "after" or "both"')
    if not isinstance(chosen.filter, str):
        raise UsageError(f"filter is {chosen.filter!r}", hint="patterns in one text: 'triton_*,!*softmax*'")
    if not isinstance(chosen.inductor_configs, Mapping):
        raise UsageError(f"inductor_configs is {chosen.inductor_configs!r}", hint="{'max_autotune': True}")
    if not isinstance(chosen.out, str | os.PathLike):
        raise UsageError(f"out is {chosen.out!r}", hint="the path of a directory")
    return dataclasses.replace(chosen, out=Path(chosen.out))
