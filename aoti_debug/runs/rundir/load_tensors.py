"""Loads saved tensors with their original layout: shape, strides, storage offset, shared storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug.base.abi import Phase
from aoti_debug.base.errors import RunDirError
from aoti_debug.package.argument_values import Tensor, extent_elements
from aoti_debug.package.pt2.program_weights import mapped
from aoti_debug.runs.rundir.formats.stored_tensor import (
    AGAIN,
    FileLayout,
    file_of,
    layout_of,
    opened_file,
    reference_at,
)
from aoti_debug.runs.rundir.formats.tensor_file_format import ALIGNMENT
from aoti_debug.runs.rundir.launch import Argument, Launch
from aoti_debug.runs.rundir.run_directory import RunDir

if TYPE_CHECKING:
    import torch

_SAME_SIZE_DTYPE = {1: "uint8", 2: "int16", 4: "int32", 8: "int64", 16: "complex128"}


def load_values(path: Path) -> tuple[torch.Tensor, FileLayout]:
    """The logical tensor of a file, contiguous and on the CPU, and its original layout.

    Raises:
        RunDirError: the file is missing or damaged; the message names it.
    """
    reference = reference_at(path)
    if reference is not None:
        return mapped(reference.checked_file(), reference.stored).contiguous(), layout_of(path)
    path = file_of(path)
    with opened_file(path, "pt") as (file, layout):
        (name,) = file.keys()
        stored = file.get_tensor(name)
    return _restore_dtype(path, stored, layout), layout


def saved_values(run: RunDir, argument: Argument, phase: Phase) -> torch.Tensor | None:
    """The saved logical tensor of an argument (see `load_values`); None if the run saved none.

    Raises:
        RunDirError: the file is missing or damaged; the message names it.
    """
    saved = argument.files.get(phase)
    return load_values(run.tensor_path(saved))[0] if saved is not None and saved.path else None


def load_file(path: Path, device: str = "cpu") -> torch.Tensor:
    """The tensor of a file with its shape, strides and storage offset.

    Raises:
        RunDirError: the file is missing or damaged; the message names it.
    """
    values, layout = load_values(path)
    return _place(values, layout, _storage(_extent(layout, values.element_size()), device), layout.storage_offset)


def map_file(path: Path) -> torch.Tensor:
    """The tensor of a file as `load_file` returns it, whose elements are read from the disk when they are used.

    One with gaps, in another order, or not aligned in the file is loaded. Writing to it does not change the file.

    Raises:
        RunDirError: the file is missing or damaged; the message names it.
    """
    values, layout = load_values(path)
    is_as_stored = layout.strides == tuple(values.stride()) and layout.storage_offset == 0
    if is_as_stored and layout.storage_bytes <= values.nbytes and values.data_ptr() % ALIGNMENT == 0:
        return values
    return _place(values, layout, _storage(_extent(layout, values.element_size()), "cpu"), layout.storage_offset)


def load_launch(
    run: RunDir, launch: Launch, phase: Phase, *, device: str | None = None, names: Sequence[str] | None = None
) -> dict[str, torch.Tensor]:
    """The saved arguments of a launch by name; arguments that shared a storage share one again.

    An output of the proxy executor has no address in the journal, so it gets a storage of its own.

    Args:
        device: the device to load them on; None for the original device of each.
        names: load only these arguments; None for all that were saved.

    Raises:
        RunDirError: a file is missing or damaged, or one of `names` was not saved.
    """
    selected: dict[str, tuple[Tensor | None, Path]] = {}
    for argument in launch.args:
        if names is not None and argument.name not in names:
            continue
        saved = argument.files.get(phase)
        value = argument.before if phase is Phase.BEFORE else argument.after
        if saved is not None and saved.path:
            selected[argument.name] = (value if isinstance(value, Tensor) else None, run.tensor_path(saved))
        elif names is not None:
            reason = f": {saved.reason}" if saved is not None and saved.reason else ""
            raise RunDirError(f"{argument.name} of launch {launch.id} was not saved{reason}", hint=AGAIN)
    with_address = {name: (tensor, path) for name, (tensor, path) in selected.items() if tensor is not None}
    loaded = {name: load_file(path, device or "cpu") for name, (tensor, path) in selected.items() if tensor is None}
    for group in _shared_storages({name: tensor for name, (tensor, _) in with_address.items()}):
        loaded |= _load_group({name: with_address[name] for name in group}, device)
    return {name: loaded[name] for name in selected}


def _restore_dtype(path: Path, stored: torch.Tensor, layout: FileLayout) -> torch.Tensor:
    """Restores a dtype that safetensors lacks: complex numbers are stored as pairs of reals, others as bytes."""
    import torch

    dtype = getattr(torch, layout.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise RunDirError(f"{path} contains {layout.dtype}, which torch {torch.__version__} does not have")
    if stored.dtype != dtype:
        pairs = dtype.is_complex and stored.shape[-1:] == (2,)
        stored = stored.view(dtype)
        stored = stored.squeeze(-1) if pairs else stored
    if stored.dtype != dtype or stored.numel() != layout.numel:
        raise RunDirError(f"{path} is damaged: its metadata contradicts its data", hint=AGAIN)
    return stored.reshape(layout.shape)


def _extent(layout: FileLayout, item_bytes: int) -> int:
    """The size in bytes of a storage that contains the tensor."""
    return max(
        layout.storage_bytes, (layout.storage_offset + extent_elements(layout.shape, layout.strides)) * item_bytes
    )


def _storage(size: int, device: str) -> Any:
    """Zeroed memory; on a CPU, pages that no tensor covers are never touched and cost nothing."""
    import torch

    return torch.zeros(size, dtype=torch.uint8, device=device).untyped_storage()


def _place(values: torch.Tensor, layout: FileLayout, storage: Any, offset: int) -> torch.Tensor:
    """A tensor of `layout` in `storage`, `offset` elements from its start, filled with `values`."""
    import torch

    target = torch.empty(0, dtype=values.dtype, device=storage.device)
    target.set_(storage, offset, layout.shape, layout.strides)
    if target.numel() == 0:
        return target
    source, unexpanded = values, target
    for dim, stride in enumerate(layout.strides):
        if stride == 0 and layout.shape[dim] > 1:
            source, unexpanded = source.narrow(dim, 0, 1), unexpanded.narrow(dim, 0, 1)
    if _overlaps(unexpanded):
        offsets = sum(
            torch.arange(size).reshape([-1 if d == dim else 1 for d in range(unexpanded.dim())]) * stride
            for dim, (size, stride) in enumerate(zip(unexpanded.shape, unexpanded.stride(), strict=True))
        )
        assert isinstance(offsets, torch.Tensor)
        same_size = _SAME_SIZE_DTYPE[values.element_size()]  # torch does not implement indexing for every dtype
        span = torch.empty(0, dtype=getattr(torch, same_size), device=storage.device)
        span.set_(storage, offset, (int(offsets.max()) + 1,), (1,))
        flat = source.contiguous().view(span.dtype).reshape(-1)
        span[offsets.reshape(-1).to(span.device)] = flat.to(span.device)
    else:
        unexpanded.copy_(source)
    return target


def _overlaps(tensor: torch.Tensor) -> bool:
    """True if two elements may share an address."""
    last_offset = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride <= last_offset:
            return True
        last_offset += stride * (size - 1)
    return False


def _shared_storages(values: Mapping[str, Tensor]) -> list[list[str]]:
    """Names grouped by shared memory: storages on one device whose address ranges overlap."""
    groups: list[list[str]] = []
    end, device = 0, ""
    for name, value in sorted(values.items(), key=lambda item: (item[1].layout.device, item[1].storage_ptr)):
        start = value.storage_ptr
        if not groups or value.layout.device != device or start >= end:
            groups.append([])
            end, device = 0, value.layout.device
        groups[-1].append(name)
        end = max(end, start + max(value.layout.storage_bytes, 1))
    return groups


def _load_group(group: Mapping[str, tuple[Tensor, Path]], device: str | None) -> dict[str, torch.Tensor]:
    """Loads tensors of one storage; one whose address is not aligned there for its dtype gets a storage of its own."""
    start = min(value.storage_ptr for value, _ in group.values())
    contents = {name: load_values(path) for name, (_, path) in group.items()}
    target_device = device or next(iter(group.values()))[0].layout.device
    size = 0
    offsets: dict[str, int] = {}
    for name, (value, _) in group.items():
        values, layout = contents[name]
        distance, rest = divmod(value.data_ptr - start, values.element_size())
        if rest == 0:
            offsets[name] = distance
            shift = (distance - layout.storage_offset) * values.element_size()
            size = max(size, shift + _extent(layout, values.element_size()))
    shared = _storage(size, target_device)
    placed: dict[str, torch.Tensor] = {}
    for name, (values, layout) in contents.items():
        if name in offsets:
            placed[name] = _place(values, layout, shared, offsets[name])
        else:
            storage = _storage(_extent(layout, values.element_size()), target_device)
            placed[name] = _place(values, layout, storage, layout.storage_offset)
    return placed
