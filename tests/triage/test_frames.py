from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from factories import JournalWriter, make_manifest, run_directory, site, tensor

from aoti_debug.launches import Launch
from aoti_debug.manifest import Certainty, Frame, Provenance
from aoti_debug.rundir import open_run
from aoti_debug.triage.frames import of_operation


def launch(base: Path, *lines: str) -> Launch:
    frames = tuple(Frame("/m.py", number, "forward", text) for number, text in enumerate(lines))
    fused = replace(site("k"), provenance=Provenance(Certainty.EXACT, source=frames))
    journal = JournalWriter()
    journal.launch(0, 0, tensor(1))
    return open_run(run_directory(base, make_manifest(fused), journal)).launches[0]


@pytest.mark.parametrize(
    ("operation", "line"),
    [
        ("div", 0),
        ("mul", 1),
        ("log", 2),
        ("softmax", 3),
        ("sqrt", 5),
        ("exp", 3),
    ],
)
def test_the_line_that_an_operation_is_written_in(tmp_path: Path, operation: str, line: int) -> None:
    fused = launch(
        tmp_path,
        "q = x / divisor",
        "return self.scale * q",
        "y = torch.log(q)",
        "if torch.softmax(y, -1).sum() > 0:",
        "z = y + 1",
        "n = torch.linalg.vector_norm(z, dim=-1)",
    )
    found = of_operation(fused, operation)
    assert found is not None
    assert found.line == line


def test_two_lines_that_do_it_are_one_too_many(tmp_path: Path) -> None:
    assert of_operation(launch(tmp_path, "a = x / y", "b = x / z"), "div") is None


def test_no_line_does_it(tmp_path: Path) -> None:
    assert of_operation(launch(tmp_path, "a = x / y", ""), "log") is None
