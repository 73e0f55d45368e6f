"""Finds a compiled package of a triaged program in the program's folder, and says whether its kernels were run."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from aoti_debug.base.errors import ArtifactError, ToolchainError
from aoti_debug.base.machine import cache
from aoti_debug.base.machine.compiler import find_torch
from aoti_debug.instrument.builder import compare_kernels
from aoti_debug.instrument.builder.build import BuildSummary
from aoti_debug.instrument.builder.compare_kernels import KernelComparison
from aoti_debug.instrument.wrapper import model_variables
from aoti_debug.package.manifest import Constant
from aoti_debug.package.pt2 import archive
from aoti_debug.package.pt2.archive import Artifact, ArtifactKind
from aoti_debug.runs.diagnosis.findings import Finding

_MAX_FILES = 16  # the newest .pt2 files of the folder


def with_remark(finding: Finding, program: Path, built: BuildSummary) -> Finding:
    """The finding with a remark on a compiled package of the program; of one with other kernels also its triage.

    Args:
        program: the exported program.
        built: of the package that was run.
    """
    compared = next(_compared(program, built), None)
    if compared is None:
        return finding
    name = compared.package.name
    others = [f"{kernel.kernel}: {kernel.reason}" for kernel in compared.different]
    others += [f"{kernel}: only in {name}" for kernel in compared.missing]
    remark = f"{compared}{f' ({others[0]})' if others else ''}"
    package, exported = shlex.quote(str(compared.package)), shlex.quote(str(program))
    more = (f"aoti-debug triage {package} --exported {exported}",) if others else ()
    return replace(finding, warnings=(*finding.warnings, remark), next=(*finding.next, *more))


def _compared(program: Path, built: BuildSummary) -> Iterator[KernelComparison]:
    """Yields the comparisons with the packages of the program, the newest first.

    They have its inputs, and one of its weights or of its kernels: some settings pack weights.
    """
    inputs, weights = built.manifest.inputs, _weights(built.manifest.constants)
    for package in _packages(program.absolute()):
        model = package.models[0]
        try:
            text = "".join(package.read(name).decode(errors="replace") for name in package.wrapper_sources(model))
            if model_variables.inputs(text) != inputs:
                continue
            with cache.scratch() as directory:
                kernels = compare_kernels.read_kernels(package, model, directory, find_torch())
        except (ArtifactError, ToolchainError):  # damaged, or of a torch that writes other files
            continue
        compared = compare_kernels.compare(package.path, built.kernels, kernels)
        if weights & _weights(model_variables.constants(text)) or len(compared.different) < compared.kernels:
            yield compared


def _packages(program: Path) -> Iterator[Artifact]:
    """Yields the compiled packages of one model in the folder of a program, the newest first."""
    files = [path for path in program.parent.glob("*.pt2") if path.is_file() and path != program]
    for path in sorted(files, key=lambda path: path.stat().st_mtime, reverse=True)[:_MAX_FILES]:
        try:
            package = archive.inspect(path)
        except ArtifactError:
            continue
        if package.kind is ArtifactKind.PACKAGE and len(package.models) == 1:
            yield package


def _weights(constants: Iterable[Constant]) -> set[tuple[str, str, tuple[int, ...]]]:
    """The names, dtypes and shapes of weights and buffers."""
    return {(constant.fqn, constant.dtype, constant.shape) for constant in constants if constant.fqn}
