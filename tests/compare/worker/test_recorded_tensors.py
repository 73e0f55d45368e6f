from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aoti_debug.compare.protocol.request import KnownValue, Recorded
from aoti_debug.compare.worker import recorded_tensors
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.program_graphs import MODEL, Graph, Node, NodeKind, ValueKey
from tests import saved_tensors

GRAPH = Graph("", MODEL, (Node("add", NodeKind.CALL, "aten.add.Tensor"),), ())
PADDED = (12, 3, 1)  # strides of 2 x 3 x 3 elements: a gap of three between the two parts


def recorded(path: Path) -> tuple[torch.Tensor, KnownValue]:
    values = torch.arange(40.0).as_strided((2, 3, 3), PADDED, 2)
    saved_tensors.save(path / "buf0.safetensors", "buf0", values)
    return values, KnownValue(
        ValueKey("add"), Recorded("0.1", "buf0", str(path / "buf0.safetensors"), tuple(map(str, PADDED)))
    )


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_gaps_between_rows_stay_on_every_device(tmp_path: Path, device: str) -> None:
    _, item = recorded(tmp_path)
    loaded = recorded_tensors.load(GRAPH, item, device)
    assert (loaded.device.type, loaded.shape, loaded.stride(), loaded.storage_offset()) == (
        device,
        (2, 3, 3),
        PADDED,
        2,
    )


def test_a_value_is_compared_as_it_lies_in_a_padded_buffer(tmp_path: Path) -> None:
    values, item = recorded(tmp_path)
    loaded = recorded_tensors.load(GRAPH, item, "cpu")
    assert torch.equal(loaded, values)
    assert torch.equal(recorded_tensors.as_written(values.contiguous(), loaded, item, Symbols()), values)
