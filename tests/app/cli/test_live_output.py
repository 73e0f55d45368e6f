from __future__ import annotations

from pathlib import Path

import pytest

from aoti_debug.app.cli import live_output
from aoti_debug.app.cli.live_output import LaunchedSoFar, SavedSoFar, TimedPhase, launches_per_call, timing_lines
from aoti_debug.base import terminal_cells
from aoti_debug.base.machine.steps import LastDurations, Step
from tests.factories import JournalWriter, make_manifest, site, tensor

KERNELS = make_manifest(site("cpp_fused_relu_0"), site("triton_poi_fused_1"))


def test_how_much_was_saved_so_far(tmp_path: Path) -> None:
    saved = SavedSoFar(tmp_path / "tensors", 4, 2)
    saved.update()
    assert (saved.text(), saved.launches, saved.total) == ("", 0, 8)
    for folder, size in (("0/0003_a", 1000), ("0/0000_b", 24), ("c0/0009_c", 5000)):
        path = tmp_path / "tensors" / folder
        path.mkdir(parents=True)
        (path / "x.safetensors").write_bytes(bytes(size))
        (path / ".x.tmp").write_bytes(bytes(7))
    saved.update()
    assert (saved.text(), saved.launches) == ("launch 0.3: 2 tensors, 1.0 KiB", 4)
    newest = tmp_path / "tensors" / "1/0010_d"
    newest.mkdir(parents=True)
    (newest / "y.safetensors").write_bytes(bytes(1024))
    saved.update()
    assert saved.text() == "launch 1.10: 3 tensors, 2.0 KiB"


def test_how_many_calls_have_begun(tmp_path: Path) -> None:
    launched = LaunchedSoFar(tmp_path / "journal.bin", 4, 1000)
    launched.update()
    assert (launched.text(), launched.launches) == ("", 0)
    writer = JournalWriter()
    for call in range(12):
        writer.launch(0, 0, tensor(2), call=call)
    (tmp_path / "journal.bin").write_bytes(writer.bytes())
    launched.update()
    assert (launched.text(), launched.launches) == ("call 12 of 1000, 12 launches", 45)


def test_launches_that_a_call_has() -> None:
    assert launches_per_call(KERNELS) == 2
    assert launches_per_call(make_manifest(site("k"), site("c", function="_const_run_impl"))) == 1
    assert launches_per_call(make_manifest(site("k"), site("b", subgraph="true_graph_0"))) is None
    assert launches_per_call(make_manifest(site("k", loops=1))) is None


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


@pytest.mark.parametrize(("columns", "count"), [(80, 4), (120, 2), (terminal_cells.UNLIMITED, 1)])
def test_the_result_of_a_step_goes_on_below_itself(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, columns: int, count: int
) -> None:
    monkeypatch.setattr(live_output, "width", lambda *, err: columns)
    step = Step(
        "repro, checked", 13.7, f"out-of-bounds load from table: element {2**47} of 64000, {'9' * 40} past the end"
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with live_output.StepLines(LastDurations("triage", "model.pt2")) as progress:
        progress.finished(step)
    assert LastDurations("triage", "model.pt2").hint(step.name) == " (last time 13.7 s)"
    first, *others = capsys.readouterr().err.splitlines()
    assert first.startswith("repro, checked               13.7 s  out-of-bounds load from table: ")
    assert all(line.startswith(" " * 37) and line[37] != " " for line in others)
    assert len(others) == count - 1
    assert max(map(len, (first, *others))) <= columns
