"""Builds an instrumented package from an exported program or a compiled package."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from aoti_debug.base import wording
from aoti_debug.base.errors import ToolchainError, UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import cache
from aoti_debug.base.machine.compiler import Torch, find_compiler, find_torch
from aoti_debug.base.machine.steps import Step, StepListener, Steps
from aoti_debug.instrument.builder import compare_kernels, join_program, package_manifest, write_package
from aoti_debug.instrument.builder.compare_kernels import KernelComparison, KernelSet
from aoti_debug.instrument.builder.compiling import failed_kernel, runtime_objects
from aoti_debug.instrument.builder.compiling.compile_library import LibraryCompilation, build_plain_library
from aoti_debug.instrument.builder.compiling.site_tables import sites_cpp
from aoti_debug.instrument.builder.compiling.toolchain import CompileError, Toolchain
from aoti_debug.instrument.builder.instrument import instrument
from aoti_debug.instrument.builder.options import (
    BuildOptions,
    BuildProgress,
    BuildSettings,
    CheckedOptions,
    check,
    options_of,
)
from aoti_debug.instrument.builder.package_manifest import analyse
from aoti_debug.instrument.frontend import (
    compatibility,
    compiled_package,
    exported_program,
    lowered_model,
    worker_process,
)
from aoti_debug.instrument.frontend.lowered_model import EmbeddedInputs, LoweredModel, embedded_inputs
from aoti_debug.instrument.frontend.protocol import messages
from aoti_debug.instrument.frontend.protocol.build_failure import BuildFailureError
from aoti_debug.instrument.frontend.protocol.caller_settings import MULTI_ARCH
from aoti_debug.instrument.frontend.protocol.messages import Autotuning, Request, name_operators
from aoti_debug.package import recording_settings
from aoti_debug.package.inputs.input_files import missing_inputs_error
from aoti_debug.package.inputs.signature import ModelSignature
from aoti_debug.package.manifest import Manifest, PackageOrigin
from aoti_debug.package.pt2 import archive, trust
from aoti_debug.package.pt2.archive import Artifact, ArtifactKind
from aoti_debug.package.recording_settings import Unmatched
from aoti_debug.package.weights_file import WeightsPlace

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from typing_extensions import Unpack


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
        kernels: its kernels, and how those in C++ were compiled.
        comparison: its kernels compared with those of the package given by `against`; None without one.
        joined_sites: number of launch sites that got a model line from the exported program; None without one.
        program_difference: the first launch site that the package and a new lowering of the exported program do not
            have in common; "" if there is none.
        autotuning: where the configurations of the kernels of an exported program come from.
        is_for_one_gpu: kernels for several architectures were asked for; the package has those of this machine's GPU.
    """

    package: Path
    manifest: Manifest
    bytes: int
    seconds: float
    stages: Mapping[str, float]
    missing_inputs_reason: str
    unmatched: tuple[Unmatched, ...]
    signature: ModelSignature
    kernels: KernelSet = KernelSet()
    comparison: KernelComparison | None = None
    joined_sites: int | None = None
    program_difference: str = ""
    autotuning: Autotuning = Autotuning()
    is_for_one_gpu: bool = False


def lower_or_unpack(checked: CheckedOptions, torch: Torch, work: Path) -> LoweredModel:
    """Lowers the exported program, or unpacks the compiled package, that is built from.

    Args:
        work: a directory for all results.

    Raises:
        ArtifactError, ToolchainError, UsageError: like `exported_program.lower` and `compiled_package.prepare_package`.
    """
    program, options = checked.program, checked.options
    folder = work / "lowering"
    folder.mkdir()
    request = Request(
        program=str(program.path.resolve()) if isinstance(program, Artifact) else "",
        folder=str(folder),
        configs=name_operators(options.inductor_configs),
        imports=options.user_code.imports,
        libraries=options.user_code.library_paths,
        inputs=str(options.inputs.resolve()) if options.inputs else "",
        left_out=options.left_out,
        weights_by_reference=options.weights is WeightsPlace.BY_REFERENCE,
    )
    if not isinstance(program, Artifact):
        return exported_program.lower_program(program, request, torch, timeout=options.timeout)
    if checked.compiled is not None:
        return compiled_package.prepare_package(
            checked.compiled, checked.model, request, torch, timeout=options.timeout
        )
    return exported_program.lower(request, torch, timeout=options.timeout)


