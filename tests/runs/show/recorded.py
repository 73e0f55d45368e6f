"""Runs that the tests of the views share."""

from __future__ import annotations

import struct
from pathlib import Path

from aoti_debug.base.abi import CallFlag, FaultDomain, Level, NoteCode, Phase, StatsFlag
from aoti_debug.package.argument_values import Absent, Number
from aoti_debug.package.manifest import Certainty, CType, Form, Kernel, Kind, ModelLine, Provenance, Role
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from aoti_debug.runs.rundir.run_json import Exit, ExitKind, RunStage
from tests import factories
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, statistics, tensor, triton_kernel

X = tensor(8, 32, data_ptr=0x1000)
W = tensor(64, 32, data_ptr=0x2000, strides=(1, 64), storage_offset=16, storage_bytes=16384)
Y = tensor(8, 64, data_ptr=0x3000)
SMALL = tensor(2, 2, data_ptr=0x4000)

INFERRED = Provenance(Certainty.INFERRED, source=(ModelLine("/home/u/model.py", 20, "forward", "t[i] = y"),))
CPU = make_manifest(
    site(
        "aoti_torch_cpu_addmm_out",
        arg("buf0", Role.OUT),
        arg("x"),
        arg("l_weight_view", base="l_weight"),
        arg("beta", Role.NONE, Form.SCALAR, ctype="double"),
        op="aten.addmm.out",
    ),
    site("cpp_fused_relu_sum_1", arg("buf0", Role.INOUT, Form.POINTER), arg("buf1", Role.OUT), kind=Kind.CPP, line=14),
    site("aoti_torch_index_put_out", arg("buf1", Role.INOUT), arg("buf0"), kind=Kind.SHIM_INPLACE, provenance=INFERRED),
    site("mylib::op.default", arg("buf1"), arg("buf2", Role.OUT, Form.LIST), kind=Kind.PROXY, line=None),
    kernels=[Kernel("cpp_fused_relu_sum_1", "cpp", "void k(float* p) {\n  *p = 0;\n}\n", "ab" * 32)],
)
CUDA = make_manifest(
    site("triton_poi_fused_0", arg("x"), arg("buf0", Role.OUT), kind=Kind.TRITON, launches=("triton_poi_fused_0",)),
    kernels=[triton_kernel("triton_poi_fused_0")],
    device="cuda",
)
LAYER = "encoder_layers_0_self_attn_in_proj_weight_view"
KERNELS = (
    "cpp_fused__scaled_dot_product_flash_attention_for_cpu__unsafe_view_add_clone_select_squeeze_transpose_view_1",
    "triton_per_fused__to_copy_add_native_layer_norm_native_layer_norm_backward_view_12",
    "aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu",
)
CLEAN = Exit(ExitKind.CLEAN, "", RunStage.UNLOAD, seconds=0.0123)
SEGV = Exit(ExitKind.FAULT, "killed by SIGSEGV", RunStage.CALL, "SIGSEGV")


def replayed(base: Path) -> RunDir:
    """A call of a CUDA graph whose second launch was not measured to its end in the last replay, 8."""
    manifest = make_manifest(CUDA.sites[0], CUDA.sites[0], kernels=CUDA.kernels, device="cuda")
    x, y = tensor(4, 4, device="cuda:0"), tensor(2, 2, device="cuda:0")
    writer = JournalWriter(level=2)
    writer.call_begin(flags=CallFlag.CAPTURING)
    for launch in (0, 1):
        writer.launch(launch, launch, x, y)
    writer.call_end(launches=2)
    values = struct.pack("<4f", 1, 2, 3, 4)
    for launch, replay in ((0, 8), (1, 7)):
        writer.tensor_stats(launch, 0, Phase.BEFORE, statistics(), layout=x.layout, replay=(8, 8))
        writer.tensor_stats(
            launch, 1, Phase.AFTER, statistics(n_nan=launch), layout=y.layout, values=values, replay=(replay, 8)
        )
    writer.run_end()
    return open_run(run_directory(base, manifest, writer, exit=CLEAN))


