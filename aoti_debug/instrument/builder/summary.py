"""The summary of a build: its package, manifest, times and missing parts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.instrument.builder.kernels.compare_kernels import KernelComparison
from aoti_debug.package.inputs.signature import ModelSignature
from aoti_debug.package.manifest import Manifest
from aoti_debug.package.recording.site_filter import Unmatched


@dataclass(frozen=True)
class BuildSummary:
    """The result of a build.

    Attributes:
        bytes: size of the package's file.
        seconds: duration of the whole build.
        stages: seconds of each stage, in order.
        missing_inputs_reason: why no inputs are embedded; "" if there are some.
        unmatched: patterns that match no launch site.
        signature: the inputs that the model takes.
        comparison: its kernels compared with those of the package given by `against`; None without one.
        joined_sites: number of launch sites that got a model line from the exported program; None without one.
        program_difference: the first launch site that the package and a new lowering of the exported program do not
            have in common; "" if there is none.
    """

    package: Path
    manifest: Manifest
    bytes: int
    seconds: float
    stages: Mapping[str, float]
    missing_inputs_reason: str
    unmatched: tuple[Unmatched, ...]
    signature: ModelSignature
    comparison: KernelComparison | None = None
    joined_sites: int | None = None
    program_difference: str = ""
