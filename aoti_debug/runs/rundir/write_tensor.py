"""Writes a tensor of Python's as a tensor file, as the runtime writes those of launches. Runs in a child process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aoti_debug.base import dtypes
from aoti_debug.package.recording.values import Layout
from aoti_debug.runs.rundir.formats import tensor_file_format

if TYPE_CHECKING:
    import torch


def write_tensor(path: Path, name: str, tensor: torch.Tensor) -> None:
    """Writes the logical tensor, row-major; the folder is made if need be.

    Raises:
        OSError: it cannot be written.
        TypeError: tensors of its dtype or layout cannot be saved.
    """
    import torch

    dtype = dtypes.bare_name(str(tensor.dtype))
    if tensor.layout is not torch.strided or not tensor_file_format.is_storable(dtype):
        raise TypeError(f"a tensor of {dtype}, {tensor.layout}, cannot be saved")
    values = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    layout = Layout(
        dtype,
        "cpu",
        tuple(values.shape),
        tuple(values.stride()),
        storage_offset=0,
        storage_bytes=values.numel() * values.element_size(),
        item_bytes=values.element_size(),
    )
    data = values.reshape(-1).view(torch.uint8).numpy().tobytes() if values.numel() else b""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(tensor_file_format.header(name, layout) + data)
