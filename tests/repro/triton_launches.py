"""A recorded launch of a Triton kernel, as a test wants it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from aoti_debug.package.argument_values import Number
from aoti_debug.package.manifest import CType, Kernel, KernelParam, Kind, Manifest, Role
from aoti_debug.repro.recorded_launch import RecordedLaunch
from aoti_debug.runs.rundir.launch import Grid, GridArgument
from tests.repro.inductor_sources import IMPORTS, helpers
from tests.repro.repro_launches import LaunchBuilder

NAME = "triton_per_fused_amax_add_0"
HELPERS = helpers("promote_to_tensor", "is_floating", "maximum", "max2")
SOURCE = (
    IMPORTS
    + """@triton_heuristics.persistent_reduction(
    size_hints={'x': 4, 'r0_': 16},
    reduction_hint=ReductionHint.INNER,
    filename=__file__,
    triton_meta={'signature': {'in_ptr0': '*fp32', 'out_ptr0': '*fp32', 'alpha': 'fp64', 'xnumel': 'i32', \
'XBLOCK': 'constexpr'}, 'device': DeviceProperties(type='cuda', index=0, cc=90), 'constants': {}, \
'enable_fp_fusion': True, 'launch_pdl': False, 'disable_ftz': False, \
'configs': [{(0,): [['tt.divisibility', 16]], (1,): [['tt.divisibility', 16]]}]},
    inductor_meta={'grid_type': 'Grid1D', 'kernel_name': 'triton_per_fused_amax_add_0', \
'assert_indirect_indexing': True}
)
@triton.jit
def triton_per_fused_amax_add_0(in_ptr0, out_ptr0, alpha, xnumel, XBLOCK : tl.constexpr):
    r0_numel = 16
    R0_BLOCK: tl.constexpr = 16
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_1 = tl.arange(0, R0_BLOCK)[None, :]
    tmp0 = tl.load(in_ptr0 + (r0_1 + 16*xindex), xmask, other=0.0)
    tmp1 = tl.where(xmask, tmp0, float("-inf"))
    tmp2 = triton_helpers.max2(tmp1, 1)[:, None].to(tl.float32)
    tl.store(out_ptr0 + (xindex), (tmp2 + alpha).to(tl.float32), xmask)
"""
)
PARAMS = (
    KernelParam("in_ptr0", "CUdeviceptr", CType.ADDRESS),
    KernelParam("out_ptr0", "CUdeviceptr", CType.ADDRESS),
    KernelParam("alpha", "double", CType.F64),
    KernelParam("xnumel", "int32_t", CType.I32),
    KernelParam("global_scratch", "CUdeviceptr", CType.ADDRESS),
    KernelParam("profile_scratch", "CUdeviceptr", CType.ADDRESS),
)
KERNEL = Kernel(
    NAME,
    "triton",
    SOURCE,
    "",
    id=0,
    mangled=NAME,
    cubin=f"{NAME}.cubin",
    num_warps=2,
    params=PARAMS,
    config=(("XBLOCK", "2"), ("num_warps", "2"), ("num_stages", "1")),
)
GRID = Grid(
    NAME,
    (2, 1, 1),
    2,
    0,
    tuple(GridArgument(p.name, p.ctype, Number({"alpha": 0.1, "xnumel": 3}.get(p.name, 0), p.type)) for p in PARAMS),
)


def row_maxima(folder: Path, fault: str = "") -> RecordedLaunch:
    """The maxima of the rows of a (3, 16) view, plus 0.1; the grid has two programs of two rows."""
    x = torch.arange(64.0).reshape(4, 16)[1:]
    out, after = torch.full((3,), 7.0), x.amax(1) + 0.1
    launch = LaunchBuilder(folder, NAME, Kind.TRITON)
    launch.tensor("arg0_1", x, param="in_ptr0").tensor("buf0", out, Role.OUT, after=after, param="out_ptr0")
    launch.number("alpha", 0.1, CType.F32, ctype="float").number("xnumel", 3)
    built = launch.build(fault)
    site = replace(built.site, callee=f"call_{NAME}", launches=(NAME,))
    return replace(built, site=site, grid=GRID, binary=b"\x7fELF machine code")


def with_kernel(manifest: Manifest, kernel: Kernel = KERNEL, helpers: str = HELPERS) -> Manifest:
    return replace(manifest, kernels=(kernel,), triton_helpers=helpers)
