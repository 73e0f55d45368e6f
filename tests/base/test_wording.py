from __future__ import annotations

import pytest

from aoti_debug.base import wording


@pytest.mark.parametrize(
    ("count", "spelled"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (1 << 20, "1.0 MiB"), (5 << 40, "5120.0 GiB")],
)
def test_byte_sizes(count: int, spelled: str) -> None:
    assert wording.byte_size(count) == spelled


def test_byte_sizes_in_a_unit() -> None:
    assert wording.byte_size_in("MiB", 64 << 20) == "64 MiB"
    assert wording.byte_size_in("GiB", 79.6 * 2**30) == "80 GiB"
    assert wording.byte_size_in("MiB", 0) == "0 MiB"


@pytest.mark.parametrize(
    ("seconds", "spelled"),
    [
        *((2.5e-6, "2.5 µs"), (0.0123, "12.3 ms"), (1.25, "1.2 s")),
        *((59.97, "1 min 0 s"), (119.6, "2 min 0 s"), (125.0, "2 min 5 s")),
    ],
)
def test_durations(seconds: float, spelled: str) -> None:
    assert wording.duration(seconds) == spelled


def test_numbers() -> None:
    assert [wording.number(value) for value in (0.1234567891, 2**53 + 1, 1e300)] == [
        "0.123457",
        "9007199254740993",
        "1e+300",
    ]


def test_counts_of_things() -> None:
    assert [wording.pluralize(n, "launch") for n in (0, 1, 2)] == ["0 launches", "1 launch", "2 launches"]
    assert wording.pluralize(2, "call") == "2 calls"


def test_articles() -> None:
    assert (wording.article("compiled package"), wording.article("exported program")) == (
        "a compiled package",
        "an exported program",
    )


def test_lists() -> None:
    assert (wording.comma_separated(["a", "b"]), wording.comma_separated([])) == ("a, b", "none")


def test_first_lines() -> None:
    assert wording.first_line("\n  one \ntwo") == "one"
    assert wording.first_line("") == ""
    assert len(wording.first_line("x" * 1000)) == 300
