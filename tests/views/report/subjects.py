"""Runs and triages that the tests of the report share."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from aoti_debug.base.abi import FaultDomain, NoteCode, Phase
from aoti_debug.base.machine.steps import Step
from aoti_debug.compare.comparison import Comparison, Row
from aoti_debug.compare.measure.evaluated import spread_of
from aoti_debug.compare.measure.verdicts import LaunchVerdict
from aoti_debug.compare.protocol.measurement import Element, Measurement
from aoti_debug.compare.suspects import Suspect
from aoti_debug.package.argument_values import Number
from aoti_debug.package.manifest import Certainty, CType, Form, Kernel, Kind, Manifest, ModelLine, Provenance, Role
from aoti_debug.runs.diagnosis.findings import FAULT, Finding, Place
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from aoti_debug.runs.rundir.run_json import Exit, ExitKind, RunStage
from aoti_debug.triage.results import triage_directory
from aoti_debug.triage.results.triage_directory import Record, TriageDir
from tests.factories import (
    JournalWriter,
    arg,
    crumbs,
    make_manifest,
    run_directory,
    site,
    statistics,
    tensor,
    triton_kernel,
)

SOURCE = "void made_by_inductor(float* out) {\n  out[0] = secret_weight_17 * 2;\n}\n"
MODEL_LINE = "rows = secret_table[index * 2]"
STACK = 'File "/home/u/model.py", line 28, in forward\n    rows = secret_table[index * 2]'
PROVENANCE = Provenance(
    Certainty.EXACT, "cpp_fused_0:1", (ModelLine("/home/u/model.py", 28, "forward", MODEL_LINE),), (STACK,), ("add",)
)
INDEX = tensor(4, dtype="int64", data_ptr=0x1000)
TABLE = tensor(4, 8, data_ptr=0x2000)
ROWS = tensor(4, 8, data_ptr=0x3000)
HALF = tensor(4, 8, dtype="float16", data_ptr=0x4000)
SECRET = 271828.25  # a value of a tensor
SECRETS = ("271828", "314159")  # how values show


def manifest() -> Manifest:
    return make_manifest(
        site("cpp_fused_mul_0", arg("arg0_1"), arg("buf0", Role.OUT), kind=Kind.CPP, provenance=PROVENANCE),
        site(
            "aoti_torch_cpu_index_Tensor",
            arg("l_table", base="l_table"),
            arg("buf0"),
            arg("buf1", Role.OUT),
            arg("u0", Role.NONE, Form.SCALAR, ctype="int64_t", text="u0"),
            op="aten.index.Tensor",
            provenance=PROVENANCE,
        ),
        site("cpp_fused_exp_1", arg("buf1"), arg("buf2", Role.OUT), kind=Kind.CPP, provenance=PROVENANCE),
        kernels=[Kernel("cpp_fused_mul_0", "cpp", SOURCE, "ab" * 32)],
    )


def journal(level: int, *, fault: bool) -> JournalWriter:
    writer = JournalWriter(level=level)
    writer.call_begin()
    writer.launch(0, 0, INDEX, INDEX)
    writer.launch_begin(1, 1, TABLE, INDEX, ROWS, Number(314159, CType.I64))
    if level == 2:
        writer.tensor_stats(1, 0, Phase.BEFORE, statistics(max=SECRET), layout=TABLE.layout)
    if fault:
        writer.fault(1, FaultDomain.EXCEPTION, text="index 314159 is out of bounds with size 4")
        writer.note(NoteCode.RECORDING_STOPPED, f"stopped at 314159 in {MODEL_LINE}")
        return writer
    writer.launch_end(1)
    if level == 2:
        writer.tensor_stats(1, 2, Phase.AFTER, statistics(n_nan=3, max=SECRET), layout=ROWS.layout)
    writer.launch_begin(2, 2, ROWS, HALF)
    writer.launch_end(2)
    if level == 2:
        writer.tensor_stats(2, 1, Phase.AFTER, statistics(max=60000.0), layout=HALF.layout)
    writer.call_end(launches=3)
    writer.run_end()
    return writer


def run(base: Path, level: int = 3, *, fault: bool = True, name: str = "20261120-231501-4711") -> RunDir:
    end = Exit(ExitKind.FAULT, f"IndexError: 314159\n{STACK}", RunStage.CALL, exception="IndexError")
    exit_ = end if fault else Exit(ExitKind.CLEAN, seconds=0.02)
    path = run_directory(base, manifest(), journal(level, fault=fault), name=name, exit=exit_)
    (path / "stderr.log").write_text(f"buf0 max 271828.25\n{MODEL_LINE}\n")
    return open_run(path)


def saved_run(base: Path) -> RunDir:
    """Level 1: the second launch saved the table before it and its rows after it."""
    writer = JournalWriter(level=1)
    writer.call_begin()
    writer.launch(0, 0, INDEX, INDEX)
    writer.launch_begin(1, 1, TABLE, INDEX, ROWS, Number(5, CType.I64))
    writer.tensor_file(1, 0, Phase.BEFORE, "tensors/0/table.safetensors", size=128, content=1)
    writer.launch_end(1)
    writer.tensor_file(1, 2, Phase.AFTER, "tensors/0/rows.safetensors", size=128, content=2)
    writer.call_end(launches=2)
    writer.run_end()
    path = run_directory(base, manifest(), writer)
    (path / "tensors/0").mkdir(parents=True)
    values = torch.linspace(-1, 1, 32).reshape(4, 8)
    for name, content in {"table": values, "rows": values.where(values < 0.9, torch.nan)}.items():
        layout = {"shape": "[4, 8]", "strides": "[8, 1]", "storage_offset": "0", "storage_bytes": "128"}
        save_file({name: content}, path / f"tensors/0/{name}.safetensors", {"dtype": "torch.float32", **layout})
    return open_run(path)


def comparison_of(run: RunDir) -> Comparison:
    """A comparison of a run: its first launch is right, the second wrong in its last row, the others not comparable."""
    first, second, *others = run.launches
    right = Measurement(
        argument="buf0",
        value="mul",
        operator="aten.mul.Tensor",
        dtype="float32",
        shape=(4,),
        count=4,
        ulp_max=0.5,
        rms=1e-9,
        relative=3e-8,
        relative_ulp=0.25,
    )
    excess = torch.zeros(4, 8)
    excess[3] = torch.linspace(2, 900, 8)
    excess[3, 7] = torch.inf
    wrong = Measurement(
        argument="buf1",
        value="index",
        operator="aten.index.Tensor",
        dtype="float32",
        shape=(4, 8),
        count=32,
        wrong=8,
        excess=1e300,
        worst=Element(31, str(SECRET), "1.5", "1.5"),
        ulp_median=2.0,
        ulp_max=9e6,
        rms=0.5,
        relative=0.25,
        relative_ulp=2e6,
        spread=spread_of((4, 8), excess.reshape(-1), excess.reshape(-1) * 4, excess.reshape(-1).isinf()),
    )
    suspects = (
        Suspect(node="index", operator="aten.index.Tensor", line=FRAME, how="of the next row"),
        Suspect(node="mul", operator="aten.mul.Tensor", line=None),
    )
    rows = (
        Row(
            launch=first,
            verdict=LaunchVerdict.OK,
            reason="",
            outputs=(right,),
            inherited={"buf0": 1e-8},
            together_with=(first.id,),
            bytes=16,
            compared_bytes=16,
        ),
        Row(
            launch=second,
            verdict=LaunchVerdict.WRONG,
            reason="",
            outputs=(wrong,),
            inherited={"buf1": 0.25},
            together_with=(second.id,),
            suspects=suspects,
            notes=("buf9 is not compared: it is a view",),
            bytes=128,
            compared_bytes=128,
        ),
        *(
            Row(launch=launch, verdict=LaunchVerdict.NOT_COMPARABLE, reason=f"random numbers: {MODEL_LINE}", bytes=8)
            for launch in others
        ),
    )
    return Comparison(run=run, rows=rows)


FRAME = PROVENANCE.source[0]
WHERE = Place(
    "0.1", "aoti_torch_cpu_index_Tensor", "aten.index.Tensor", argument="l_table", element=314159, frame=FRAME
)
MADE = Place("0.0", "cpp_fused_mul_0", argument="buf0", element=2, frame=FRAME)
ORIGIN = Place(input="index", argument="arg0_1", element=2)
FINDING = Finding(
    FAULT,
    "IndexError: index 314159 is out of bounds",
    WHERE,
    (
        "out-of-bounds load from l_table: element 314159 of 32",
        f"in the kernel's line: {MODEL_LINE}",
        "buf0[2] is 314159",
    ),
    ORIGIN,
    (ORIGIN, MADE, WHERE),
    ("native: IndexError",),
    ("interpret: no such kernel",),
    next=("python repro/repro.py",),
    warnings=("fp16 near overflow: 271828.25 in buf2",),
)


def triage(base: Path) -> TriageDir:
    """A triage with a repro and two runs: the fault, and the statistics of an earlier attempt that ended well."""
    path = triage_directory.create(base)
    (path / "repro/tensors").mkdir(parents=True)
    (path / "repro/repro.py").write_text(f"{SOURCE}\nlaunch(u0=314159)\n")
    (path / "repro/tensors/before_buf0.safetensors").write_bytes(b"271828.25")
    (path / "package.pt2").write_bytes(b"weights 271828")
    fault = run(path / "runs")
    run(path / "runs", 2, fault=False, name="20261120-231502-4712")
    record = Record(
        replace(FINDING, repro=str(path / "repro")),
        (Step("run, level 3", 1.5, "IndexError: 314159 in 0.1"),),
        {"torch": "2.13.0"},
        ("aoti-debug", "triage", "m.pt2"),
        str(path / "package.pt2"),
        str(fault.path),
    )
    triage_directory.write(path, record)
    return triage_directory.open_triage(path)


def data_of(page: str) -> dict[str, Any]:
    """The JSON that a page embeds."""
    text = page.partition('<script type="application/json" id="data">')[2].partition("</script>")[0]
    found: dict[str, Any] = json.loads(text)
    return found


KERNEL = triton_kernel("triton_poi_fused_0")


def device_fault(base: Path) -> RunDir:
    """Two launches of a Triton kernel; the second one failed."""
    package = make_manifest(
        site("triton_poi_fused_0", arg("x"), arg("buf0", Role.OUT), kind=Kind.TRITON, launches=("triton_poi_fused_0",)),
        kernels=[KERNEL],
        device="cuda",
    )
    writer = JournalWriter()
    writer.call_begin()
    on_device = [tensor(8, 32, device="cuda:0", data_ptr=n) for n in (0x7F00, 0x7F80)]
    for launch in range(2):
        writer.launch_begin(launch, 0, *on_device)
        writer.grid(launch, 0, (4, 1, 1), 0x7F00, 0x7F80, 256)
        writer.launch_end(launch)
    writer.fault(1, FaultDomain.CUDA, 700, "CUDA_ERROR_ILLEGAL_ADDRESS")
    end = Exit(ExitKind.FAULT, "RuntimeError: x", RunStage.CALL, exception="RuntimeError")
    return open_run(run_directory(base, package, writer, exit=end, crumbs=crumbs(1)))
