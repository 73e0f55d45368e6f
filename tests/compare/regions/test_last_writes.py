from __future__ import annotations

import random
import time

from aoti_debug.compare.regions.last_writes import LastWrites
from aoti_debug.runs.diagnosis.dataflow import ByteRange


def span(begin: int, end: int, device: str = "cpu") -> ByteRange:
    return ByteRange(device, begin, end)


def test_the_last_write_of_a_range() -> None:
    writes: LastWrites[str] = LastWrites()
    assert writes.covering(span(0, 8)) is None
    writes.add(span(0, 64), "whole")
    writes.add(span(16, 32), "part")
    assert writes.covering(span(0, 16)) == "whole"
    assert writes.covering(span(40, 64)) == "whole"
    assert writes.covering(span(16, 32)) == "part"
    assert writes.covering(span(8, 24)) is None  # a part was overwritten
    assert writes.covering(span(0, 64)) is None
    assert writes.covering(span(64, 72)) is None
    assert writes.covering(span(0, 16, "cuda:0")) is None
    writes.add(span(0, 64), "again")
    assert writes.covering(span(0, 64)) == "again"


def test_it_agrees_with_a_byte_by_byte_record() -> None:
    chance = random.Random(0)
    writes: LastWrites[int] = LastWrites()
    spans: list[ByteRange] = []
    for number in range(300):
        begin = chance.randrange(100)
        spans.append(span(begin, begin + chance.randrange(1, 30)))
        writes.add(spans[-1], number)
        begin = chance.randrange(100)
        read = span(begin, begin + chance.randrange(1, 30))
        last = next((n for n in reversed(range(len(spans))) if spans[n].overlaps(read)), None)
        expected = last if last is not None and spans[last].covers(read) else None
        assert writes.covering(read) == expected


def test_ten_thousand_writes_and_reads_are_fast() -> None:
    writes: LastWrites[int] = LastWrites()
    began = time.process_time()
    for number in range(10_000):
        writes.add(span(number * 64, number * 64 + 64), number)
        for weight in range(4):
            assert writes.covering(span(-1000 - weight, -999 - weight)) is None
    assert time.process_time() - began < 2
