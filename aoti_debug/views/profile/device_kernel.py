"""The device kernels of launches: registers, shared memory, occupancy, and the configuration that was chosen."""

from __future__ import annotations

from collections.abc import Iterable

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.package.manifest import Kernel, Origin
from aoti_debug.repro.kernel_binary import kernel_binary
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.timeline import Grid, Launch
from aoti_debug.views.kernel_code.resources import kernel_resources
from aoti_debug.views.profile.occupancy import Occupancy, occupancy


@dataclass(frozen=True)
class DeviceKernel:
    """A Triton kernel as it was launched.

    Attributes:
        warps: of a block.
        shared: bytes of shared memory of a block.
        config: the block sizes that autotuning chose, as far as the package records them: ("XBLOCK", "128").
        registers: of a thread; None if the binary is not available.
        occupancy: None if that or the GPU's limits are not known.
    """

    name: str
    warps: int
    shared: int
    config: tuple[tuple[str, str], ...]
    registers: int | None = None
    occupancy: Occupancy | None = None


def device_kernels(run: RunDir, launches: Iterable[Launch]) -> dict[int, DeviceKernel]:
    """The device kernel of each site that launches one, by the site's id."""
    kernels = {kernel.name: kernel for kernel in run.manifest.kernels if kernel.language == "triton"}
    found: dict[int, DeviceKernel] = {}
    for launch in launches:
        for grid in launch.grids:
            if grid.kernel in kernels and launch.site.id not in found:
                found[launch.site.id] = _device_kernel(run, kernels[grid.kernel], grid)
    return found


def _device_kernel(run: RunDir, kernel: Kernel, grid: Grid) -> DeviceKernel:
    config = tuple((name, value) for name, value in kernel.config if kernel.origin(name) is Origin.RECORDED)
    binary, _ = kernel_binary(run, kernel)
    resources = None if binary is None else kernel_resources(binary, kernel.mangled or kernel.name)
    if resources is None:
        return DeviceKernel(kernel.name, grid.num_warps, grid.shared_bytes, config)
    shared = resources.static_shared + grid.shared_bytes
    held = occupancy(resources.architecture, grid.num_warps, resources.registers, shared)
    return DeviceKernel(kernel.name, grid.num_warps, shared, config, resources.registers, held)
