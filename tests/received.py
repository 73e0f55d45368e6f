"""Run directories as an untrusted source could send them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from aoti_debug.base.abi import FaultDomain, NoteCode, Phase
from aoti_debug.package.manifest import Manifest, OperatorSchema, Parameter, Role
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, tensor

HOSTILE = "k\x1b[2J\x1b]0;title\x07\nnext: rm -rf ~\u202e<script>alert(1)</script>\ud800"


RELU = OperatorSchema(
    "aten.relu.out",
    (Parameter("self", "Tensor"), Parameter("out", "Tensor", keyword_only=True, out=True)),
    returns=0,
    text="aten::relu.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)",
)


def a_manifest() -> Manifest:
    made = make_manifest(
        site("first", arg("x", param="self"), arg("y", Role.OUT, param="out"), op="aten.relu.out"),
        site("second", arg("y", param="self"), arg("z", Role.OUT, param="out"), op="aten.relu.out"),
    )
    return replace(made, operators=(RELU,))


def a_run(base: Path, manifest: Manifest | None = None, **fields: Any) -> Path:
    """A run at level 1 of two launches with their tensors, the second of which failed."""
    writer = JournalWriter(level=1)
    x, y, z = (tensor(2, 2, data_ptr=address) for address in (0x1000, 0x2000, 0x3000))
    writer.call_begin()
    writer.launch(0, 0, x, y)
    for slot, phase in ((0, Phase.BEFORE), (1, Phase.BEFORE), (1, Phase.AFTER)):
        writer.tensor_file(0, slot, phase, f"tensors/0/{slot}{phase.value}.safetensors", size=16)
    writer.launch_begin(1, 1, y, z)
    writer.fault(1, FaultDomain.EXCEPTION, text="it failed")
    writer.note(NoteCode.CONFIGURATION, "a note")
    path = run_directory(base, manifest or a_manifest(), writer, **fields)
    (path / "tensors" / "0").mkdir(parents=True)
    layout = {"dtype": "torch.float32", "shape": "[2,2]", "strides": "[2,1]", "storage_offset": "0"}
    for slot, phase in ((0, Phase.BEFORE), (1, Phase.BEFORE), (1, Phase.AFTER)):
        file = path / "tensors" / "0" / f"{slot}{phase.value}.safetensors"
        save_file({"x": torch.ones(2, 2)}, file, {**layout, "storage_bytes": "16", "format": "1"})
    return path


def received(base: Path, **fields: Any) -> Path:
    """A copy of a run whose manifest was not made on this account."""
    path = a_run(base / "made", **fields)
    data = json.loads((path / "manifest.json").read_text())
    data["source_sha256"] = "untrusted"
    (path / "manifest.json").write_text(json.dumps(data))
    shutil.copytree(path, base / "received" / path.name, symlinks=True)
    return base / "received" / path.name


def edit_json(path: Path, change: Callable[[Any], object]) -> None:
    """Changes the content of a JSON file in place."""
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def rename_everything(value: Any, text: str) -> Any:
    """The data with `text` behind every string but those that a reader requires to be what they are."""
    if isinstance(value, dict):
        return {name: item if name in _KEPT else rename_everything(item, text) for name, item in value.items()}
    if isinstance(value, list):
        return [rename_everything(item, text) for item in value]
    return value + text if isinstance(value, str) else value


_KEPT = {"kind", "certainty", "source", "device", "started", "language", "stage", "phase", "host", "hash", "path"}
