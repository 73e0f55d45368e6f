"""The innermost frames of what a process has written."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

import pytest

import aoti_debug
from aoti_debug.instrument.frontend.protocol.python_stack import innermost_frames, is_of_user

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