def lower_exported(
    exported: Artifact | ExportedProgram, options: BuildOptions, torch: Torch, work: Path
) -> LoweredModel:
    """Lowers the exported program that a compiled package came from. Raises like `lower_or_unpack`."""
    folder = work / "exported"
    folder.mkdir()
    request = Request(
        program=str(exported.path.resolve()) if isinstance(exported, Artifact) else "",
        folder=str(folder),
        imports=options.user_code.imports,
        libraries=options.user_code.library_paths,
        configs=name_operators(options.inductor_configs),
    )
    if not isinstance(exported, Artifact):
        return exported_program.lower_program(exported, request, torch, timeout=options.timeout)
    return exported_program.lower(request, torch, timeout=options.timeout)


def make_random_inputs(
    lowered: LoweredModel, manifest_json: str, seed: int, torch: Torch, timeout: float
) -> EmbeddedInputs:
    """Makes random inputs that the model accepts.

    Raises:
        ArtifactError: no inputs are acceptable, or the package does not describe its inputs.
        ToolchainError: the process that makes them crashed or hung.
    """
    folder = lowered.signature_file.parent
    (folder / messages.MANIFEST).write_text(manifest_json, encoding="utf-8")
    request = Request(program="", folder=str(folder), random_inputs=seed)
    return embedded_inputs(folder, worker_process.run_worker(worker_process.WITHOUT_LOWERING, request, torch, timeout))


class _Reports(StepListener):
    """Tells a callback of the stages."""

    def __init__(self, progress: BuildProgress) -> None:
        self._progress = progress

    def began(self, name: str) -> None:
        self._progress(name, None)

    def finished(self, step: Step) -> None:
        self._progress(step.name, step.seconds)


__all__ = ["BuildOptions", "BuildProgress", "BuildSummary", "build", "build_report"]


def build(program_or_path: str | Path | ExportedProgram, **settings: Unpack[BuildSettings]) -> Path:
    """Builds an instrumented package and returns its path.

    Args:
        program_or_path: an exported program, or the file of one or of a compiled package.
        settings: level=1, filters=["triton_*"], output="m.pt2": help(aoti_debug.BuildSettings) lists them.

    Raises:
        TypeError: there is no such setting.
        UsageError: a setting is wrong, or the output cannot be written.
        ArtifactError: the program or the inputs are damaged or of the wrong kind.
        ToolchainError: torch or the compiler failed.
    """
    return build_report(options_of(program_or_path, settings), settings.get("progress")).package


