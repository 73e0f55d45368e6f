"""The innermost frames of what a process has written."""

from __future__ import annotations

from aoti_debug.frontend.protocol.python_stack import innermost_frames

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
