"""The device kernels of a run, read from its package."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.base.machine import compiler
from aoti_debug.base.terminal_cells import UNLIMITED
from aoti_debug.package import manifest as manifests
from aoti_debug.package.manifest import ConfigOrigin, Inferred, Kind, Role
from aoti_debug.package.pt2 import archive
from aoti_debug.runs.rundir import run_directory
from aoti_debug.views.profile.device_kernel import DeviceKernel, Limit, Occupancy, occupancy
from aoti_debug.views.profile.model_profile import ModelProfile, document
from aoti_debug.views.profile.roofline import Peaks
from aoti_debug.views.profile.text import profile_lines
from tests import archives, factories
from tests.factories import JournalWriter, tensor
from tests.schema import DOCS, problems
from tests.views.profile.measured import profile_of

PTX = Path(__file__).with_name("scale.ptx")
PEAKS = Peaks("a GPU", 1e12, {"float32": 1e13})
_BUNDLED = compiler.triton_directory()
PTXAS = None if _BUNDLED is None else _BUNDLED / "bin" / "ptxas"
needs_ptxas = pytest.mark.skipif(
    PTXAS is None or not PTXAS.is_file(), reason="Triton, which contains ptxas, is not installed"
)


def launched(base: Path, cubin: bytes | None) -> ModelProfile:
    """A profile of four calls that launch a Triton kernel; without its binary the run has no package."""
    kernel = replace(
        factories.triton_kernel("scale"),
        cubin="scale.cubin",
        config=(("XBLOCK", "128"), ("R0_BLOCK", "64")),
        inferred=(Inferred("R0_BLOCK", ConfigOrigin.CHOSEN),),
    )
    site = factories.site(
        "scale", factories.arg("x"), factories.arg("buf0", Role.OUT), kind=Kind.TRITON, launches=("scale",)
    )
    package = factories.make_manifest(site, kernels=[kernel], device="cuda")
    journal = JournalWriter()
    for call in range(4):
        journal.call_begin(call)
        values = (tensor(64, device="cuda:0"), tensor(64, device="cuda:0", data_ptr=0x9000))
        journal.launch_begin(0, 0, *values, call=call)
        journal.grid(0, 0, (4, 1, 1), 0x1000, 0x9000, 64, call=call)
        journal.launch_end(0, call=call)
        journal.call_end(call, launches=1)
    path = factories.run_directory(base, package, journal, calls=4)
    if cubin is not None:
        member = f"{archive.AOTINDUCTOR}{package.model}/scale.cubin"
        text = package.json_text.encode()
        archives.write(path / "package.pt2", {manifests.MEMBER: text, member: cubin, **archives.FRAME})
    return profile_of(Path("model.pt2"), run_directory.open_run(path), PEAKS)


@needs_ptxas
def test_a_kernel_whose_binary_is_in_the_package(tmp_path: Path) -> None:
    assert PTXAS is not None
    subprocess.run([PTXAS, "-arch=sm_90", PTX, "-o", tmp_path / "scale.cubin"], check=True)
    profile = launched(tmp_path, (tmp_path / "scale.cubin").read_bytes())
    (site,) = profile.sites
    assert site.kernel is not None
    assert (site.kernel.registers, site.kernel.config) == (10, (("XBLOCK", "128"),))
    assert site.kernel.occupancy == occupancy(90, site.kernel.warps, 10, site.kernel.shared)
    assert site.kernel.shared >= 2048  # those of the PTX
    data = document(profile)
    assert problems(data, json.loads((DOCS / "profile.schema.json").read_text())) == []
    assert data["launches"][0]["kernel_resources"]["registers"] == 10
    table = "\n".join(profile_lines(profile, None, UNLIMITED))
    assert "XBLOCK=128" in table
    assert "R0_BLOCK" not in table  # it is not recorded


def test_a_kernel_without_its_binary(tmp_path: Path) -> None:
    (site,) = launched(tmp_path, None).sites
    assert isinstance(site.kernel, DeviceKernel)
    assert (site.kernel.registers, site.kernel.occupancy) == (None, None)


KIB = 1024


@pytest.mark.parametrize(
    ("architecture", "warps", "registers", "shared", "held"),
    [
        (80, 8, 32, 0, Occupancy(64, 64, Limit.WARPS)),
        (80, 8, 33, 0, Occupancy(48, 64, Limit.REGISTERS)),  # 1280 registers a warp: 51 warps, 48 in fours
        (80, 8, 64, 0, Occupancy(32, 64, Limit.REGISTERS)),
        (90, 8, 255, 0, Occupancy(8, 64, Limit.REGISTERS)),
        (90, 4, 32, 100 * KIB, Occupancy(8, 64, Limit.SHARED)),
        (90, 4, 32, 113 * KIB, Occupancy(8, 64, Limit.SHARED)),  # 1 KiB more of each block is the system's
        (90, 4, 32, 113 * KIB + 1, Occupancy(4, 64, Limit.SHARED)),
        (75, 4, 32, 32 * KIB, Occupancy(8, 32, Limit.SHARED)),  # none of it is the system's
        (86, 1, 16, 0, Occupancy(16, 48, Limit.BLOCKS)),
        (86, 32, 16, 0, Occupancy(32, 48, Limit.WARPS)),
        (90, 4, 0, 300 * KIB, Occupancy(0, 64, Limit.SHARED)),
    ],
)
def test_the_scarcest_resource(architecture: int, warps: int, registers: int, shared: int, held: Occupancy) -> None:
    assert occupancy(architecture, warps, registers, shared) == held


def test_limits_that_are_not_known() -> None:
    assert occupancy(61, 4, 32, 0) is None
    assert occupancy(90, 0, 32, 0) is None
