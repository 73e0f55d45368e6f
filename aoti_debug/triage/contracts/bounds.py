"""Checks that a tensor's elements lie inside their storage, and on the device of the launch that uses it."""

from __future__ import annotations

from aoti_debug.instrument.wrapper.launches.launch_traits import RunsOn, traits_of
from aoti_debug.package.manifest import CType
from aoti_debug.package.recording.values import Layout, Tensor
from aoti_debug.runs.rundir.timeline import Argument, Launch
from aoti_debug.triage.contracts.layouts import describe


def problem(launch: Launch, argument: Argument, tensor: Tensor, device: str) -> str:
    """The problem of an argument with its memory: "float32[4] without memory: …"; "" if there is none.

    Args:
        device: the model's device: "cuda:0", or "cuda" if the index is unknown.
    """
    layout = tensor.layout
    if layout.numel == 0:
        return ""
    if tensor.data_ptr == 0 and layout.item_bytes > 0:
        return f"{describe(layout)} without memory: its address is 0"
    return _outside_of_storage(tensor) or _on_another_device(launch, argument, layout, device)


def _outside_of_storage(tensor: Tensor) -> str:
    layout = tensor.layout
    if layout.item_bytes == 0:
        return ""
    if layout.storage_offset < 0:
        return f"{describe(layout)} at element {layout.storage_offset} of its storage: before its beginning"
    offset = layout.storage_offset * layout.item_bytes
    end = offset + tensor.layout.extent_bytes
    if end <= layout.storage_bytes:
        return ""
    return f"{describe(layout)} from byte {offset} to byte {end} of a storage of {layout.storage_bytes} bytes"


def _on_another_device(launch: Launch, argument: Argument, layout: Layout, device: str) -> str:
    """The problem of an address on another device; operators check their devices themselves."""
    runs_on = traits_of(launch.site.kind).runs_on
    if runs_on is RunsOn.HOST:
        differs = layout.device != "cpu"
        device = "cpu"
    else:
        differs = runs_on is RunsOn.DEVICE and not (
            layout.device == device or (":" not in device and layout.device.startswith(device))
        )
    if not differs or not _is_address(launch, argument):
        return ""
    return f"{describe(layout)} on {layout.device}, but the kernel runs on {device}"


def _is_address(launch: Launch, argument: Argument) -> bool:
    """True if the kernel gets the tensor's address.

    Of a CPU tensor with one element the generated code may read the number and pass that instead.
    """
    kinds = {value.name: value.value.type for grid in launch.grids for value in grid.arguments}
    if argument.spec.param in kinds:
        return kinds[argument.spec.param] is CType.ADDRESS
    return argument.layout is not None and len(argument.layout.shape) > 0