def level_2(base: Path) -> RunDir:
    """Three launches that return, with statistics."""
    writer = JournalWriter(level=2)
    writer.call_begin()
    writer.launch_begin(0, 0, Y, X, W, Number(1.0, CType.F64))
    writer.tensor_stats(0, 1, Phase.BEFORE, statistics(n_zero=4), layout=X.layout)
    writer.tensor_stats(0, 0, Phase.BEFORE, None, flags=StatsFlag.UNINITIALISED)
    writer.launch_end(0)
    writer.tensor_stats(0, 0, Phase.AFTER, statistics(max=41.5, n_nan=3, n_pos_inf=1), layout=Y.layout)
    writer.launch_begin(1, 1, Y, SMALL)
    writer.tensor_stats(1, 0, Phase.BEFORE, statistics(), layout=Y.layout)
    writer.launch_end(1)
    writer.tensor_stats(1, 0, Phase.AFTER, statistics(n_neg_inf=2), layout=Y.layout)
    values = struct.pack("<4f", 1, -2.5, 0.1, float("nan"))
    writer.tensor_stats(1, 1, Phase.AFTER, statistics(numel=4, n_nan=1), layout=SMALL.layout, values=values)
    writer.launch_begin(2, 2, SMALL, Y, loops=(3,))
    writer.tensor_stats(2, 1, Phase.BEFORE, None, flags=StatsFlag.SKIPPED, values=b"not read: too large")
    writer.launch_end(2)
    writer.tensor_stats(2, 0, Phase.AFTER, statistics(min=-7.0), layout=SMALL.layout)
    writer.call_end(launches=3)
    return open_run(run_directory(base, CPU, writer, exit=CLEAN))


def hashes(base: Path) -> RunDir:
    """Two launches that return, at level hash; the second one writes two tensors."""
    writer = JournalWriter(level=Level.HASH)
    only = StatsFlag.HASH_ONLY
    writer.call_begin()
    writer.launch_begin(0, 0, Y, X, W, Number(1.0, CType.F64))
    writer.tensor_stats(0, 1, Phase.BEFORE, None, flags=only, layout=X.layout, content=0xFF)
    writer.tensor_stats(0, 0, Phase.BEFORE, None, flags=StatsFlag.UNINITIALISED)
    writer.launch_end(0)
    writer.tensor_stats(0, 0, Phase.AFTER, None, flags=only, layout=Y.layout, content=0x0123456789ABCDEF)
    writer.launch_begin(1, 1, Y, SMALL)
    writer.tensor_stats(1, 0, Phase.BEFORE, None, flags=only, layout=Y.layout, content=0x0123456789ABCDEF)
    writer.launch_end(1)
    writer.tensor_stats(1, 0, Phase.AFTER, None, flags=only, layout=Y.layout)
    writer.tensor_stats(1, 1, Phase.AFTER, None, flags=only, layout=SMALL.layout)
    writer.call_end(launches=2)
    return open_run(run_directory(base, CPU, writer, exit=CLEAN))


def crashed(base: Path) -> RunDir:
    """The third launch never returned."""
    writer = JournalWriter()
    writer.call_begin()
    writer.launch(0, 0, Y, X, W, Number(1.0, CType.F64))
    writer.launch(1, 1, Y, SMALL)
    writer.launch_begin(2, 3, SMALL, Absent.UNDEFINED)
    writer.note(NoteCode.RECORDING_STOPPED, "tensors are no longer saved: the disk is full")
    return open_run(run_directory(base, CPU, writer, exit=SEGV))


def device_fault(base: Path, every: int = 1) -> RunDir:
    """Launch 0.1 of six failed on the device; 0.5 noticed."""
    writer = JournalWriter(crumb_every=every)
    writer.call_begin()
    on_device = [tensor(8, 32, device="cuda:0", data_ptr=n) for n in (0x7F00, 0x7F80)]
    for launch in range(5):
        writer.launch_begin(launch, 0, *on_device)
        writer.grid(launch, 0, (4, 1, 1), 0x7F00, 0x7F80, 256)
        writer.launch_end(launch)
    writer.launch_begin(5, 0, *on_device)
    writer.launch_end(5, status=-1)
    writer.fault(5, FaultDomain.CUDA, 700, "CUDA_ERROR_ILLEGAL_ADDRESS")
    raised = Exit(ExitKind.FAULT, "RuntimeError: x", RunStage.CALL, exception="RuntimeError")
    crumbs = factories.crumbs(1 if every == 1 else 0, every=every)
    return open_run(run_directory(base, CUDA, writer, exit=raised, crumbs=crumbs))


def long_names(base: Path, launches: int = 30) -> RunDir:
    """Many launches, all of whose names are long, with statistics of what they write."""
    names = [f"{LAYER}_{n}" for n in range(6)]
    frame = ModelLine("/home/u/modeling_with_a_name_of_many_columns.py", 1234, "forward", "y")
    provenance = Provenance(Certainty.EXACT, source=(frame,))
    package = make_manifest(
        *(
            site(kernel, *(arg(name) for name in names), arg(f"{LAYER}_out", Role.OUT), provenance=provenance)
            for kernel in KERNELS
        )
    )
    writer = JournalWriter(level=2)
    writer.call_begin()
    value = tensor(2)
    for launch in range(launches):
        writer.launch(launch, launch % len(KERNELS), *[value] * 7)
        writer.tensor_stats(launch, 6, Phase.AFTER, statistics(), layout=value.layout)
    return open_run(run_directory(base, package, writer))
