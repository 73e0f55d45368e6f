from __future__ import annotations

from pathlib import Path

import pytest

from aoti_debug.app.cli.terminal import step_lines
from aoti_debug.base.machine.progress.last_durations import LastDurations
from aoti_debug.base.machine.progress.steps import Step
from aoti_debug.runs.show import terminal_cells


@pytest.mark.parametrize("columns", [80, 120, terminal_cells.UNLIMITED])
def test_a_step_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, columns: int
) -> None:
    monkeypatch.setattr(step_lines, "width", lambda *, err: columns)
    step = Step(
        "repro, checked", 13.7, f"out-of-bounds load from table: element {2**47} of 64000, {'9' * 60} past the end"
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with step_lines.StepLines(LastDurations("triage", "model.pt2")) as progress:
        progress.finished(step)
    assert LastDurations("triage", "model.pt2").hint(step.name) == " (last time 13.7 s)"
    (line,) = capsys.readouterr().err.splitlines()
    assert len(line) <= columns
    assert line.startswith("repro, checked")
    assert line.endswith(" past the end")
    assert ("…" in line) == (columns < 1000)
