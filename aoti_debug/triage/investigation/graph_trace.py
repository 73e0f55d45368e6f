"""Asks the graph that a package's kernels were generated from what happened within a launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

from aoti_debug.base.errors import AotiDebugError
from aoti_debug.base.wording import first_line
from aoti_debug.compare.compare_run import Scope, has_reference
from aoti_debug.runs.diagnosis.findings import Finding
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.triage.investigation.investigation import Investigation


class Located(Protocol):
    """An answer of the graph."""

    @property
    def operator(self) -> str:
        """The operator that it is about."""


T = TypeVar("T", bound=Located)


def with_graph(
    investigation: Investigation,
    finding: Finding,
    run: RunDir,
    step: str,
    trace: Callable[[Scope, Path], T | None],
    explain: Callable[[Finding, T], Finding],
) -> Finding:
    """The finding with what the graph shows; unchanged where the package holds no graph, or it shows nothing.

    Args:
        run: with the tensors that the launch read.
        step: the name of the step.
        trace: finds it; the folder is for its files.
    """
    if not has_reference(run):
        return finding
    scope = Scope(imports=investigation.options.imports, libraries=investigation.options.libraries)
    try:
        with investigation.steps.step(step) as note:
            found = trace(scope, investigation.repro.parent)
            note.text = "the graph does not show it" if found is None else found.operator
    except AotiDebugError as error:
        return replace(finding, warnings=(*finding.warnings, f"the graph was not evaluated: {first_line(str(error))}"))
    return finding if found is None else explain(finding, found)
