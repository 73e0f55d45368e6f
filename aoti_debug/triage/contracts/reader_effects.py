"""Describes the consequence for a launch that reads a tensor which is not as promised."""

from __future__ import annotations

from aoti_debug.base import dtypes
from aoti_debug.instrument.wrapper.launches.launch_traits import traits_of
from aoti_debug.package.recording.values import Tensor, extent_elements
from aoti_debug.runs.rundir.timeline import Argument, Launch
from aoti_debug.triage.contracts.layouts import Promised, other_sizes


def consequence(reader: Launch, argument: Argument, promised: Promised, tensor: Tensor) -> str:
    """The consequence in one sentence.

    Args:
        argument: the reader's argument: the tensor, or a view of it.
        promised: the layout that the reader was generated for.
        tensor: the tensor in this run.
    """
    subject = f"launch {reader.id} {reader.kernel}"
    if not traits_of(reader.site.kind).compiled_for_layouts:
        return f"{subject} reads it next"
    layout = tensor.layout
    verb = "reads and writes" if argument.written else "reads"
    expected, item = dtypes.item_bytes(promised.dtype), layout.item_bytes
    if expected and item and expected != item:
        return (
            f"{subject} {verb} {expected} bytes per element of a tensor with {item} bytes per element"
            f"{_past_the_end(promised, tensor)}"
        )
    if promised.dtype != layout.dtype:
        return f"{subject} {verb} its bytes as {promised.dtype}"
    if other_sizes(promised, layout):
        return f"{subject} accesses it as {promised}{_past_the_end(promised, tensor)}"
    if promised.device != layout.device:
        return f"{subject} uses its address as one of {promised.device}"
    return f"{subject} {verb} its elements in the wrong order, with the promised strides"


def _past_the_end(promised: Promised, tensor: Tensor) -> str:
    """ ", 64 bytes past the end of its memory"; "" if it stays inside or if that is unknown."""
    item = dtypes.item_bytes(promised.dtype)
    sizes = [size for size in promised.sizes if size is not None]
    strides = [stride for stride in promised.strides if stride is not None]
    if not item or len(sizes) != len(promised.sizes) or len(strides) != len(sizes):
        return ""
    extent = extent_elements(sizes, strides) * item
    available = tensor.layout.storage_bytes - tensor.layout.storage_offset * tensor.layout.item_bytes
    return f", up to {extent - available} bytes past the end of its memory" if extent > available else ""
