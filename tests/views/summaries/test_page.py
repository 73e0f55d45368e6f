from __future__ import annotations

from dataclasses import replace

from aoti_debug.base.terminal_cells import UNLIMITED
from aoti_debug.runs.rundir.summaries import Summaries
from aoti_debug.views.summaries.page import table_lines
from tests.views.summaries.sampled import empty, of_replays, sample, series

STEADY = series([sample(0, n_zero=1), sample(4, max=7.5, mean=0.125)])
BROKEN = series([sample(0), sample(4, n_nan=50)], modules=())
NUMBERS = series([sample(0), empty(4)], dtype="int64")


def lines(*shown: object, limit: int | None = None, every: int = 4, lost: int = 0) -> list[str]:
    summaries = Summaries((STEADY, BROKEN, NUMBERS), asked=4, every=every, lost=lost)
    return table_lines(summaries, shown, limit, UNLIMITED)  # type: ignore[arg-type]


def test_a_tensor() -> None:
    heading, _, titles, _, row = lines(STEADY)
    assert heading == "1 tensor in 2 calls, of one call in 4"
    assert titles.split()[:5] == ["launch", "module", "kernel", "argument", "dtype"]
    cells = row.split()
    assert cells[:9] == ["3", "encoder.0", "cpp_fused_relu_1", "buf4", "float32", "-3", "7.5", "0", "→"]
    assert cells[9:13] == ["0.125", "1", "1.0%", "0"]
    assert cells[13:15] == ["+13.1", "+14.0"]  # fp16


def test_drifting_tensors_come_first() -> None:
    rows = lines(STEADY, BROKEN)[4:]
    assert rows[0].endswith("not finite from call 4 on")
    assert rows[0].split()[1] == "-"
    assert "50.0%" in rows[0]
    assert lines(STEADY, BROKEN, limit=1)[-1] == "and 1 more tensor; --all shows them all"


def test_integers_have_no_headroom() -> None:
    assert " - " in lines(NUMBERS)[4]
    assert "+13" not in lines(NUMBERS)[4]


def test_what_had_no_room_is_said() -> None:
    heading = lines(STEADY, every=16, lost=1)[:3]
    assert heading == [
        "1 tensor in 2 calls",
        "of one call in 16, not 4: the file had no room for more",
        "1 row of single calls had no room",
    ]


def test_replays_of_a_graph() -> None:
    replays = of_replays([sample(1, replay=4), sample(1, replay=8, n_nan=1)])
    found = table_lines(Summaries((STEADY, replays), 4, 4, 0, 3), (STEADY, replays), None, UNLIMITED)
    assert found[0] == (
        "2 tensors in 2 calls and 2 replays of the CUDA graph that captured call 1, of one call or replay in 4"
    )
    assert found[1] == "3 rows of replays came too fast to be read"
    assert found[5].split()[0] == "1.3"
    assert found[5].endswith("not finite from replay 8 on")
    assert found[6].split()[0] == "3"


def test_replays_of_several_graphs() -> None:
    one = of_replays([sample(1, replay=4)])
    other = replace(one, captured_call=2)
    heading = table_lines(Summaries((one, other), 1, 1, 0), (one, other), None, UNLIMITED)[0]
    assert heading == "2 tensors in 2 replays of the CUDA graphs that captured 2 calls"
