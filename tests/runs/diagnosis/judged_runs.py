"""Runs of a CPU and a CUDA package, made to be judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aoti_debug.base.abi import FaultDomain
from aoti_debug.package.manifest import Kind, Manifest, Role
from aoti_debug.runs.diagnosis.diagnose import diagnose
from aoti_debug.runs.diagnosis.verdict import Proof, Verdict
from aoti_debug.runs.rundir.run_directory import open_run
from aoti_debug.runs.rundir.run_json import Exit, ExitKind, RunStage
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, tensor

X = tensor(8, 32)
SITES = (
    site("cpp_fused_relu_0", arg("x"), arg("buf0", Role.OUT), kind=Kind.CPP),
    site("mylib::op.default", arg("buf0"), arg("buf1", Role.OUT), kind=Kind.PROXY),
    site("triton_poi_fused_0", arg("x"), arg("buf0", Role.OUT), kind=Kind.TRITON),
    site("aoti_torch_item_int64", arg("buf0"), kind=Kind.ITEM),
)
CPU = make_manifest(*SITES)
CUDA = make_manifest(*SITES, device="cuda")
CPP, PROXY, TRITON, ITEM = range(4)
NO_SLOT = 0xFFFF

SEGV = Exit(ExitKind.FAULT, "killed by SIGSEGV", RunStage.CALL, "SIGSEGV")
ABRT = Exit(ExitKind.FAULT, "killed by SIGABRT", RunStage.CALL, "SIGABRT")
KILLED = Exit(ExitKind.ABORTED, "killed by SIGKILL", RunStage.CALL, "SIGKILL")
RAISED = Exit(ExitKind.FAULT, "RuntimeError: run_func_ failed", RunStage.CALL, exception="RuntimeError")
TIMEOUT = Exit(ExitKind.TIMEOUT, "it was killed after 5 s", RunStage.CALL)
DEVICE = Exit(
    ExitKind.FAULT, "AcceleratorError: an illegal memory access", RunStage.SYNCHRONISE, exception="AcceleratorError"
)
CLEAN = Exit(ExitKind.CLEAN, "", RunStage.UNLOAD)
ILLEGAL = "CUDA error 700: an illegal memory access was encountered"


def judge(
    base: Path, writer: JournalWriter | None, exit_: Exit, package: Manifest = CPU, **fields: Any
) -> Verdict | None:
    return diagnose(open_run(run_directory(base, package, writer, exit=exit_, **fields)))


def summary(verdict: Verdict | None) -> tuple[str, Proof, list[str]]:
    assert verdict is not None
    return verdict.what, verdict.proof, [launch.id for launch in verdict.suspects]


def started(*sites: int, ended: int | None = None, crumb_every: int = 0, call: int = 0) -> JournalWriter:
    """A call whose launches return, all of them or the first `ended`."""
    writer = JournalWriter(crumb_every=crumb_every)
    writer.call_begin(call)
    for launch, number in enumerate(sites):
        if ended is None or launch < ended:
            writer.launch(launch, number, X, call=call)
        else:
            writer.launch_begin(launch, number, X, call=call)
    return writer


def rejudge(base: Path) -> Verdict | None:
    return diagnose(open_run(base=base))


def cuda_fault(writer: JournalWriter, launch: int | None, code: int = 700) -> None:
    if launch is not None:
        writer.launch_end(launch, status=-1)
        writer.fault(launch, FaultDomain.EXCEPTION, text="CUDA driver error")
    writer.fault(launch, FaultDomain.CUDA, code, "CUDA_ERROR_ILLEGAL_ADDRESS")