def build_report(options: BuildOptions, progress: BuildProgress | None = None) -> BuildSummary:
    """Builds an instrumented package and returns a summary of it. Raises the errors of `build`."""
    stages = Steps(_Reports(progress) if progress else None)
    checked = check(options)
    tools = Toolchain(find_compiler(), find_torch())
    with _naming_model(checked), cache.scratch() as work:
        checked.require_room(work)
        stage = stages.step("lower" if checked.compiled is None else "unpack")
        with stage, runtime_objects.compiled_meanwhile(tools):
            lowered = lower_or_unpack(checked, tools.torch, work)
        inputs, program = lowered.inputs, None
        if checked.exported is not None:
            with stages.step("exported"):
                program = lower_exported(checked.exported, options, tools.torch, work)
                name = checked.exported.path if isinstance(checked.exported, Artifact) else Path("the program")
                inputs = lowered_model.choose_inputs(lowered, program, name)
                lowered = lowered_model.with_input_names(lowered, program)
        joined_sites, difference = None, ""
        library = work / f"{lowered.sources.stem}.so"
        with _explained_errors(lowered, tools, work), _compilation(tools, lowered, work) as (compilation, kernels):
            with stages.step("instrument"):
                analysis = analyse(lowered, tools.torch)
                if program is not None:
                    fresh = analyse(program, tools.torch)
                    matched = join_program.match(analysis, fresh)
                    difference = matched.difference
                    analysis, joined_sites = join_program.join_model_lines(analysis, fresh)
                    if difference:
                        lowered = join_program.add_exported(lowered, program, difference, work)
                    else:
                        lowered = join_program.add_reference(lowered, program, matched.names, work)
                original_hashes = compare_kernels.original_hashes(lowered)
                new_manifest = package_manifest.make_manifest(options, lowered, tools, analysis, original_hashes)
                wrapper = instrument(lowered.sources.wrapper, analysis, options.weights)
                tables = sites_cpp(new_manifest)
                manifest_json = new_manifest.json_text
            with stages.step("compile"):
                compilation.add_wrapper(wrapper)
                compilation.add_tables(tables, manifest_json)
                compilation.wait()
            with stages.step("link"):
                compilation.link(library)
        kernel_set = KernelSet(new_manifest.kernels, compare_kernels.relevant_flags(lowered.sources.compile_flags))
        comparison = _compare(checked, kernel_set, tools.torch, work)
        if options.random_inputs is not None:
            with stages.step("inputs"):
                inputs = make_random_inputs(lowered, manifest_json, options.random_inputs, tools.torch, options.timeout)
        if options.plain is not None:
            _build_plain(options.plain, tools, lowered, work, kernels.result())
        if options.keep_sources is not None:
            instrumented = {"wrapper.cpp": wrapper, "sites.cpp": tables, "manifest.json": manifest_json}
            _keep_sources(options.keep_sources, lowered, instrumented)
        with stages.step("package"):
            read: list[trust.Content] = []

            def check_written(file: Path) -> None:
                written = archive.inspect(file)
                compare_kernels.verify_originals(written, original_hashes, lowered.model)
                read.append(trust.content_of(written))

            output = checked.output
            write_package.write_instrumented(output, lowered, library, manifest_json, inputs.file, check_written)
            trust.remember_as(output, *read)
        signature = lowered.signature
    return BuildSummary(
        package=checked.output,
        manifest=new_manifest,
        bytes=checked.output.stat().st_size,
        seconds=stages.now,
        stages={step.name: step.seconds for step in stages.done},
        missing_inputs_reason=inputs.missing_reason,
        unmatched=recording_settings.unmatched(new_manifest, options.site_filter),
        signature=signature,
        kernels=kernel_set,
        comparison=comparison,
        joined_sites=joined_sites,
        program_difference=difference,
        autotuning=lowered.answer.autotuning,
        is_for_one_gpu=new_manifest.device == "cuda" and bool(options.inductor_configs.get(MULTI_ARCH)),
    )


def manifest_of(options: BuildOptions) -> Manifest:
    """The manifest of the package that a build would make: nothing is compiled. Raises the errors of `build`."""
    checked = check(options)
    tools = Toolchain(find_compiler(), find_torch())
    with _naming_model(checked), cache.scratch() as work:
        lowered = lower_or_unpack(checked, tools.torch, work)
        analysis = analyse(lowered, tools.torch)
        if checked.exported is not None:
            program = lower_exported(checked.exported, options, tools.torch, work)
            analysis, _ = join_program.join_model_lines(analysis, analyse(program, tools.torch))
        return package_manifest.make_manifest(options, lowered, tools, analysis, {})


def require_inputs(model: Path, built: BuildSummary) -> None:
    """Raises ArtifactError or UsageError if a package that is about to run without given inputs holds none."""
    if built.missing_inputs_reason:
        making = ("aoti-debug", "build", str(model), "--random-inputs", "0")
        raise missing_inputs_error(str(model), built.signature, making)


