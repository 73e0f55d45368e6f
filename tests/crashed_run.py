"""A run that died in its second launch, with what a flight recorder held of its inputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from aoti_debug.package.argument_values import Tensor
from aoti_debug.package.manifest import OperatorSchema, Parameter, Role
from aoti_debug.runs.rundir.formats import shared_files
from aoti_debug.runs.rundir.run_json import Exit, ExitKind, RunStage
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, tensor
from tests.flight_file import FlightFile, Given

NOBODY = 4194304  # no process has this number
SEGV = Exit(ExitKind.FAULT, "killed by SIGSEGV", RunStage.CALL, "SIGSEGV")
MM = OperatorSchema(
    "aten.mm.out",
    (
        Parameter("self", "Tensor"),
        Parameter("mat2", "Tensor"),
        Parameter("out", "Tensor", keyword_only=True, out=True),
    ),
    returns=0,
)
MANIFEST = replace(
    make_manifest(
        site("first", arg("x"), arg("y", Role.OUT)),
        site(
            "second",
            arg("y", param="self"),
            arg("w", param="mat2"),
            arg("z", Role.OUT, param="out"),
            op="aten.mm.out",
        ),
    ),
    operators=(MM,),
)
X, Y, W, Z = (tensor(2, 2, data_ptr=address) for address in (0x1000, 0x2000, 0x3000, 0x4000))
W_COLUMNS = Tensor(0x3000, replace(W.layout, strides=(1, 2)))


def bits(*values: float) -> bytes:
    return bytes(torch.tensor(values, dtype=torch.float32).numpy().tobytes())


def crashed(base: Path, file: FlightFile | None, exit_: Exit = SEGV, **fields: object) -> Path:
    """A run that died in its second launch, with the recorder's memory where /dev/shm would be."""
    writer = JournalWriter()
    writer.call_begin()
    writer.launch(0, 0, X, Y)
    writer.launch_begin(1, 1, Y, W_COLUMNS, Z)
    known: dict[str, Any] = {"name": f"20261120-231501-{NOBODY}", "exit": exit_} | fields
    path = run_directory(base / "runs", MANIFEST, writer, **known)
    if file is not None:
        link(path, base, file.bytes())
    return path


def link(run: Path, base: Path, data: bytes) -> Path:
    shared = base / f"aoti_debug-{NOBODY}-1-{shared_files.FLIGHT_RECORDER}"
    shared.write_bytes(data.ljust(-(-len(data) // 4096) * 4096, b"\0") + str(run).encode().ljust(4096, b"\0"))
    (run / shared_files.FLIGHT_RECORDER).symlink_to(shared)
    return shared


def both_launches() -> FlightFile:
    file = FlightFile(keep=2)
    file.launch(0, Given(0, bits(1, 2, 3, 4), 0))
    file.launch(1, Given(0, bits(5, 6, 7, 8), 64), Given(1, bits(9, 10, 11, 12), 128))
    return file
