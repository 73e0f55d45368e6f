"""Records the layouts of a program's buffers while Inductor lowers it, in the same process.

Inductor's log `ir_post_fusion` holds the same, but costs a second code generation of every Triton kernel.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from aoti_debug.instrument.frontend.worker import after_fusion


class BufferLayouts:
    """The layouts recorded so far.

    Attributes:
        graphs: text of one graph each, a buffer a line: "buf3.layout = FixedLayout(…)"; the program's own graph first,
            then those of its branches and loops.
        failure: why the layouts of a graph are missing; "" if they are not.
    """

    def __init__(self) -> None:
        self.graphs: list[str] = []
        self.failure = ""

    def record(self, operations: Sequence[Any]) -> None:
        """Records the layouts of the buffers that scheduled operations write."""
        buffers = [buffer for operation in operations for buffer in operation.get_outputs()]
        self.graphs.append("".join(f"{buffer.get_name()}.layout = {buffer.node.layout}\n" for buffer in buffers))


@contextlib.contextmanager
def record_layouts() -> Iterator[BufferLayouts]:
    """Yields the layouts of the programs that are lowered inside the `with`."""
    layouts = BufferLayouts()
    with after_fusion.shown_to(layouts):
        yield layouts
