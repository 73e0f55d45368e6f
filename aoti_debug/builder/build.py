"""From an exported program or a compiled package to an instrumented package."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from aoti_debug import __version__, manifest, wrapper
from aoti_debug.builder import compare_kernels, instrument, join_provenance, kernel_details, package, toolchain
from aoti_debug.builder.compare_kernels import Comparison
from aoti_debug.builder.join_provenance import Joined
from aoti_debug.builder.options import COMPILED, TIMEOUT, BuildOptions, checked_output, model_of, patterns
from aoti_debug.builder.toolchain import Compilation, Toolchain
from aoti_debug.errors import InternalError, ToolchainError, UsageError
from aoti_debug.frontend import compiled_package, example_inputs, exported_program, torch_mismatch
from aoti_debug.frontend.exported_program import Lowered
from aoti_debug.frontend.worker import protocol
from aoti_debug.frontend.worker.protocol import Request, name_operators
from aoti_debug.inputs import signature
from aoti_debug.inputs.signature import Leaf, Signature
from aoti_debug.machine import cache
from aoti_debug.machine.compiler import Torch, find_compiler, find_torch
from aoti_debug.manifest import Compiler, Manifest, Sameness, Source
from aoti_debug.pt2 import archive, kernel_hashes
from aoti_debug.wrapper import Analysis, promised_layouts

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["TIMEOUT", "BuildOptions", "BuildSummary", "Progress", "build", "build_report"]

INPUTS_CHILD = "aoti_debug.frontend.worker.make_inputs"


class Progress(Protocol):
    """Is told of every stage: when it begins (`seconds` None), and how long it took."""

    def __call__(self, stage: str, seconds: float | None) -> None: ...


@dataclass(frozen=True)
class BuildSummary:
    """What was built.

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
    inputs: Signature
    against: Comparison | None = None
    joined: int | None = None


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
    progress: Progress | None = None,
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


def build_report(options: BuildOptions, progress: Progress | None = None) -> BuildSummary:
    """Builds an instrumented package and says what is in it. Raises as `build`."""
    began = time.monotonic()
    stages = _Stages(progress)
    output = checked_output(options)
    tools = Toolchain(find_compiler(), find_torch())
    with cache.scratch() as work:
        with stages.stage(_first_stage(options)):
            lowered = _lower(options, tools.torch, work)
            takes = _signature(lowered)
        objects = work / "objects"
        objects.mkdir()
        fresh = None
        if options.exported is not None:
            with stages.stage("exported"):
                fresh = _lower_exported(options, tools.torch, work)
                lowered = example_inputs.with_inputs(lowered, takes, fresh, _signature(fresh), options.exported)
        with _telling(lowered, tools), Compilation(tools, lowered.sources, objects) as compilation:
            compilation.add_kernels()
            compilation.add_runtime()
            with stages.stage("instrument"):
                analysis, joined = _joined(_analyse(lowered, tools.torch), fresh, tools.torch)
                described = _manifest(options, lowered, tools, analysis)
                text = instrument.instrument(lowered.sources.wrapper, analysis.sites, analysis.kernels)
                tables = instrument.tables(described)
                manifest_json = manifest.to_json(described)
            with stages.stage("compile"):
                compilation.add_wrapper(text)
                compilation.add_tables(tables, manifest_json)
                compilation.wait()
            library = work / f"{lowered.sources.stem}.so"
            with stages.stage("link"):
                compilation.link(library)
        compared = _compare(options, lowered, described, tools.torch, work)
        if options.random_inputs is not None:
            with stages.stage("inputs"):
                lowered = _with_random_inputs(options, lowered, manifest_json, tools.torch)
        with stages.stage("package"):
            package.write_instrumented(output, lowered, library, manifest_json)
            _check_sameness(lowered, output)
        if options.plain is not None:
            _build_plain(options.plain, tools, lowered, work)
        if options.keep_sources is not None:
            _keep_sources(
                options.keep_sources,
                lowered,
                {"wrapper.cpp": text, "sites.cpp": tables, "manifest.json": manifest_json},
            )
    return BuildSummary(
        package=output,
        manifest=described,
        bytes=output.stat().st_size,
        seconds=time.monotonic() - began,
        stages=stages.seconds,
        without_inputs=lowered.answer.without_inputs,
        unmatched=described.unmatched(described.filters),
        inputs=takes,
        against=compared,
        joined=None if joined is None else joined.count,
    )


