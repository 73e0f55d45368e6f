from __future__ import annotations

import pytest
from torch._export.serde import serialize

from aoti_debug.repro import proxy


@pytest.mark.parametrize(
    ("table", "of_torch"),
    [
        (proxy.DTYPES, serialize._SERIALIZE_TO_TORCH_DTYPE),
        (proxy.LAYOUTS, serialize._SERIALIZE_TO_TORCH_LAYOUT),
        (proxy.MEMORY_FORMATS, serialize._SERIALIZE_TO_TORCH_MEMORY_FORMAT),
    ],
    ids=["dtypes", "layouts", "memory formats"],
)
def test_every_number_that_this_torch_writes(table: dict[int, str], of_torch: dict[int, object]) -> None:
    assert {number: str(value) for number, value in of_torch.items()}.items() <= table.items()
