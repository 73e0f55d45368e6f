"""The settings of a build as keyword arguments of `aoti_debug.build`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.instrument.builder.options import TIMEOUT, BuildOptions
from aoti_debug.package.recording import levels

if TYPE_CHECKING:
    from torch.export import ExportedProgram


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
        imports: Python modules or files to import before the program is loaded.
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
        level=levels.number(settings.get("level", 3)),
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
