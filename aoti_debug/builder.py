"""From an exported program or a compiled package to an instrumented package."""

from __future__ import annotations

import fnmatch
import hashlib
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from aoti_debug import (
    __version__,
    adopt,
    artifact,
    cache,
    instrument,
    kernel_details,
    lower,
    lowering,
    manifest,
    package,
    promises,
    sameness,
    signature,
    toolchain,
    wrapper,
)
from aoti_debug.artifact import Artifact, ArtifactKind
from aoti_debug.compiler import Torch, find_compiler, find_torch
from aoti_debug.errors import ArtifactError, InternalError, UsageError
from aoti_debug.lower import Lowered
from aoti_debug.lowering import Request, name_operators
from aoti_debug.manifest import Compiler, Manifest, Sameness, Source
from aoti_debug.signature import Leaf
from aoti_debug.toolchain import Compilation, Toolchain

if TYPE_CHECKING:
    from torch.export import ExportedProgram

TIMEOUT = 3600.0  # seconds; autotuning of a large model takes long
INPUTS_CHILD = "aoti_debug._inputs_child"
LEVELS = range(4)
COMPILED = (ArtifactKind.PACKAGE, ArtifactKind.SOURCES)


class Progress(Protocol):
    """Is told of every stage: when it begins (`seconds` None), and how long it took."""

    def __call__(self, stage: str, seconds: float | None) -> None: ...


@dataclass(frozen=True)
class BuildOptions:
    """What to build, and how.

    Attributes:
        program: the file of an exported program or of a compiled package, or an exported program.
        model: which model of a compiled package that holds several; "" for the only one.
        level: 0 off, 1 save, 2 print values, 3 kernel names; in force where the environment names none.
        filters: fnmatch patterns on kernel names, "!" excludes; narrow what levels 1-3 print and save.
        output: the package; by default `<program>.instrumented.pt2` in the current directory.
        inputs: a file of inputs to embed instead of the program's own example inputs.
        random_inputs: a seed: embed inputs that are made to fit.
        inductor_configs: settings of torch._inductor.config. In custom_ops_to_c_shims, an operator may be given by its
            name: "mylib::op" or "mylib::op.default".
        imports: modules to import before the program is loaded; kept in the manifest.
        libraries: libraries of operators to load before it; kept in the manifest as absolute paths.
        keep_sources: a directory for the generated C++, original and instrumented.
        plain: also write the plain twin: the package that torch would have built from the same sources.
        timeout: seconds until the lowering counts as hung.
    """

    program: str | Path | ExportedProgram
    level: int = 3
    filters: tuple[str, ...] = ()
    output: Path | None = None
    inputs: Path | None = None
    inductor_configs: Mapping[str, Any] = field(default_factory=dict)
    imports: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    keep_sources: Path | None = None
    plain: Path | None = None
    timeout: float = TIMEOUT
    model: str = ""
    random_inputs: int | None = None


@dataclass(frozen=True)
class BuildSummary:
    """What was built.

    Attributes:
        stages: seconds of each stage, in order.
        without_inputs: why no inputs are embedded; "" where they are.
        unmatched: filters that match no kernel.
        inputs: what the model takes.
    """

    package: Path
    manifest: Manifest
    bytes: int
    seconds: float
    stages: Mapping[str, float]
    without_inputs: str
    unmatched: tuple[str, ...]
    inputs: tuple[Leaf, ...]


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
    )
    return build_report(options, progress).package


def build_report(options: BuildOptions, progress: Progress | None = None) -> BuildSummary:
    """Builds an instrumented package and says what is in it. Raises as `build`."""
    began = time.monotonic()
    stages = _Stages(progress)
    output = _checked_output(options)
    tools = Toolchain(find_compiler(), find_torch())
    with cache.scratch() as work:
        with stages.stage(_first_stage(options)):
            lowered = _lower(options, tools.torch, work)
            leaves = _leaves(lowered)
        objects = work / "objects"
        objects.mkdir()
        with Compilation(tools, lowered.sources, objects) as compilation:
            compilation.add_kernels()
            compilation.add_runtime()
            with stages.stage("instrument"):
                analysis = _analyse(lowered, tools.torch)
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
        unmatched=unmatched_filters(described.filters, [site.kernel for site in described.sites]),
        inputs=leaves,
    )


def unmatched_filters(filters: Sequence[str], kernels: Sequence[str]) -> tuple[str, ...]:
    """The patterns that match none of the kernels."""
    return tuple(
        pattern
        for pattern in filters
        if not any(fnmatch.fnmatchcase(kernel, pattern.removeprefix("!")) for kernel in kernels)
    )


def _first_stage(options: BuildOptions) -> str:
    program = options.program
    compiled = isinstance(program, (str, Path)) and artifact.inspect(program).kind in COMPILED
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


