"""The options of a triage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.instrument.builder.options import TIMEOUT, BuildOptions
from aoti_debug.package.pt2.archive import Artifact
from aoti_debug.triage.nonfinite.infinities import Infinities
from aoti_debug.triage.results.triage_directory import BASE


@dataclass(frozen=True)
class TriageOptions:
    """The model, its inputs, and how to run it.

    Attributes:
        model: the file of an exported program or of a compiled package, or an instrumented package.
        name: which model of a compiled package that holds several; "" for the only one.
        inputs: a .pt or .safetensors file; None for those embedded in the program or the package.
        random_inputs: the seed of generated inputs; None for none.
        exported: the exported program that a compiled package came from: supplies model lines.
        out: the directory in which the triage directory is made.
        calls: how many times the model is called.
        stall: seconds without a launch that begins or ends until the model counts as hung.
        tries: runs to attempt to reproduce a fault.
        infinities: how unintended infinities are reported.
        compare: at the end, compare every launch with what the program says.
        guards: also look for out-of-bounds writes and uninitialised reads.
        build_timeout: seconds that torch may take to lower the program until it counts as hung.
        inductor_configs, user_code: as for `build` and `run`.
    """

    model: Path
    inputs: Path | None = None
    out: Path = Path(BASE)
    calls: int = 1
    stall: float = 60.0
    tries: int = 3
    infinities: Infinities = Infinities.FAIL
    compare: bool = True
    guards: bool = False
    inductor_configs: Mapping[str, Any] = field(default_factory=dict)
    user_code: UserCode = UserCode()
    name: str = ""
    random_inputs: int | None = None
    exported: Path | None = None
    build_timeout: float = TIMEOUT

    def building(self, program: Artifact, output: Path) -> BuildOptions:
        """The options of a build of the model.

        Args:
            program: the model, or the exported program that it came from.
            output: the package.
        """
        return BuildOptions(
            program=program,
            output=output,
            inductor_configs=self.inductor_configs,
            user_code=self.user_code,
            model=self.name,
            exported=self.exported,
            timeout=self.build_timeout,
        ).for_this_machine()
