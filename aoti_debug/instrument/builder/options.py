"""The options of a build, as users give them in a command or in Python, and their check before torch is started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

from aoti_debug.base.errors import UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import exhaustion
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.instrument.builder import write_package
from aoti_debug.instrument.frontend.protocol.messages import LeftOut
from aoti_debug.package import recording_settings
from aoti_debug.package.inputs import input_files
from aoti_debug.package.pt2 import archive, extract, trust
from aoti_debug.package.pt2.archive import Artifact, ArtifactKind
from aoti_debug.package.pt2.program_weights import bytes_of_weights
from aoti_debug.package.recording_settings import SiteFilter
from aoti_debug.package.weights_file import LARGE, WeightsPlace

if TYPE_CHECKING:
    from torch.export import ExportedProgram

COMPILED = (ArtifactKind.PACKAGE, ArtifactKind.SOURCES)
_DISK_HINT = "free some space, or set XDG_CACHE_HOME to a folder on another disk"
TIMEOUT = 3600.0  # seconds; autotuning of a large model takes long


@dataclass(frozen=True)
class BuildOptions:
    """The input, the output and the settings of a build.

    Attributes:
        program: an exported program in memory, or the file of an exported program or a compiled package, which may
            have been inspected already.
        model: name of the model in a compiled package that holds several; "" for the only one.
        level: 0 off, 1 save, 2 print values, 3 kernel names, 4 (hash) hashes only; the default where the environment
            sets none.
        filters: fnmatch patterns on kernel names, "!" excludes; restrict what is printed and saved.
        modules, lines: patterns on module paths and model lines (SiteFilter), which restrict it further.
        output: the package; by default `<program>.instrumented.pt2` in the current directory.
        inputs: a file of inputs to embed instead of the program's own example inputs.
        random_inputs: seed of random inputs to embed; None for none.
        against: a compiled package to compare an exported program's kernels with.
        exported: the exported program that a compiled package came from, its file or itself; adds model lines.
        inductor_configs: settings of torch._inductor.config. In custom_ops_to_c_shims, an operator may be given by its
            name: "mylib::op" or "mylib::op.default".
        user_code: what to load before the program, which is kept in the manifest, libraries as absolute paths.
        keep_sources: a directory for the generated C++, original and instrumented.
        plain: file for an uninstrumented package, as torch would have built it from the same sources.
        timeout: seconds until the lowering counts as hung.
        left_out: operators that are called as they are; None to note nothing either.
        weights: where the weights of an exported program go; a package that refers to them can be run here only.
    """

    program: str | Path | Artifact | ExportedProgram
    level: int = 3
    filters: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    output: Path | None = None
    inputs: Path | None = None
    inductor_configs: Mapping[str, Any] = field(default_factory=dict)
    user_code: UserCode = UserCode()
    keep_sources: Path | None = None
    plain: Path | None = None
    timeout: float = TIMEOUT
    model: str = ""
    random_inputs: int | None = None
    against: Path | None = None
    exported: Path | ExportedProgram | None = None
    left_out: LeftOut | None = None
    weights: WeightsPlace = WeightsPlace.INSIDE

    @property
    def site_filter(self) -> SiteFilter:
        """The filters; those on kernel names split at commas, as in AOTI_DEBUG_FILTER."""
        kernels = tuple(pattern for patterns in self.filters for pattern in patterns.split(","))
        return SiteFilter(kernels, self.modules, self.lines)

    def for_this_machine(self) -> BuildOptions:
        """Returns the options of a package that is run on this machine only: large weights stay in the program's file.

        They do not where Inductor freezes weights: it makes others of them, some in layouts that no file can hold.

        Raises:
            ArtifactError: the file is not a valid `.pt2` archive.
        """
        program = archive.inspect(self.program) if isinstance(self.program, (str, Path)) else self.program
        if not isinstance(program, Artifact) or program.kind is not ArtifactKind.EXPORTED:
            return self
        is_large = bytes_of_weights(program.path) > LARGE and not self.inductor_configs.get("freezing")
        return replace(self, weights=WeightsPlace.BY_REFERENCE) if is_large else self


class BuildProgress(Protocol):
    """A callback for every stage: at its beginning (`seconds` is None), and at its end with its duration."""

    def __call__(self, stage: str, seconds: float | None) -> None: ...


class BuildSettings(TypedDict, total=False):
    """The keyword arguments of `build`; each may be left out.

    Attributes:
        level: 0 off, 1 save, 2 print values, 3 kernel names (the default), "hash" hashes only.
        filters: fnmatch patterns on kernel names, "!" excludes; restrict what is printed and saved.
        modules, lines: patterns on module paths and model lines, which restrict it further.
        output: the package; by default `<program>.instrumented.pt2` in the current directory.
        inputs: a file of inputs to embed instead of the program's own example inputs.
        inductor_configs: settings of torch._inductor.config.
        imports: Python modules to import before the program is loaded.
        libraries: shared libraries with custom operators, loaded before the program.
        keep_sources: a directory for the generated C++, original and instrumented.
        model: name of the model in a compiled package that holds several.
        random_inputs: seed of random inputs to embed.
        exported: the exported program that a compiled package came from; adds model lines.
        progress: is told of every stage of the build.
        timeout: seconds until the lowering counts as hung; 3600 by default.
        trusted: build from a file that was not made on this account.
    """

    level: int | str
    filters: Sequence[str]
    modules: Sequence[str]
    lines: Sequence[str]
    output: str | Path | None
    inputs: str | Path | None
    inductor_configs: Mapping[str, Any] | None
    imports: Sequence[str]
    libraries: Sequence[str | Path]
    keep_sources: str | Path | None
    model: str
    random_inputs: int | None
    exported: str | Path | None
    progress: BuildProgress | None
    timeout: float
    trusted: bool


def options_of(program: str | Path | ExportedProgram, settings: BuildSettings) -> BuildOptions:
    """Returns the options of a build of a program with settings.

    Raises:
        TypeError: there is no such setting.
        UsageError: the level is wrong.
    """
    for name in settings.keys() - BuildSettings.__annotations__.keys():
        raise TypeError(f"build() got an unexpected keyword argument {name!r}")
    return BuildOptions(
        program=program,
        level=recording_settings.level_number(settings.get("level", 3)),
        filters=tuple(settings.get("filters", ())),
        modules=tuple(settings.get("modules", ())),
        lines=tuple(settings.get("lines", ())),
        output=_path(settings.get("output")),
        inputs=_path(settings.get("inputs")),
        inductor_configs=settings.get("inductor_configs") or {},
        user_code=UserCode(
            tuple(settings.get("imports", ())),
            tuple(map(Path, settings.get("libraries", ()))),
            settings.get("trusted", False),
        ),
        keep_sources=_path(settings.get("keep_sources")),
        timeout=settings.get("timeout", TIMEOUT),
        model=settings.get("model", ""),
        random_inputs=settings.get("random_inputs"),
        exported=_path(settings.get("exported")),
    )


def _path(given: str | Path | None) -> Path | None:
    return None if given is None else Path(given)


@dataclass(frozen=True)
class CheckedOptions:
    """Consistent build options, and the archives that they name, each inspected once.

    Attributes:
        options: the options as they were given.
        program: the exported program or compiled package to build from.
        model: name of the model in the compiled package that is built from or compared with; "" without a package.
        against: the compiled package to compare the kernels with.
        exported: the exported program that the compiled package came from.
        output: the package to write.
    """

    options: BuildOptions
    program: Artifact | ExportedProgram
    model: str
    against: Artifact | None
    exported: Artifact | ExportedProgram | None
    output: Path

    @property
    def compiled(self) -> Artifact | None:
        """The compiled package to build from; None for an exported program."""
        return self.program if isinstance(self.program, Artifact) and self.program.kind in COMPILED else None

    def require_room(self, work: Path) -> None:
        """Checks that disks and memory have room for the weights, which are most of what is written.

        Weights that a package will hold are written to `work`, and to the package. torch reads a program as a whole,
        and lays the weights out in memory once more before they are written.

        Raises:
            TargetError: they have not.
        """
        if not isinstance(self.program, Artifact):
            return
        path, output = self.program.path, self.output.resolve().parent
        name = f"building {path.name}"
        if self.compiled is not None:
            size = path.stat().st_size
            unpacked = size - extract.bytes_appended(self.compiled, self.model)
            exhaustion.require_disk([(work, unpacked), (output, size)], name, hint=_DISK_HINT)
            return
        weights = bytes_of_weights(path)
        is_inside = self.options.weights is WeightsPlace.INSIDE
        if is_inside:
            hint = f"--weights by-reference copies no weights; {_DISK_HINT}"
            exhaustion.require_disk([(work, weights), (output, weights)], name, hint=hint)
        hint = "--weights by-reference needs half of it" if is_inside else "lower the model on a larger machine"
        exhaustion.require_memory(weights * (2 if is_inside else 1), name, hint=hint)


def check(options: BuildOptions) -> CheckedOptions:
    """Checks everything that can be checked without torch.

    Raises:
        UsageError: options contradict each other, or the output cannot be written.
        ArtifactError: a file is missing, damaged or of the wrong kind.
    """
    recording_settings.level_number(options.level)
    recording_settings.check_patterns(options.site_filter)
    program = archive.inspect(options.program) if isinstance(options.program, (str, Path)) else options.program
    if isinstance(program, Artifact) and program.kind is not ArtifactKind.INSTRUMENTED:
        trust.require(program, trusted=options.user_code.trusted)
    against = exported = None
    if isinstance(program, Artifact) and program.kind in COMPILED:
        exported = _inspect_exported(program, options)
    else:
        against = _inspect_against(program, options)
    _check_weights(program, options)
    output = _checked_output(program, options)
    if options.inputs is not None and options.random_inputs is not None:
        raise UsageError("--inputs and --random-inputs are two sets of inputs", hint="leave one of them out")
    if options.inputs is not None:
        input_files.check_is_file(options.inputs)
    archives = (program, against)
    packages = (item for item in archives if isinstance(item, Artifact) and item.kind in COMPILED)
    model = next((archive.resolve_model(package, options.model) for package in packages), "")
    return CheckedOptions(options, program, model, against, exported, output)


def _check_weights(program: Artifact | ExportedProgram, options: BuildOptions) -> None:
    if options.weights is WeightsPlace.INSIDE:
        return
    if not isinstance(program, Artifact) or program.kind is not ArtifactKind.EXPORTED:
        what = program.path if isinstance(program, Artifact) else "a program in memory"
        raise UsageError(
            f"{what} is no file of an exported program, which weights can be left in", hint="pass --weights inside"
        )
    if options.plain is not None:
        raise UsageError("a plain package has its weights inside", hint="pass --weights inside")


def _inspect_against(program: Artifact | ExportedProgram, options: BuildOptions) -> Artifact | None:
    """The compiled package to compare an exported program's kernels with; None if the options name none."""
    if isinstance(program, Artifact):
        archive.require_kind(program, ArtifactKind.EXPORTED)
    if options.exported is not None:
        name = program.path if isinstance(program, Artifact) else "the program"
        is_swapped = isinstance(program, Artifact) and archive.inspect(options.exported).kind in COMPILED
        hint = (
            f"swap the files: {options.exported} --exported {name}"
            if is_swapped
            else "--exported is for a compiled package"
        )
        raise UsageError(f"{name} is an exported program itself", hint=hint)
    if options.against is None:
        if options.model:
            raise UsageError("an exported program holds one model", hint="leave out --model")
        return None
    against = archive.inspect(options.against)
    if against.kind not in COMPILED:
        archive.require_kind(against, ArtifactKind.PACKAGE)
    return against


def _inspect_exported(package: Artifact, options: BuildOptions) -> Artifact | ExportedProgram | None:
    """The exported program that a compiled package came from; None if the options name none."""
    if options.against is not None:
        raise UsageError(
            f"{package.path} is compiled already: its kernels are its own",
            hint="--against compares an exported program",
        )
    if isinstance(options.exported, Path):
        exported = archive.inspect(options.exported)
        archive.require_kind(exported, ArtifactKind.EXPORTED)
        trust.require(exported, trusted=options.user_code.trusted)
        return exported
    if options.exported is not None:
        return options.exported
    if options.inductor_configs:
        raise UsageError(
            f"{package.path} is compiled already: --inductor-config changes nothing in it",
            hint="pass the exported program, or leave the option out",
        )
    return None


def _checked_output(program: Artifact | ExportedProgram, options: BuildOptions) -> Path:
    program_path = program.path if isinstance(program, Artifact) else None
    stem = "model" if program_path is None else program_path.name.removesuffix(".pt2")
    output = options.output or Path(f"{stem}.instrumented.pt2")
    if program_path is not None and output.exists() and output.samefile(program_path):
        raise UsageError(f"{output} is the model itself", hint="name another file with -o")
    write_package.check_writable(output)
    return output
