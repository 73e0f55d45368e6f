"""Shows a recorder the scheduled operations of every graph that Inductor lowers; records the layouts of buffers.

Inductor calls the setting `_post_fusion_custom_pass` with them, after it has fused them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

_SETTING = "_post_fusion_custom_pass"


class Recorder(Protocol):
    """Records what it is shown.

    Attributes:
        failure: why a graph is missing; "" if none is.
    """

    failure: str

    def record(self, operations: list[Any]) -> None:
        """Records the graph with these scheduled operations."""


@contextlib.contextmanager
def shown_to(recorder: Recorder) -> Iterator[None]:
    """Shows the recorder the fused operations of every graph that Inductor lowers inside the `with`.

    A pass that the user has set is called before it.
    """
    import torch._inductor.config as config

    if not hasattr(config, _SETTING):
        recorder.failure = f"it has no setting {_SETTING}"
        yield
        return
    with config.patch({_SETTING: _Pass(recorder, getattr(config, _SETTING))}):
        yield


class _Pass:
    """A pass that changes nothing, and whose errors do not stop the lowering."""

    def __init__(self, recorder: Recorder, inner_pass: Any) -> None:
        self._recorder = recorder
        self._inner_pass = inner_pass

    def __call__(self, operations: list[Any]) -> list[Any]:
        if self._inner_pass is not None:
            operations = self._inner_pass(operations)
        try:
            self._recorder.record(operations)
        except Exception as error:  # noqa: BLE001 - Inductor's own classes change from one version to the next
            self._recorder.failure = f"{type(error).__name__}: {error}"
        return operations


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
    with shown_to(layouts):
        yield layouts
