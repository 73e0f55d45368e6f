"""The code of the kernels of a launch: generated source with the origin of its lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.base.machine.files import json_data
from aoti_debug.package.manifest import Kernel
from aoti_debug.package.reference.program import Reference
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.timeline import Launch
from aoti_debug.views.kernel_code.line_origins import LineOrigin, line_origins


@dataclass(frozen=True)
class KernelCode:
    """A generated kernel as a launch ran it.

    Attributes:
        origins: the origins of the lines of its source, by line; lines without a known one are absent.
        unknown: why no line has a node; "" if some have.
    """

    kernel: Kernel
    origins: Mapping[int, LineOrigin]
    unknown: str = ""


def launch_kernels(run: RunDir, launch: Launch) -> tuple[Kernel, ...]:
    """The generated kernels that a launch may have started: of an operator none, of a multi-kernel the one that ran."""
    names = (launch.grid.kernel,) if launch.grid else (launch.kernel, *launch.site.launches)
    return tuple(kernel for kernel in run.manifest.kernels if kernel.name in names)


def launch_code(run: RunDir, launch: Launch, reference: Reference | None, missing: str) -> tuple[KernelCode, ...]:
    """The code of the kernels of a launch; none of an operator.

    Args:
        reference: the graphs of the package; None if they are not at hand.
        missing: the reason for that.
    """
    codes = []
    for kernel in launch_kernels(run, launch):
        origins = line_origins(kernel, launch.site, run.manifest, reference) if kernel.source else {}
        known = any(origin.node for origin in origins.values())
        unknown = "" if known else (missing or "its statements match no operators of the graph")
        codes.append(KernelCode(kernel, origins, unknown if kernel.source else "the package holds no source"))
    return tuple(codes)


def document(code: KernelCode) -> dict[str, Any]:
    """The code as a JSON object (`code` of a launch in docs/show.schema.json)."""
    return {
        "kernel": code.kernel.name,
        "language": code.kernel.language,
        "sha256": code.kernel.sha256,
        "source": code.kernel.source,
        "unknown": code.unknown or None,
        "lines": [_line(origin) for _, origin in sorted(code.origins.items())],
    }


def _line(origin: LineOrigin) -> dict[str, Any]:
    return {
        "line": origin.line,
        "node": origin.node or None,
        "module": origin.module or None,
        "model_line": None if origin.model_line is None else json_data.to_data(origin.model_line),
        "reads": list(origin.reads),
        "writes": origin.writes or None,
    }
