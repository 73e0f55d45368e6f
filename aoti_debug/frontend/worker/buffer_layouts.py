"""Asks Inductor for the layouts of a program's buffers while it is lowered. Runs where that happens.

Inductor calls `_post_fusion_custom_pass`, a setting, with the scheduled operations of every graph. Its log of them
(`ir_post_fusion`) says the same, but generates every Triton kernel a second time for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

_SETTING = "_post_fusion_custom_pass"


class Layouts:
    """
    Attributes:
        graphs: "buf3.layout = FixedLayout(…)" a line; of the program's own graph, then of its branches and loops.
        failure: why those of a graph are missing; "" where they are not.
    """

    def __init__(self, before: Any) -> None:
        self.graphs: list[str] = []
        self.failure = ""
        self._before = before

    def __call__(self, nodes: list[Any]) -> list[Any]:
        """The pass: it changes nothing, and does not stop the lowering."""
        if self._before is not None:
            nodes = self._before(nodes)
        try:
            self.graphs.append(_describe(nodes))
        except Exception as error:  # noqa: BLE001 - Inductor's own classes change from one version to the next
            self.failure = f"{type(error).__name__}: {error}"
        return nodes


@contextlib.contextmanager
def observed() -> Iterator[Layouts]:
    """The layouts of whatever is lowered meanwhile."""
    import torch._inductor.config as config

    if not hasattr(config, _SETTING):
        layouts = Layouts(None)
        layouts.failure = f"it has no setting {_SETTING}"
        yield layouts
        return
    layouts = Layouts(getattr(config, _SETTING))
    with config.patch({_SETTING: layouts}):
        yield layouts


def _describe(nodes: Sequence[Any]) -> str:
    buffers = [buffer for node in nodes for buffer in node.get_outputs()]
    return "".join(f"{buffer.get_name()}.layout = {buffer.node.layout}\n" for buffer in buffers)
