"""What stopped a build, read from the folder of its lowering."""

from __future__ import annotations

from pathlib import Path

import pytest

from aoti_debug.base.errors import ToolchainError
from aoti_debug.base.machine.files import json_data
from aoti_debug.instrument.frontend.protocol import build_failure
from aoti_debug.instrument.frontend.protocol.build_failure import BuildFailureError, BuildStage, Ending, Position
from aoti_debug.package.reference import program
from aoti_debug.package.reference.program import FORMAT, Reference

POSITION = Position(BuildStage.LOWERING, "aten.erf.default", "erf")
ERROR = ToolchainError("Inductor cannot lower the model", hint="see whether torch alone fails as well")


@pytest.mark.parametrize(
    ("raised", "shown"),
    [
        ("InductorError: LoweringException: RuntimeError: no such layout\n  target: x", "RuntimeError: no such layout"),
        ("torch._inductor.exc.InductorError: KeyError: 'a'", "KeyError: 'a'"),
        ("AssertionError: ", "AssertionError: "),
        ("", ""),
    ],
)
def test_an_exception_without_those_that_wrap_it(raised: str, shown: str) -> None:
    assert build_failure.innermost_exception(raised).strip() == shown.strip()


def test_an_error_outside_of_any_part_stays(tmp_path: Path) -> None:
    assert build_failure.explain(ERROR, tmp_path, Ending.DEATH, "SIGSEGV", "") is ERROR
    (tmp_path / build_failure.POSITION).write_text("\n")
    assert build_failure.explain(ERROR, tmp_path, Ending.DEATH, "SIGSEGV", "") is ERROR


def test_an_error_in_a_part_names_it_and_points_to_triage(tmp_path: Path) -> None:
    (tmp_path / build_failure.POSITION).write_text(f"{json_data.to_text(POSITION, indent=None).strip()}\nlonger one")
    (tmp_path / build_failure.LOWERED_GRAPHS).write_text("{")  # it was stopped while it wrote
    error = build_failure.explain(ERROR, tmp_path, Ending.DEATH, "SIGSEGV", "")
    assert isinstance(error, BuildFailureError)
    assert (error.failure.position, error.failure.what, error.failure.reference) == (POSITION, "SIGSEGV", None)
    assert str(error) == str(ERROR)
    assert error.hint == f"{build_failure.HINT}; {ERROR.hint}"
    reference = Reference(FORMAT, "2.13.0", ())
    (tmp_path / build_failure.LOWERED_GRAPHS).write_text(program.to_json(reference))
    again = build_failure.explain(ERROR, tmp_path, Ending.DEATH, "SIGSEGV", "")
    assert isinstance(again, BuildFailureError)
    assert again.failure.reference == reference
