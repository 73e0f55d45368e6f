"""Builds an instrumented package as a step of a longer piece of work."""

from __future__ import annotations

from aoti_debug.base import wording
from aoti_debug.base.machine.progress.steps import Steps
from aoti_debug.instrument.builder.build import BuildOptions, build_report
from aoti_debug.instrument.builder.summary import BuildSummary
from aoti_debug.package.inputs.input_files import missing_inputs_error


def build_step(name: str, options: BuildOptions, steps: Steps) -> BuildSummary:
    """Builds a package; the result of the step is the number of its launch sites.

    Raises:
        UsageError, ArtifactError, ToolchainError: as of `build_report`.
    """
    with steps.step(name) as note:
        built = build_report(options)
        note.text = wording.pluralize(len(built.manifest.sites), "launch site")
    return built


def require_inputs(options: BuildOptions, built: BuildSummary) -> None:
    """Raises ArtifactError or UsageError if a package that is about to run without given inputs holds none."""
    if built.missing_inputs_reason:
        raise missing_inputs_error(str(options.program), built.signature)