def instrumented(
    model: Path,
    options: BuildOptions,
    steps: Steps,
    *,
    name: str = "build",
    has_inputs: bool,
    check: Callable[[BuildSummary], None] | None = None,
) -> Path:
    """A model as an instrumented package that can be run: the model itself if it is one, otherwise built as a step.

    Args:
        options: of the build of the model.
        name: of the step.
        has_inputs: True if inputs are given for the run, so that the package needs none.
        check: called with the result of a build before its inputs are looked at.

    Raises:
        UsageError, ArtifactError, ToolchainError: as of `build_report` and `require_inputs`.
    """
    if archive.inspect(model).kind is ArtifactKind.INSTRUMENTED:
        return model
    with steps.step(name) as note:
        built = build_report(options.for_this_machine())
        note.text = wording.pluralize(len(built.manifest.sites), "launch site")
    if check is not None:
        check(built)
    if not has_inputs:
        require_inputs(model, built)
    return built.package


@contextmanager
def _compilation(
    tools: Toolchain, lowered: LoweredModel, work: Path
) -> Iterator[tuple[LibraryCompilation, Future[Sequence[Path]]]]:
    """The compilation of the library, and of its kernels; it begins with these and the runtime, which need no sites."""
    objects = work / "objects"
    objects.mkdir()
    with LibraryCompilation(tools, lowered.sources, objects) as compilation:
        kernels = compilation.add_kernels()
        compilation.add_runtime()
        yield compilation, kernels


@contextmanager
def _naming_model(checked: CheckedOptions) -> Iterator[None]:
    """Names the file of the model in the hint of a build that fails."""
    try:
        yield
    except BuildFailureError as error:
        if not isinstance(checked.program, Artifact):
            raise
        raise error.of_model(checked.program.path) from error


@contextmanager
def _explained_errors(lowered: LoweredModel, tools: Toolchain, work: Path) -> Iterator[None]:
    """Explains the error of a package that does not compile.

    To that of an exported program it adds the kernel to blame, to that of a compiled package a possible reason: another
    torch wrote it.
    """
    try:
        yield
    except ToolchainError as error:
        if lowered.source is PackageOrigin.EXPORTED:
            if not isinstance(error, CompileError):
                raise
            raise failed_kernel.explain(error, lowered, tools, work) from error
        raise compatibility.explain_compile_error(error, lowered.sources, tools.compiler, tools.torch) from error


def _compare(checked: CheckedOptions, fresh: KernelSet, torch: Torch, work: Path) -> KernelComparison | None:
    if checked.against is None:
        return None
    directory = work / "against"
    directory.mkdir()
    package_kernels = compare_kernels.read_kernels(checked.against, checked.model, directory, torch)
    return compare_kernels.compare(checked.against.path, fresh, package_kernels)


def _build_plain(output: Path, tools: Toolchain, lowered: LoweredModel, work: Path, kernels: Sequence[Path]) -> None:
    objects = work / "plain"
    objects.mkdir()
    library = objects / f"{lowered.sources.stem}.so"
    build_plain_library(tools, lowered.sources, objects, library, kernels)
    write_package.write_plain(output, lowered, library)


def _keep_sources(folder: Path, lowered: LoweredModel, instrumented: Mapping[str, str]) -> None:
    try:
        shutil.copytree(lowered.sources.directory, folder / "original", dirs_exist_ok=True)
        if lowered.log.exists():
            shutil.copy(lowered.log, folder / lowered.log.name)
        (folder / "instrumented").mkdir(exist_ok=True)
        for name, text in instrumented.items():
            (folder / "instrumented" / name).write_text(text)
    except OSError as error:
        raise UsageError(f"sources cannot be kept in {folder}: {error}", hint="name another directory") from error
