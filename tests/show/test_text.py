from __future__ import annotations

import pytest
from factories import tensor

from aoti_debug.manifest import CType
from aoti_debug.rundir.statistics import Statistics
from aoti_debug.show import text
from aoti_debug.values import Absent, Number, Value


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


@pytest.mark.parametrize(
    ("count", "spelled"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 20, "1.0 MiB"), (5 << 40, "5120.0 GiB")],
)
def test_sizes(count: int, spelled: str) -> None:
    assert text.size(count) == spelled


@pytest.mark.parametrize(
    ("seconds", "spelled"), [(2.5e-6, "2.5 µs"), (0.0123, "12.3 ms"), (1.25, "1.2 s"), (125.0, "2 min 5 s")]
)
def test_durations(seconds: float, spelled: str) -> None:
    assert text.seconds(seconds) == spelled


def test_counts_of_things() -> None:
    assert [text.count(n, "launch") for n in (0, 1, 2)] == ["0 launches", "1 launch", "2 launches"]
    assert text.count(2, "call") == "2 calls"


def test_statistics_leave_out_what_is_nought() -> None:
    assert text.statistics(Statistics(0, 0, 0, 0, 0, None, None, 0, 0, 0.0, 0.0)) == ["empty"]
    assert text.statistics(Statistics(2, 2, 0, 0, 0, None, None, 0, 0, 0.0, 0.0)) == ["NaN 2"]
    large = Statistics(2, 0, 0, 0, 0, 0, 2**53 + 1, 0, 1, 4.5e15, 4.5e15)
    assert text.statistics(large)[1] == "max 9007199254740993 at 1"


def test_middles() -> None:
    assert text.middle_cut("abcdef", 6) == "abcdef"
    assert text.middle_cut("abcdefgh", 5) == "ab…gh"
    assert text.middle_cut("abcdefgh", 1) == "…"


def test_words_flow() -> None:
    assert text.flowed(["aa", "bb", "cccccccc", "d"], 8, " ") == [" aa  bb", " cccccccc", " d"]
    assert text.flowed([], 8) == []


def test_first_lines() -> None:
    assert text.first_line("\n  one \ntwo") == "one"
    assert text.first_line("") == ""
    assert len(text.first_line("x" * 1000)) == 300
