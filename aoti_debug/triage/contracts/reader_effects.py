"""What it means to a launch that it reads a tensor which is not as promised."""

from __future__ import annotations

from aoti_debug.rundir.timeline import Argument, Launch
from aoti_debug.triage.contracts.layouts import Promised, other_sizes
from aoti_debug.values import Tensor, reach
from aoti_debug.wrapper.forms import traits_of

_ITEM_BYTES = {
    **dict.fromkeys(("bool", "int8", "uint8", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"), 1),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32", "complex32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 8),
    "complex128": 16,
}


def consequence(reader: Launch, argument: Argument, promised: Promised, tensor: Tensor) -> str:
    """One sentence.

    Args:
        argument: what the reader was passed: the tensor, or a view of it.
        promised: what the reader was generated for.
        tensor: what there is.
    """
    subject = f"launch {reader.id} {reader.kernel}"
    if not traits_of(reader.site.kind).compiled_for_layouts:
        return f"{subject} reads it next"
    layout = tensor.layout
    does = "reads and writes" if argument.written else "reads"
    wanted, item = _ITEM_BYTES.get(promised.dtype, 0), layout.item_bytes
    if wanted and item and wanted != item:
        return f"{subject} {does} {wanted} bytes an element from a tensor of {item}{_past_the_end(promised, tensor)}"
    if promised.dtype != layout.dtype:
        return f"{subject} {does} its bits as {promised.dtype}"
    if other_sizes(promised, layout):
        return f"{subject} goes over {promised}{_past_the_end(promised, tensor)}"
    if promised.device != layout.device:
        return f"{subject} takes its address for one of {promised.device}"
    return f"{subject} takes its elements in another order: with the strides that were promised"


def _past_the_end(promised: Promised, tensor: Tensor) -> str:
    """ ", 64 bytes past the end of its memory"; "" where it stays inside or where that is not known."""
    item = _ITEM_BYTES.get(promised.dtype, 0)
    sizes = [size for size in promised.sizes if size is not None]
    strides = [stride for stride in promised.strides if stride is not None]
    if not item or len(sizes) != len(promised.sizes) or len(strides) != len(sizes):
        return ""
    extent = reach(sizes, strides) * item
    there = tensor.layout.storage_bytes - tensor.layout.storage_offset * tensor.layout.item_bytes
    return f", up to {extent - there} bytes past the end of its memory" if extent > there else ""
