"""What stopped a build, read from the folder of its lowering."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

import pytest

import aoti_debug
from aoti_debug.base.errors import ToolchainError
from aoti_debug.base.machine.files import json_data
from aoti_debug.instrument.frontend.protocol import build_failure
from aoti_debug.instrument.frontend.protocol.build_failure import (
    BuildFailure,
    BuildFailureError,
    BuildStage,
    Ending,
    Position,
    innermost_frames,
    is_of_user,
)
from aoti_debug.package import program_graphs
from aoti_debug.package.program_graphs import FORMAT, Reference

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
    (tmp_path / build_failure.LOWERED_GRAPHS).write_text(program_graphs.to_json(reference))
    again = build_failure.explain(ERROR, tmp_path, Ending.DEATH, "SIGSEGV", "")
    assert isinstance(again, BuildFailureError)
    assert again.failure.reference == reference


RAISED = """some output
Traceback (most recent call last):
  File "/torch/graph.py", line 1880, in run_node
    result = super().run_node(n)
  File "/home/u/ops.py", line 4, in broken
    raise RuntimeError("no such layout")
torch._inductor.exc.InductorError: LoweringException: RuntimeError: no such layout
      File "/home/u/model.py", line 6, in forward,
Found from :
 File "/home/u/model.py", line 7, in forward
"""
HANGS = """Stack (most recent call first):
  File "/home/u/passes.py", line 5 in endless
  File "/torch/observer.py", line 97 in apply_graph_pass
"""


def test_the_hint_names_the_file_of_the_model(tmp_path: Path) -> None:
    failure = BuildFailure(Position(BuildStage.LOWERING, "aten.relu.default"), Ending.EXCEPTION, "no", (), None, ())
    error = build_failure.BuildFailureError("it failed", failure, hint=f"at work was this; {build_failure.HINT}")
    named = error.of_model(tmp_path / "my model.pt2")
    command = f"aoti-debug triage '{tmp_path}/my model.pt2' names what is to blame, and goes on without it"
    assert named.hint == f"at work was this; {command}"
    assert (str(named), named.failure) == ("it failed", failure)


def test_an_exception_ends_in_its_innermost_frame() -> None:
    assert innermost_frames(RAISED) == ("/home/u/ops.py:4 in broken", "/torch/graph.py:1880 in run_node")


def test_a_stack_begins_with_it() -> None:
    assert innermost_frames(HANGS) == ("/home/u/passes.py:5 in endless", "/torch/observer.py:97 in apply_graph_pass")


def test_the_last_stack_counts() -> None:
    assert innermost_frames(RAISED + HANGS)[0] == "/home/u/passes.py:5 in endless"
    assert innermost_frames(HANGS.replace("Stack", "Fatal\n\nCurrent thread 0x1f") + RAISED)[0].endswith("in broken")
    assert innermost_frames("no stack") == ()


OWN = Path(aoti_debug.__file__).parent / "instrument/frontend/worker/lower.py"


def test_frames_of_aoti_debug_are_left_out_wherever_it_is_installed(tmp_path: Path) -> None:
    link = tmp_path / "linked"
    link.symlink_to(OWN.parent)
    for own in (OWN, link / OWN.name):
        text = HANGS + f'  File "{own}", line 3 in _lower\n'
        assert innermost_frames(text) == innermost_frames(HANGS)
        assert not is_of_user(f"{own}:3 in _lower")


@pytest.mark.parametrize(
    ("file", "is_user"),
    [
        ("/home/u/ops.py", True),
        (os.__file__, False),
        (f"{sysconfig.get_path('purelib')}/torch/fx/graph.py", False),
        ("/venv/lib/python3.11/site-packages/torch/fx/graph.py", False),
        ("<frozen runpy>", False),
    ],
)
def test_frames_of_the_user_are_of_no_installed_package(file: str, *, is_user: bool) -> None:
    assert is_of_user(f"{file}:3 in f") == is_user