def _first_stage(options: BuildOptions) -> str:
    program = options.program
    compiled = isinstance(program, (str, Path)) and archive.inspect(program).kind in COMPILED
    return "unpack" if compiled else "lower"


class _Stages:
    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        if self._progress:
            self._progress(name, None)
        began = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - began
        if self._progress:
            self._progress(name, self.seconds[name])


def _originals(lowered: Lowered) -> Mapping[str, str]:
    """Hashes of the kernels that the package brought along."""
    return {} if lowered.source is Source.EXPORTED else kernel_hashes.of_files(lowered.sources.shipped)


def _check_sameness(lowered: Lowered, output: Path) -> None:
    """Reads what was written: its kernels are those that the manifest says."""
    originals = _originals(lowered)
    if not originals:
        return
    found = kernel_hashes.compare(originals, kernel_hashes.of_package(archive.inspect(output), lowered.model))
    if found.different:
        output.unlink()
        raise InternalError(f"{output}: {found}; not {', '.join(found.different)}", hint="report this as a bug")


def _lower(options: BuildOptions, torch: Torch, work: Path) -> Lowered:
    program = options.program
    request = Request(
        program=str(Path(program).resolve()) if isinstance(program, (str, Path)) else "",
        folder=str(work / "lowering"),
        configs=name_operators(options.inductor_configs),
        imports=options.imports,
        libraries=tuple(str(Path(path).resolve()) for path in options.libraries),
        inputs=str(options.inputs.resolve()) if options.inputs else "",
    )
    Path(request.folder).mkdir()
    if isinstance(program, (str, Path)):
        found = archive.inspect(program)
        if found.kind in COMPILED:
            return compiled_package.adopt(found, model_of(found, options), request, torch, timeout=options.timeout)
        return exported_program.lower(request, torch, timeout=options.timeout)
    return exported_program.lower_program(program, request, torch, timeout=options.timeout)


def _with_random_inputs(options: BuildOptions, lowered: Lowered, manifest_json: str, torch: Torch) -> Lowered:
    folder = lowered.signature.parent
    (folder / protocol.MANIFEST).write_text(manifest_json, encoding="utf-8")
    request = Request(program="", folder=str(folder), random_inputs=options.random_inputs)
    exported_program.ask(INPUTS_CHILD, request, torch, options.timeout)
    answer = replace(lowered.answer, without_inputs="")
    return replace(lowered, inputs=folder / protocol.INPUTS, answer=answer)


def _lower_exported(options: BuildOptions, torch: Torch, work: Path) -> Lowered:
    folder = work / "exported"
    folder.mkdir()
    request = Request(
        program=str(Path(options.exported or "").resolve()),
        folder=str(folder),
        imports=options.imports,
        libraries=tuple(str(Path(path).resolve()) for path in options.libraries),
    )
    return exported_program.lower(request, torch, timeout=options.timeout)


def _joined(analysis: Analysis, fresh: Lowered | None, torch: Torch) -> tuple[Analysis, Joined | None]:
    """The analysis with the model lines of a fresh lowering."""
    if fresh is None:
        return analysis, None
    other = _analyse(fresh, torch)
    found = join_provenance.join(analysis.sites, analysis.kernels, other.sites, other.kernels)
    return replace(analysis, sites=found.sites), found


