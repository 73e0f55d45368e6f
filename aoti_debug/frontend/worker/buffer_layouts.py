"""Records the layouts of a program's buffers while Inductor lowers it, in the same process.

Inductor calls the setting `_post_fusion_custom_pass` with the scheduled operations of every graph. Its log
`ir_post_fusion` holds the same, but costs a second code generation of every Triton kernel.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

_SETTING = "_post_fusion_custom_pass"


class BufferLayouts:
    """A pass after fusion that records layouts.

    Attributes:
        graphs: text of one graph each, a buffer a line: "buf3.layout = FixedLayout(…)"; the program's own graph first,
            then those of its branches and loops.
        failure: why the layouts of a graph are missing; "" if they are not.
    """

    def __init__(self, inner_pass: Any) -> None:
        self.graphs: list[str] = []
        self.failure = ""
        self._inner_pass = inner_pass

    def __call__(self, nodes: list[Any]) -> list[Any]:
        """Runs the pass; it changes nothing, and an error does not stop the lowering."""
        if self._inner_pass is not None:
            nodes = self._inner_pass(nodes)
        try:
            self.graphs.append(_describe(nodes))
        except Exception as error:  # noqa: BLE001 - Inductor's own classes change from one version to the next
            self.failure = f"{type(error).__name__}: {error}"
        return nodes


@contextlib.contextmanager
def record_layouts() -> Iterator[BufferLayouts]:
    """Yields the layouts of the programs that are lowered inside the `with`."""
    import torch._inductor.config as config

    if not hasattr(config, _SETTING):
        layouts = BufferLayouts(None)
        layouts.failure = f"it has no setting {_SETTING}"
        yield layouts
        return
    layouts = BufferLayouts(getattr(config, _SETTING))
    with config.patch({_SETTING: layouts}):
        yield layouts


def _describe(nodes: Sequence[Any]) -> str:
    buffers = [buffer for node in nodes for buffer in node.get_outputs()]
    return "".join(f"{buffer.get_name()}.layout = {buffer.node.layout}\n" for buffer in buffers)