def _checked_output(options: BuildOptions) -> Path:
    """Checks all that can be checked before torch is started; the output's path."""
    if options.level not in LEVELS:
        raise UsageError(f"level {options.level} does not exist", hint="levels: 0 off, 1 save, 2 values, 3 names")
    if not all(pattern.removeprefix("!") for pattern in _patterns(options)):
        raise UsageError("an empty filter", hint="a filter is a pattern on kernel names: 'triton_*', '!cpp_fused_*'")
    stem = "model"
    if isinstance(options.program, (str, Path)):
        program = Path(options.program)
        _check_program(program, options)
        stem = program.name.removesuffix(".pt2")
    output = options.output or Path(f"{stem}.instrumented.pt2")
    if isinstance(options.program, (str, Path)) and output.exists() and output.samefile(options.program):
        raise UsageError(f"{output} is the model itself", hint="name another file with -o")
    package.check_writable(output)
    if options.inputs is not None and options.random_inputs is not None:
        raise UsageError("--inputs and --random-inputs are two sets of inputs", hint="leave one of them out")
    if options.inputs is not None and not options.inputs.is_file():
        raise ArtifactError(f"{options.inputs} does not exist", hint="--inputs takes a .pt or .safetensors file")
    return output


def _check_program(path: Path, options: BuildOptions) -> None:
    if artifact.inspect(path).kind not in COMPILED:
        artifact.expect(path, ArtifactKind.EXPORTED)
        if options.model:
            raise UsageError("an exported program holds one model", hint="leave out --model")
    elif options.inductor_configs:
        raise UsageError(
            f"{path} is compiled already: --inductor-config changes nothing in it",
            hint="pass the exported program, or leave the option out",
        )


def _model_of(package: Artifact, options: BuildOptions) -> str:
    if options.model in package.models:
        return options.model
    names = ", ".join(package.models)
    if options.model:
        raise UsageError(f"{package.path} holds no model {options.model!r}", hint=f"it holds {names}")
    if len(package.models) > 1:
        raise UsageError(f"{package.path} holds {len(package.models)} models", hint=f"name one with --model: {names}")
    return package.models[0]


def _originals(lowered: Lowered) -> Mapping[str, str]:
    """Hashes of the kernels that the package brought along."""
    return {} if lowered.source is Source.EXPORTED else sameness.of_files(lowered.sources.shipped)


def _check_sameness(lowered: Lowered, output: Path) -> None:
    """Reads what was written: its kernels are those that the manifest says."""
    originals = _originals(lowered)
    if not originals:
        return
    found = sameness.compare(originals, sameness.of_package(artifact.inspect(output), lowered.model))
    if found.different:
        output.unlink()
        raise InternalError(f"{output}: {found}; not {', '.join(found.different)}", hint="report this as a bug")


def _patterns(options: BuildOptions) -> tuple[str, ...]:
    """The filters one by one: a comma separates patterns here as it does in AOTI_DEBUG_FILTER."""
    return tuple(pattern for patterns in options.filters for pattern in patterns.split(","))


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
        found = artifact.inspect(program)
        if found.kind in COMPILED:
            return adopt.adopt(found, _model_of(found, options), request, torch, timeout=options.timeout)
        return lower.lower(request, torch, timeout=options.timeout)
    return lower.lower_program(program, request, torch, timeout=options.timeout)


def _with_random_inputs(options: BuildOptions, lowered: Lowered, manifest_json: str, torch: Torch) -> Lowered:
    folder = lowered.signature.parent
    (folder / lowering.MANIFEST).write_text(manifest_json, encoding="utf-8")
    request = Request(program="", folder=str(folder), random_inputs=options.random_inputs)
    lower.ask(INPUTS_CHILD, request, torch, options.timeout)
    answer = replace(lowered.answer, without_inputs="")
    return replace(lowered, inputs=folder / lowering.INPUTS, answer=answer)


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
    )


def _manifest(options: BuildOptions, lowered: Lowered, tools: Toolchain, analysis: wrapper.Analysis) -> Manifest:
    sources = lowered.sources
    kernels = kernel_details.with_configs(analysis.kernels, lowered.answer.triton_configs, sources.directory)
    originals = _originals(lowered)
    kernels = tuple(replace(kernel, code_sha256=originals.get(kernel.name, "")) for kernel in kernels)
    leaves = _leaves(lowered)
    return Manifest(
        format=manifest.FORMAT,
        tool_version=__version__,
        torch_version=lowered.answer.torch_version,
        device=sources.device,
        level=options.level,
        filters=_patterns(options),
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
        allocations=analysis.allocations,
        promises=promises.of_inputs(analysis.inputs, leaves) + lowered.answer.promises,
        without_promises=lowered.answer.without_promises,
        model=lowered.model,
        source=lowered.source,
        without_weights=sources.without_weights if analysis.constants else "",
        sameness=Sameness(len(originals), ()) if originals else None,
        triton_helpers=kernel_details.triton_helpers(kernels, tools.torch.directory),
    )


def _leaves(lowered: Lowered) -> tuple[Leaf, ...]:
    return signature.from_json(lowered.signature.read_text(encoding="utf-8")).leaves


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
