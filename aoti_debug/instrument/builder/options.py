"""The options of a build, as the user gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.instrument.frontend.protocol.inductor_parts import LeftOut
from aoti_debug.package.pt2.archive import Artifact
from aoti_debug.package.recording.site_filter import SiteFilter

if TYPE_CHECKING:
    from torch.export import ExportedProgram

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
        exported: the exported program that a compiled package came from; adds model lines.
        inductor_configs: settings of torch._inductor.config. In custom_ops_to_c_shims, an operator may be given by its
            name: "mylib::op" or "mylib::op.default".
        imports: modules to import before the program is loaded; kept in the manifest.
        libraries: libraries of operators to load before it; kept in the manifest as absolute paths.
        keep_sources: a directory for the generated C++, original and instrumented.
        plain: file for an uninstrumented package, as torch would have built it from the same sources.
        trusted: build from a program or package even if it does not count as this user's own.
        timeout: seconds until the lowering counts as hung.
        left_out: operators that are called as they are; None to note nothing either.
    """

    program: str | Path | Artifact | ExportedProgram
    level: int = 3
    filters: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
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
    trusted: bool = False
    left_out: LeftOut | None = None

    @property
    def site_filter(self) -> SiteFilter:
        """The filters; those on kernel names split at commas, as in AOTI_DEBUG_FILTER."""
        kernels = tuple(pattern for patterns in self.filters for pattern in patterns.split(","))
        return SiteFilter(kernels, self.modules, self.lines)

    @property
    def library_paths(self) -> tuple[str, ...]:
        """The libraries of operators as absolute paths."""
        return tuple(str(Path(path).resolve()) for path in self.libraries)