def _compare(
    options: BuildOptions, lowered: Lowered, described: Manifest, torch: Torch, work: Path
) -> Comparison | None:
    if options.against is None:
        return None
    found = archive.inspect(options.against)
    directory = work / "against"
    directory.mkdir()
    theirs = compare_kernels.read(found, model_of(found, options), directory, torch)
    ours = compare_kernels.Kernels(described.kernels, compare_kernels.flags_of(lowered.sources.compile_flags))
    return compare_kernels.compare(options.against, ours, theirs)


@contextmanager
def _telling(lowered: Lowered, tools: Toolchain) -> Iterator[None]:
    """What does not compile may do so because another torch wrote it."""
    try:
        yield
    except ToolchainError as error:
        if lowered.source is Source.EXPORTED:
            raise
        raise torch_mismatch.explained(error, lowered.sources, tools.compiler, tools.torch) from error


def _analyse(lowered: Lowered, torch: Torch) -> wrapper.Analysis:
    sources, answer = lowered.sources, lowered.answer
    include = torch.directory / "include"
    return wrapper.analyse(
        sources.wrapper,
        kernels=sources.kernels,
        proxy=sources.extern_nodes,
        provenance=sources.provenance,
        headers=[path.read_text() for name in wrapper.SHIM_HEADERS if (path := include / name).exists()],
        operators=wrapper.shim_operators(answer.shim_operators) | wrapper.declared_shims(answer.custom_shims),
        schemas=answer.schemas,
        operator_stacks=answer.operator_stacks,
    )


def _manifest(options: BuildOptions, lowered: Lowered, tools: Toolchain, analysis: wrapper.Analysis) -> Manifest:
    sources = lowered.sources
    kernels = kernel_details.with_configs(analysis.kernels, lowered.answer.triton_configs, sources.directory)
    originals = _originals(lowered)
    kernels = tuple(replace(kernel, code_sha256=originals.get(kernel.name, kernel.code_sha256)) for kernel in kernels)
    leaves = _signature(lowered).leaves
    return Manifest(
        format=manifest.FORMAT,
        tool_version=__version__,
        torch_version=lowered.answer.torch_version,
        device=sources.device,
        level=options.level,
        filters=patterns(options),
        sites=analysis.sites,
        kernels=kernels,
        unrecognised=analysis.unrecognised,
        compiler=Compiler(
            command=tools.compiler.path,
            kernel_flags=toolchain.kernel_flags(sources),
            include_dirs=sources.compile_flags.include_dirs,
            link_flags=toolchain.link_flags(sources),
        ),
        imports=options.imports,
        libraries=tuple(str(Path(path).resolve()) for path in options.libraries),
        source_sha256=hashlib.sha256(sources.wrapper.encode()).hexdigest(),
        inputs=analysis.inputs,
        input_names=_input_names(leaves, len(analysis.inputs)),
        constants=analysis.constants,
        outputs=analysis.outputs,
        handed_out=analysis.handed_out,
        allocations=analysis.allocations,
        promises=promised_layouts.of_inputs(analysis.inputs, leaves) + lowered.answer.promises,
        without_promises=lowered.answer.without_promises,
        model=lowered.model,
        source=lowered.source,
        other_torch=sources.other_torch,
        without_weights=sources.without_weights if analysis.constants else "",
        sameness=Sameness(len(originals), ()) if originals else None,
        triton_helpers=kernel_details.triton_helpers(kernels, tools.torch.directory),
    )


def _signature(lowered: Lowered) -> Signature:
    return signature.from_json(lowered.signature.read_text(encoding="utf-8"))


def _input_names(leaves: Sequence[Leaf], count: int) -> tuple[str, ...]:
    """What the exported program calls its tensors; empty where they are not the package's inputs one by one."""
    names = tuple(leaf.name for leaf in leaves if leaf.is_tensor)
    return names if len(names) == count else ()


def _build_plain(output: Path, tools: Toolchain, lowered: Lowered, work: Path) -> None:
    objects = work / "plain"
    objects.mkdir()
    library = objects / f"{lowered.sources.stem}.so"
    toolchain.link_plain(tools, lowered.sources, objects, library)
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
