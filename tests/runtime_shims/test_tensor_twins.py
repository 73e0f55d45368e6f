"""Files that the runtime writes, against the Python code that writes the same for rescued tensors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from aoti_debug.base.abi import CallKind, Phase
from aoti_debug.runs.rundir.formats import tensor_file_format
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey
from tests.runtime_shims.journal_decoder import Journal
from tests.runtime_shims.runtime_library import Handle, Runtime, Slot
from tests.saved_tensors import described

TENSORS = {
    "x": torch.arange(12.0).reshape(3, 4)[1:, 1:3].t(),
    'a "quoted" b/ü': torch.ones(3, dtype=torch.complex128),
    "n" * 240: torch.zeros(2, 0, 3, dtype=torch.bool),
    "s": torch.tensor(7, dtype=torch.int64),
    "h": torch.zeros(3, 5, dtype=torch.complex32),
    "z": torch.zeros((), dtype=torch.complex32),
    "p": torch.zeros(2, 3, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
    "f": torch.arange(100, dtype=torch.uint8).view(torch.float8_e4m3fn),
    "b": torch.randn(70_001).to(torch.bfloat16),
}


@pytest.mark.parametrize("kernel", ["k", "mylib::op.default", "long" * 60, "ö " * 100])
def test_names_headers_and_hashes(
    load: Callable[..., Runtime], run: Path, journal: Callable[[], Journal], kernel: str
) -> None:
    runtime = load(LEVEL=1, PHASE="before")
    site = runtime.site(0, kernel, *(Slot(name, value=i) for i, name in enumerate(TENSORS)))
    given = [Handle(tensor) for tensor in TENSORS.values()]
    with runtime.call(), runtime.launch(site, *(handle.value for handle in given)):
        pass
    runtime.unload()
    found = journal().of("tensor_file")
    assert [record.slot for record in found] == list(range(len(TENSORS)))
    for record, (name, tensor) in zip(found, TENSORS.items(), strict=True):
        layout = described(tensor).layout
        key = LaunchKey(CallKind.MODEL, 0, 0)
        assert record.path == tensor_file_format.tensor_path(key, Phase.BEFORE, kernel, name, "cpu")
        file = (run / record.path).read_bytes()
        start = tensor_file_format.header(name, layout)
        assert file[: len(start)] == start
        assert len(file) == len(start) + layout.bytes
        assert tensor_file_format.content_hashes(memoryview(file)[len(start) :]) == (record.hash0, record.hash1)
