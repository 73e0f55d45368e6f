"""What was built."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aoti_debug.builder.compare_kernels import KernelComparison
from aoti_debug.inputs.signature import ModelSignature
from aoti_debug.manifest import Manifest


@dataclass(frozen=True)
class BuildSummary:
    """
    Attributes:
        stages: seconds of each stage, in order.
        without_inputs: why no inputs are embedded; "" where they are.
        unmatched: filters that match no kernel.
        inputs: what the model takes.
        against: how its kernels compare with those of the package that was asked for; None where none was.
        joined: launch sites that got a model line from the exported program; None where none was given.
    """

    package: Path
    manifest: Manifest
    bytes: int
    seconds: float
    stages: Mapping[str, float]
    without_inputs: str
    unmatched: tuple[str, ...]
    inputs: ModelSignature
    against: KernelComparison | None = None
    joined: int | None = None


def unmatched_filters(filters: Sequence[str], kernels: Sequence[str]) -> tuple[str, ...]:
    """The patterns that match none of the kernels."""
    return tuple(
        pattern
        for pattern in filters
        if not any(fnmatch.fnmatchcase(kernel, pattern.removeprefix("!")) for kernel in kernels)
    )
