from __future__ import annotations

from aoti_debug.runs.show.timings import TimedPhase, timing_lines


def test_phases_their_parts_and_the_rest() -> None:
    phases = [TimedPhase("start aoti-debug", 0.1), TimedPhase("build", 2.0, {"lower": 1.5, "link": 0.5})]
    assert timing_lines(phases, 2.5) == [
        "time",
        "  start aoti-debug      100 ms    4%",
        "  build                  2.0 s   80%",
        "    lower                1.5 s   60%",
        "    link                500 ms   20%",
        "  other                 400 ms   16%",
        "  in all                 2.5 s  100%",
    ]


def test_no_rest_and_no_time_at_all() -> None:
    assert [line.split()[0] for line in timing_lines([TimedPhase("run", 1.0)], 1.0005)] == ["time", "run", "in"]
    assert timing_lines([], 0.0) == ["time", "  in all      0.0 µs"]


def test_phases_side_by_side_count_once() -> None:
    side_by_side = [
        TimedPhase("one", 2.0, began=1.0),
        TimedPhase("two", 1.0, began=1.5),
        TimedPhase("three", 1.0, began=2.5),
    ]
    assert timing_lines([TimedPhase("alone", 0.5), *side_by_side], 3.25)[-2].split() == ["other", "250", "ms", "8%"]
