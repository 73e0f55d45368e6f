from __future__ import annotations

import pytest

from aoti_debug.package.manifest import CType
from aoti_debug.package.recording.values import Absent, Number, Value
from aoti_debug.runs.rundir.formats.statistics import Statistics
from aoti_debug.runs.show import text
from tests.factories import tensor


@pytest.mark.parametrize(
    ("value", "spelled"),
    [
        (tensor(2, 3, dtype="bfloat16", device="cuda:1"), "bfloat16[2,3] cuda:1"),
        (tensor(dtype="float64"), "float64[] cpu"),
        (tensor(kind="sparse_csr"), "float32 sparse_csr cpu"),
        (Number(3, CType.I64), "3"),
        (Number(0.5, CType.F64), "0.5"),
        (Number(True, CType.BOOL), "True"),
        (Number(255, CType.ADDRESS), "0xff"),
        (Absent.NULL, "None"),
        (Absent.UNDEFINED, "an undefined tensor"),
        (Absent.UNSET, "not set yet"),
        (Absent.OPAQUE, "not recorded"),
    ],
)
def test_values(value: Value, spelled: str) -> None:
    assert text.value(value) == spelled


def test_statistics_leave_out_what_is_nought() -> None:
    assert text.statistics(Statistics(0, 0, 0, 0, 0, None, None, 0, 0, 0.0, 0.0)) == ["empty"]
    assert text.statistics(Statistics(2, 2, 0, 0, 0, None, None, 0, 0, 0.0, 0.0)) == ["NaN 2"]
    large = Statistics(2, 0, 0, 0, 0, 0, 2**53 + 1, 0, 1, 4.5e15, 4.5e15)
    assert text.statistics(large)[1] == "max 9007199254740993 at 1"
