"""Options of a build, checked as far as they can be before torch is started."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aoti_debug.builder import package
from aoti_debug.builder.options import BuildOptions
from aoti_debug.errors import ArtifactError, UsageError
from aoti_debug.pt2 import archive
from aoti_debug.pt2.archive import Artifact, ArtifactKind

if TYPE_CHECKING:
    from torch.export import ExportedProgram

LEVELS = range(4)
COMPILED = (ArtifactKind.PACKAGE, ArtifactKind.SOURCES)


@dataclass(frozen=True)
class CheckedOptions:
    """Options that go together, and the archives that they name, each inspected once.

    Attributes:
        asked: the options as they were given.
        program: what is built from.
        model: which model of the compiled package that is built from or compared with; "" where there is none.
        against: the compiled package whose kernels are compared.
        exported: the exported program that a compiled package came from.
        output: the package to write.
    """

    asked: BuildOptions
    program: Artifact | ExportedProgram
    model: str
    against: Artifact | None
    exported: Artifact | None
    output: Path

    @property
    def compiled(self) -> Artifact | None:
        """The compiled package that is built from; None for an exported program."""
        return self.program if isinstance(self.program, Artifact) and self.program.kind in COMPILED else None


def check(options: BuildOptions) -> CheckedOptions:
    """Checks all that can be checked before torch is started.

    Raises:
        UsageError: options do not go together, or the output cannot be written.
        ArtifactError: a file is not what it should be.
    """
    if options.level not in LEVELS:
        raise UsageError(f"level {options.level} does not exist", hint="levels: 0 off, 1 save, 2 values, 3 names")
    if not all(pattern.removeprefix("!") for pattern in options.patterns):
        raise UsageError("an empty filter", hint="a filter is a pattern on kernel names: 'triton_*', '!cpp_fused_*'")
    program = archive.inspect(options.program) if isinstance(options.program, (str, Path)) else options.program
    against = exported = None
    if isinstance(program, Artifact) and program.kind in COMPILED:
        exported = _exported(program, options)
    else:
        against = _against(program, options)
    output = _checked_output(program, options)
    if options.inputs is not None and options.random_inputs is not None:
        raise UsageError("--inputs and --random-inputs are two sets of inputs", hint="leave one of them out")
    if options.inputs is not None and not options.inputs.is_file():
        raise ArtifactError(f"{options.inputs} does not exist", hint="--inputs takes a .pt or .safetensors file")
    packages = (found for found in (program, against) if isinstance(found, Artifact) and found.kind in COMPILED)
    model = next((archive.resolve_model(found, options.model) for found in packages), "")
    return CheckedOptions(options, program, model, against, exported, output)


def _against(program: Artifact | ExportedProgram, options: BuildOptions) -> Artifact | None:
    """The package that an exported program's kernels are compared with; None where none was asked for."""
    if isinstance(program, Artifact):
        archive.require_kind(program, ArtifactKind.EXPORTED)
    if options.exported is not None:
        name = program.path if isinstance(program, Artifact) else "the program"
        raise UsageError(f"{name} is an exported program itself", hint="--exported is for a compiled package")
    if options.against is None:
        if options.model:
            raise UsageError("an exported program holds one model", hint="leave out --model")
        return None
    against = archive.inspect(options.against)
    if against.kind not in COMPILED:
        archive.require_kind(against, ArtifactKind.PACKAGE)
    return against


def _exported(package: Artifact, options: BuildOptions) -> Artifact | None:
    """The exported program that a compiled package came from; None where none was given."""
    if options.against is not None:
        raise UsageError(
            f"{package.path} is compiled already: its kernels are its own",
            hint="--against compares an exported program",
        )
    if options.exported is not None:
        exported = archive.inspect(options.exported)
        archive.require_kind(exported, ArtifactKind.EXPORTED)
        return exported
    if options.inductor_configs:
        raise UsageError(
            f"{package.path} is compiled already: --inductor-config changes nothing in it",
            hint="pass the exported program, or leave the option out",
        )
    return None


def _checked_output(program: Artifact | ExportedProgram, options: BuildOptions) -> Path:
    given = program.path if isinstance(program, Artifact) else None
    stem = "model" if given is None else given.name.removesuffix(".pt2")
    output = options.output or Path(f"{stem}.instrumented.pt2")
    if given is not None and output.exists() and output.samefile(given):
        raise UsageError(f"{output} is the model itself", hint="name another file with -o")
    package.check_writable(output)
    return output
