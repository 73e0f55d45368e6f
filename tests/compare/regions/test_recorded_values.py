"""The values that recorded tensors hold, and what a launch has written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aoti_debug.compare.regions.recorded_values import RecordedValues
from aoti_debug.package.manifest import Kind
from aoti_debug.package.reference.program import FORMAT, Reference
from tests.factories import triton_kernel
from tests.triage.recorder import Recorder

REFERENCE = Reference(FORMAT, "2.13", (), ())
STORES = "    tl.store(out_ptr0 + (x0), tmp0, xmask)\n"


@pytest.mark.parametrize(
    ("source", "changes", "written"),
    [
        (STORES, False, ["buf1"]),
        (STORES, True, ["buf1"]),
        (STORES + "    tl.store(in_out_ptr0 + (x0), tmp1, xmask)\n", False, ["buf1", "buf0"]),
        (STORES + "    tl.atomic_add(in_out_ptr0 + (x0), tmp1, xmask)\n", False, ["buf1", "buf0"]),
        (STORES + "    tmp2 = tl.load(in_out_ptr0 + (x0), xmask)\n", False, ["buf1"]),
        ("", False, ["buf1", "buf0"]),
    ],
)
def test_a_buffer_that_a_kernel_takes_as_written_and_never_stores_to(
    tmp_path: Path, source: str, changes: bool, written: list[str]
) -> None:
    kernel = replace(triton_kernel("triton_poi_fused_add_0"), source=source)
    recorder = Recorder(tmp_path, inputs=("arg0",), outputs=("buf1",), kernels=(kernel,))
    recorder.journal.call_begin()
    before, after = torch.zeros(4), torch.ones(4)
    recorder.launch(
        kernel.name,
        {"arg0": before},
        {"buf1": after},
        changes={"buf0": (before, after if changes else before)},
        kind=Kind.TRITON,
    )
    run = recorder.run()
    values = RecordedValues(run, REFERENCE)
    assert [write.argument.name for write in values.writes[run.launches[0].key]] == written
