"""The machine code of a device kernel, from the package that was run."""

from __future__ import annotations

import hashlib

from aoti_debug.base.errors import ArtifactError
from aoti_debug.package.manifest import Kernel
from aoti_debug.package.pt2 import archive
from aoti_debug.runs.rundir.run_directory import RunDir


def kernel_binary(run: RunDir, kernel: Kernel | None) -> tuple[bytes | None, str]:
    """The cubin of a Triton kernel, or None and the reason why it is missing."""
    if kernel is None or not kernel.cubin:
        return None, "it is embedded in the package's library"
    if run.package is None:
        return None, f"the package that was run was not found: {run.found_package.problem}"
    try:
        code = archive.inspect(run.package).read(f"{archive.AOTINDUCTOR}{run.manifest.model}/{kernel.cubin}")
    except ArtifactError as error:
        return None, str(error)
    if kernel.cubin_sha256 and hashlib.sha256(code).hexdigest() != kernel.cubin_sha256:
        return None, f"{run.package} was rebuilt after the run"
    return code, ""
