from __future__ import annotations

from pathlib import Path

from aoti_debug.frontend.lowered import EmbeddedInputs, inputs_in
from aoti_debug.frontend.worker import protocol
from aoti_debug.frontend.worker.protocol import Answer


def test_inputs_that_were_left_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / protocol.INPUTS).write_bytes(b"")
    found = inputs_in(tmp_path, Answer("2.13.0", (), {}, "O1", "", {}))
    assert found == EmbeddedInputs(tmp_path / protocol.INPUTS, "")


def test_why_there_are_no_inputs(tmp_path: Path) -> None:
    found = inputs_in(tmp_path, Answer("2.13.0", (), {}, "O1", "a compiled package holds none", {}))
    assert found == EmbeddedInputs(None, "a compiled package holds none")
