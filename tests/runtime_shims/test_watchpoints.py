"""Watchpoints: what is parsed, what is looked at, what a hit records and does."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from aoti_debug.base.errors import UsageError
from aoti_debug.runs.rundir import watch_condition
from tests.runtime_shims.journal_decoder import Journal
from tests.runtime_shims.runtime_library import IN, INOUT, OUT, Handle, Runtime, Slot

Load = Callable[..., Runtime]
SAVE, STACK, STOP, TALLY = 1, 2, 4, 8

GOOD = (
    "buf7: absmax > 1e4",
    "*: nan",
    "mylib::op.default: mean<-.5 or std >= 3 and (inf or posinf==0)",
    "b?: zeros == numel",
    "b: ((min != max))",
    "b: 1 < max",
    "b:nonfinite",
)
BAD = (
    ("buf7", 4, "a colon is missing between the name and the condition"),
    (": nan", 0, "the name of an argument or a kernel is missing"),
    ("b: absmax >", 11, "a statistic or a number is missing"),
    ("b: absmax", 9, "a comparison is missing, such as > 0"),
    ("b: big > 3", 3, "there is no statistic 'big'"),
    ("b: (nan or inf", 14, "a ) is missing"),
    ("b: nan) or inf", 6, "')' is not expected here"),
    ("b: nan 3", 7, "'3' is not expected here"),
    ("b: 1 < 2", 3, "it compares no statistic"),
    ("b: nan and", 10, "a statistic or a number is missing"),
    ("b: " + "(" * 65 + "nan", 67, "there are too many parentheses"),
    ("b: " + "nan or " * 32 + "inf", 227, "there are more than 32 comparisons"),
)


def parsed(runtime: Runtime, text: str) -> tuple[int, str]:
    error = ctypes.create_string_buffer(256)
    at = runtime.lib.h_parse_watchpoint(text.encode(), error, len(error))
    return at, error.value.decode()


def caret(text: str) -> tuple[int, str]:
    """What the command line says of a text: the column of its caret, and the first line; -1 of a watchpoint."""
    try:
        watch_condition.check(text)
    except UsageError as error:
        first, _, last = str(error).splitlines()
        return last.index("^") - 2, first.removeprefix("--watch does not parse: ")
    return -1, ""


@pytest.mark.parametrize("text", GOOD)
def test_what_parses(load: Load, text: str) -> None:
    assert parsed(load(), text) == (-1, "")
    assert caret(text) == (-1, "")


@pytest.mark.parametrize(("text", "at", "problem"), BAD)
def test_what_does_not_parse(load: Load, text: str, at: int, problem: str) -> None:
    for found_at, found in (parsed(load(), text), caret(text)):
        assert found_at == at
        assert found.startswith(problem)


def launched(runtime: Runtime, **tensors: torch.Tensor) -> None:
    """One call with one launch that reads `x` and writes `y`."""
    runtime.site(0, "cpp_fused_0", Slot("x", role=IN, value=0), Slot("y", role=OUT, value=1))
    x, y = Handle(tensors["x"]), Handle(tensors["y"])
    with runtime.call(), runtime.launch(0, x.value, y.value):
        pass


def test_a_hit_names_element_and_value(load: Load, journal: Callable[[], Journal]) -> None:
    y = torch.zeros(300)
    y[260], y[7] = math.nan, -5.0
    watch = "y: absmax > 3; y: nan; cpp*: max > 1;x: mean >= 1; y: zeros == 298 and numel > 298"
    launched(runtime := load(WATCH=watch), x=torch.ones(2), y=y)
    runtime.unload()
    found = journal()
    assert [record.text for record in found.of("watch")] == [part.strip() for part in watch.split(";")]
    hits = [(hit.watch, hit.slot, hit.phase, hit.element, hit.value) for hit in found.of("watch_hit")]
    assert hits[:2] == [(3, 0, 0, -1, 1.0), (0, 1, 1, 7, -5.0)]
    assert hits[2][:4] == (1, 1, 1, 260)
    assert math.isnan(hits[2][4])
    assert hits[3:] == [(4, 1, 1, -1, 298.0)]
    counts = {record.watch: (record.hits, record.evaluated) for record in found.of("watch_count")}
    assert counts == {0: (1, 1), 1: (1, 1), 2: (0, 2), 3: (1, 1), 4: (1, 1)}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.complex64, torch.float8_e5m2])
def test_an_infinity_is_found_in_every_dtype(load: Load, journal: Callable[[], Journal], dtype: torch.dtype) -> None:
    y = torch.zeros(1000)
    y[999] = math.inf
    launched(runtime := load(WATCH="y: absmax > 1e30"), x=torch.ones(2), y=y.to(dtype).reshape(500, 2).t())
    runtime.unload()
    (hit,) = journal().of("watch_hit")
    assert (hit.element, hit.value) == (999, math.inf)


def test_integers_and_tensors_without_elements(load: Load, journal: Callable[[], Journal]) -> None:
    launched(runtime := load(WATCH="*: min < 0"), x=torch.empty(0), y=torch.tensor([4, -7]))
    runtime.unload()
    (hit,) = journal().of("watch_hit")
    assert (hit.slot, hit.element, hit.value) == (1, 1, -7.0)


@pytest.mark.parametrize(("fresh", "phases"), [(0, [0, 1]), (1, [1])])
def test_memory_that_nothing_has_written_is_not_looked_at(
    load: Load, journal: Callable[[], Journal], fresh: int, phases: list[int]
) -> None:
    runtime = load(WATCH="y: nan", PHASE="both")
    runtime.site(0, "cpp_fused_0", Slot("y", role=INOUT, fresh=fresh))
    y = Handle(torch.tensor([math.nan]))
    with runtime.call(), runtime.launch(0, y.value):
        pass
    runtime.unload()
    assert [hit.phase for hit in journal().of("watch_hit")] == phases


def test_what_a_launch_writes_is_looked_at_once(load: Load, journal: Callable[[], Journal]) -> None:
    runtime = load(WATCH="y: max > 0")
    runtime.site(0, "first", Slot("y", role=OUT))
    runtime.site(1, "second", Slot("y", role=IN))
    y = Handle(torch.ones(3))
    with runtime.call():
        for site in (0, 1):
            with runtime.launch(site, y.value):
                pass
    runtime.unload()
    assert [(hit.launch, hit.phase) for hit in journal().of("watch_hit")] == [(0, 1)]


def test_save_keeps_the_tensors_of_the_launch(load: Load, journal: Callable[[], Journal], run: Path) -> None:
    launched(runtime := load(WATCH="y: max > 0", ON_HIT="save"), x=torch.ones(2), y=torch.ones(3))
    runtime.unload()
    files = {(record.slot, record.phase) for record in journal().of("tensor_file") if (run / record.path).is_file()}
    assert files == {(0, 0), (1, 1)}
    (hit,) = journal().of("watch_hit")
    assert hit.flags == SAVE


def test_count_records_no_hit(load: Load, journal: Callable[[], Journal]) -> None:
    launched(runtime := load(WATCH="y: max > 0", ON_HIT="count"), x=torch.ones(2), y=torch.ones(3))
    runtime.unload()
    assert journal().of("watch_hit") == []
    assert [record.hits for record in journal().of("watch_count")] == [1, 1]


def test_stop_ends_the_model_before_the_next_launch(
    load: Load, journal: Callable[[], Journal], capfd: pytest.CaptureFixture[str]
) -> None:
    runtime = load(WATCH="x: max > 0", ON_HIT="stop")
    runtime.site(0, "first", Slot("x"))
    runtime.site(1, "second", Slot("x"))
    x = Handle(torch.ones(2))
    assert runtime.lib.h_run_model(x.pointer, 0) == -1
    runtime.unload()
    assert [record.site for record in journal().of("launch_begin")] == [0]
    assert journal().of("fault") == []
    (hit,) = journal().of("watch_hit")
    assert hit.flags == STOP
    assert "watchpoint x: max > 0: first x before the launch, element 0 is 1" in capfd.readouterr().err


def test_stack_is_written_once(load: Load, journal: Callable[[], Journal], run: Path) -> None:
    runtime = load(WATCH="y: max > 0", ON_HIT="stack")
    for _ in range(2):
        launched(runtime, x=torch.ones(2), y=torch.ones(3))
    runtime.unload()
    assert [hit.flags for hit in journal().of("watch_hit")] == [STACK, 0]
    lines = (run / "backtrace.txt").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["thread", "time", "frames"]


def test_many_hits_do_not_grow(load: Load, journal: Callable[[], Journal], run: Path) -> None:
    runtime = load(WATCH="x: max > 0", JOURNAL_BYTES="1M", PRINT="none")
    runtime.site(0, "first", *(Slot("x", value=value) for value in range(8)))
    x = Handle(torch.ones(2))
    runtime.lib.h_time_launches(0, x.pointer, 100_000, 0)
    runtime.unload()
    assert (run / "journal.bin").stat().st_size <= (1 << 20) + 65536
    found = journal()
    assert [hit.number for hit in found.of("watch_hit")] == list(range(1, 257))
    assert max(record.hits for record in found.of("watch_count")) == 100_000


def test_each_watchpoint_records_a_share_of_the_hits(load: Load, journal: Callable[[], Journal]) -> None:
    runtime = load(WATCH="x: max > 0; x: nan; x: numel > 0", PRINT="none")
    runtime.site(0, "first", Slot("x"))
    x = Handle(torch.ones(2))
    runtime.lib.h_time_launches(0, x.pointer, 300, 0)
    runtime.unload()
    recorded = [(hit.watch, hit.number) for hit in journal().of("watch_hit")]
    assert sorted(recorded) == [(watch, number) for watch in (0, 2) for number in range(1, 86)]


def test_a_hit_says_if_the_tensors_are_saved(load: Load, journal: Callable[[], Journal]) -> None:
    runtime = load(WATCH="y: max > 0", ON_HIT="save")
    for _ in range(18):
        launched(runtime, x=torch.ones(2), y=torch.ones(3))
    runtime.unload()
    assert [hit.flags for hit in journal().of("watch_hit")] == [SAVE] * 16 + [0] * 2
    assert {record.call for record in journal().of("tensor_file")} == set(range(16))


def test_a_watchpoint_that_does_not_parse_is_ignored(load: Load, capfd: pytest.CaptureFixture[str]) -> None:
    load(WATCH="x: big", ON_HIT="explode").lib.h_level()
    err = capfd.readouterr().err
    assert "\n  x: big\n     ^\n" in err
    assert "AOTI_DEBUG_ON_HIT=explode is not save, stack, stop or count" in err


def test_what_the_device_cannot_read_is_counted_and_said_once(
    load: Load, device_library: Path, journal: Callable[[], Journal], capfd: pytest.CaptureFixture[str]
) -> None:
    runtime = load(device_library, WATCH="y: nan; triton*: max > 5; x: nan", PRINT="none")
    runtime.site(0, "triton_poi_fused_0", Slot("y", role=OUT))
    y = Handle(torch.full((10,), math.nan))
    runtime.lib.f_mark(y.pointer)
    for unread in (0, 1):
        runtime.lib.f_set(b"unread", unread)
        for _ in range(3):
            with runtime.call(), runtime.launch(0, y.value):
                pass
    runtime.unload()
    counts = {record.watch: (record.hits, record.evaluated, record.unread) for record in journal().of("watch_count")}
    assert counts == {0: (3, 3, 3), 1: (0, 3, 3), 2: (0, 0, 0)}
    said = "a watchpoint does not see what the device could not read, first y of triton_poi_fused_0"
    notes = [note.text for note in journal().of("note") if said in note.text]
    assert notes == [f"{said}: not read: CUDA_ERROR_OUT_OF_MEMORY"]
    assert capfd.readouterr().err.count(said) == 1
