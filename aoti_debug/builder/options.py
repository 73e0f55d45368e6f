"""What to build and how, checked as far as it can be before torch is started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug.builder import package
from aoti_debug.errors import ArtifactError, UsageError
from aoti_debug.pt2 import archive
from aoti_debug.pt2.archive import Artifact, ArtifactKind

if TYPE_CHECKING:
    from torch.export import ExportedProgram

TIMEOUT = 3600.0  # seconds; autotuning of a large model takes long
LEVELS = range(4)
COMPILED = (ArtifactKind.PACKAGE, ArtifactKind.SOURCES)


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
        against: a compiled package whose kernels those of an exported program are compared with.
        exported: the exported program that a compiled package came from: tells its model lines.
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
    against: Path | None = None
    exported: Path | None = None


def checked_output(options: BuildOptions) -> Path:
    """Checks all that can be checked before torch is started; the output's path."""
    if options.level not in LEVELS:
        raise UsageError(f"level {options.level} does not exist", hint="levels: 0 off, 1 save, 2 values, 3 names")
    if not all(pattern.removeprefix("!") for pattern in patterns(options)):
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
    if archive.inspect(path).kind not in COMPILED:
        archive.expect(path, ArtifactKind.EXPORTED)
        if options.exported is not None:
            raise UsageError(f"{path} is an exported program itself", hint="--exported is for a compiled package")
        if options.model and options.against is None:
            raise UsageError("an exported program holds one model", hint="leave out --model")
        if options.against is not None and archive.inspect(options.against).kind not in COMPILED:
            archive.expect(options.against, ArtifactKind.PACKAGE)
    elif options.against is not None:
        raise UsageError(
            f"{path} is compiled already: its kernels are its own", hint="--against compares an exported program"
        )
    elif options.exported is not None:
        archive.expect(options.exported, ArtifactKind.EXPORTED)
    elif options.inductor_configs:
        raise UsageError(
            f"{path} is compiled already: --inductor-config changes nothing in it",
            hint="pass the exported program, or leave the option out",
        )


def model_of(found: Artifact, options: BuildOptions) -> str:
    """Which model of a package is meant. Raises as `artifact.model_of`."""
    return archive.model_of(found, options.model)


def patterns(options: BuildOptions) -> tuple[str, ...]:
    """The filters one by one: a comma separates patterns here as it does in AOTI_DEBUG_FILTER."""
    return tuple(pattern for patterns in options.filters for pattern in patterns.split(","))
