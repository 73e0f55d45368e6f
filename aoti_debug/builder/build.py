"""From an exported program or a compiled package to an instrumented package."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug import manifest
from aoti_debug.builder import compare_kernels, lowering, original_kernels, package, package_manifest
from aoti_debug.builder.analysis import analyse, with_model_lines
from aoti_debug.builder.checked_options import CheckedOptions, check
from aoti_debug.builder.compare_kernels import KernelComparison
from aoti_debug.builder.compilation import Compilation, link_plain
from aoti_debug.builder.instrument import instrument
from aoti_debug.builder.options import TIMEOUT, BuildOptions
from aoti_debug.builder.progress import BuildProgress, Stages
from aoti_debug.builder.summary import BuildSummary
from aoti_debug.builder.tables import sites_cpp
from aoti_debug.builder.toolchain import Toolchain
from aoti_debug.errors import ToolchainError, UsageError
from aoti_debug.frontend import example_inputs, torch_mismatch
from aoti_debug.frontend.lowered import Lowered
from aoti_debug.machine import cache
from aoti_debug.machine.compiler import Torch, find_compiler, find_torch
from aoti_debug.manifest import Manifest, PackageOrigin

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["BuildOptions", "BuildProgress", "BuildSummary", "build", "build_report"]


def build(
    program_or_path: str | Path | ExportedProgram,
    *,
    level: int = 3,
    filters: Sequence[str] = (),
    output: str | Path | None = None,
    inputs: str | Path | None = None,
    inductor_configs: Mapping[str, Any] | None = None,
    imports: Sequence[str] = (),
    libraries: Sequence[str | Path] = (),
    keep_sources: str | Path | None = None,
    model: str = "",
    random_inputs: int | None = None,
    exported: str | Path | None = None,
    progress: BuildProgress | None = None,
    timeout: float = TIMEOUT,
) -> Path:
    """Builds an instrumented package and returns its path. See BuildOptions for the arguments.

    Raises:
        UsageError: an argument is wrong, or the output cannot be written.
        ArtifactError: the program or the inputs are not what they should be.
        ToolchainError: torch or the compiler failed.
    """
    options = BuildOptions(
        program=program_or_path,
        level=level,
        filters=tuple(filters),
        output=None if output is None else Path(output),
        inputs=None if inputs is None else Path(inputs),
        inductor_configs=inductor_configs or {},
        imports=tuple(imports),
        libraries=tuple(str(path) for path in libraries),
        keep_sources=None if keep_sources is None else Path(keep_sources),
        timeout=timeout,
        model=model,
        random_inputs=random_inputs,
        exported=None if exported is None else Path(exported),
    )
    return build_report(options, progress).package


def build_report(options: BuildOptions, progress: BuildProgress | None = None) -> BuildSummary:
    """Builds an instrumented package and says what is in it. Raises as `build`."""
    began = time.monotonic()
    checked = check(options)
    stages = Stages(progress)
    tools = Toolchain(find_compiler(), find_torch())
    with cache.scratch() as work:
        with stages.stage("lower" if checked.compiled is None else "unpack"):
            lowered = lowering.lower(checked, tools.torch, work)
        inputs, program = lowered.inputs, None
        if checked.exported is not None:
            with stages.stage("exported"):
                program = lowering.lower_exported(checked.exported, options, tools.torch, work)
                inputs = example_inputs.lent(lowered, program, checked.exported.path)
        joined = None
        library = work / f"{lowered.sources.stem}.so"
        with _other_torch_explained(lowered, tools), _compilation(tools, lowered, work) as compilation:
            with stages.stage("instrument"):
                analysis = analyse(lowered, tools.torch)
                if program is not None:
                    analysis, joined = with_model_lines(analysis, program, tools.torch)
                originals = original_kernels.hashes(lowered)
                described = package_manifest.describe(options, lowered, tools, analysis, originals)
                text = instrument(lowered.sources.wrapper, analysis.sites, analysis.kernels)
                tables = sites_cpp(described)
                manifest_json = manifest.to_json(described)
            with stages.stage("compile"):
                compilation.add_wrapper(text)
                compilation.add_tables(tables, manifest_json)
                compilation.wait()
            with stages.stage("link"):
                compilation.link(library)
        compared = _compare(checked, lowered, described, tools.torch, work)
        if options.random_inputs is not None:
            with stages.stage("inputs"):
                inputs = lowering.random_inputs(
                    lowered, manifest_json, options.random_inputs, tools.torch, options.timeout
                )
        with stages.stage("package"):
            package.write_instrumented(checked.output, lowered, library, manifest_json, inputs.file)
            original_kernels.check(checked.output, originals, lowered.model)
        if options.plain is not None:
            _build_plain(options.plain, tools, lowered, work)
        if options.keep_sources is not None:
            instrumented = {"wrapper.cpp": text, "sites.cpp": tables, "manifest.json": manifest_json}
            _keep_sources(options.keep_sources, lowered, instrumented)
        takes = lowered.signature
    return BuildSummary(
        package=checked.output,
        manifest=described,
        bytes=checked.output.stat().st_size,
        seconds=time.monotonic() - began,
        stages=stages.seconds,
        without_inputs=inputs.missing,
        unmatched=described.unmatched_filters(described.filters),
        inputs=takes,
        against=compared,
        joined=joined,
    )


@contextmanager
def _compilation(tools: Toolchain, lowered: Lowered, work: Path) -> Iterator[Compilation]:
    """The library's compilation; what does not depend on the launch sites is begun."""
    objects = work / "objects"
    objects.mkdir()
    with Compilation(tools, lowered.sources, objects) as compilation:
        compilation.add_kernels()
        compilation.add_runtime()
        yield compilation


@contextmanager
def _other_torch_explained(lowered: Lowered, tools: Toolchain) -> Iterator[None]:
    """Adds to the error of a package that does not compile what may be the reason: another torch wrote it."""
    try:
        yield
    except ToolchainError as error:
        if lowered.source is PackageOrigin.EXPORTED:
            raise
        raise torch_mismatch.explained(error, lowered.sources, tools.compiler, tools.torch) from error


def _compare(
    checked: CheckedOptions, lowered: Lowered, described: Manifest, torch: Torch, work: Path
) -> KernelComparison | None:
    if checked.against is None:
        return None
    directory = work / "against"
    directory.mkdir()
    theirs = compare_kernels.read(checked.against, checked.model, directory, torch)
    ours = compare_kernels.Kernels(described.kernels, compare_kernels.flags_of(lowered.sources.compile_flags))
    return compare_kernels.compare(checked.against.path, ours, theirs)


def _build_plain(output: Path, tools: Toolchain, lowered: Lowered, work: Path) -> None:
    objects = work / "plain"
    objects.mkdir()
    library = objects / f"{lowered.sources.stem}.so"
    link_plain(tools, lowered.sources, objects, library)
    package.write_plain(output, lowered, library)


def _keep_sources(folder: Path, lowered: Lowered, instrumented: Mapping[str, str]) -> None:
    try:
        shutil.copytree(lowered.sources.directory, folder / "original", dirs_exist_ok=True)
        if lowered.log.exists():
            shutil.copy(lowered.log, folder / lowered.log.name)
        (folder / "instrumented").mkdir(exist_ok=True)
        for name, text in instrumented.items():
            (folder / "instrumented" / name).write_text(text)
    except OSError as error:
        raise UsageError(f"sources cannot be kept in {folder}: {error}", hint="name another directory") from error
