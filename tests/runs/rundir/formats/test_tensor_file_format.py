"""The Python counterpart of the runtime's tensor file names and headers.

tests/runtime_shims/test_tensor_twins.py compares the files themselves.
"""

from __future__ import annotations

from aoti_debug.base.abi import CallKind, Phase
from aoti_debug.runs.rundir.formats import tensor_file_format
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey


def test_names() -> None:
    key = LaunchKey(CallKind.CONSTANT, 2, 12345)
    path = tensor_file_format.tensor_path(key, Phase.AFTER, "mylib::op.default", "buf4", "cuda:0")
    assert path == "tensors/c2/12345_mylib::op.default/after_launch_mylib::op.default_buf4_cuda:0.safetensors"
    assert tensor_file_format.escape("a b/é%") == "a%20b%2F%C3%A9%25"


def test_quantized_tensors_are_not_saved() -> None:
    assert tensor_file_format.is_storable("float32")
    assert not tensor_file_format.is_storable("qint8")
    assert not tensor_file_format.is_storable("dtype99")
