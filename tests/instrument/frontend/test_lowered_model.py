from __future__ import annotations

from pathlib import Path

from aoti_debug.instrument.frontend.lowered_model import EmbeddedInputs, embedded_inputs
from aoti_debug.instrument.frontend.protocol import messages
from aoti_debug.instrument.frontend.protocol.messages import Answer


def test_inputs_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / messages.INPUTS).write_bytes(b"")
    inputs = embedded_inputs(tmp_path, Answer("2.13.0", (), {}, "O1", "", {}))
    assert inputs == EmbeddedInputs(tmp_path / messages.INPUTS, "")


def test_why_there_are_no_inputs(tmp_path: Path) -> None:
    inputs = embedded_inputs(tmp_path, Answer("2.13.0", (), {}, "O1", "a compiled package holds none", {}))
    assert inputs == EmbeddedInputs(None, "a compiled package holds none")
