"""Loads saved tensors with the layout that they had: shape, strides, storage offset, shared storage."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug import dtypes
from aoti_debug.abi import Phase
from aoti_debug.errors import RunDirError
from aoti_debug.machine import json_data
from aoti_debug.rundir.run_directory import RunDir
from aoti_debug.rundir.timeline import Argument, Launch
from aoti_debug.values import Tensor, reach

if TYPE_CHECKING:
    import torch

_BITS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64", 16: "complex128"}
_AGAIN = "run the package again at level 1"


@dataclass(frozen=True)
class FileLayout:
    """What a tensor file's metadata says of the tensor's layout."""

    dtype: str  # "float32"
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # elements
    storage_offset: int  # elements
    storage_bytes: int


def load_values(path: Path) -> tuple[torch.Tensor, FileLayout]:
    """The logical tensor of a file, contiguous and on the CPU, and the layout that it had.

    Raises:
        RunDirError: the file is missing or damaged; the message names it.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            (name,) = file.keys()
            layout = _layout(path, file.metadata() or {})
            stored = file.get_tensor(name)
    except FileNotFoundError as error:
        raise RunDirError(f"{path} is missing", hint=_AGAIN) from error
    except (SafetensorError, OSError, ValueError) as error:
        raise RunDirError(f"{path} is damaged: {error}", hint=_AGAIN) from error
    return _restore_dtype(path, stored, layout), layout


def saved_values(run: RunDir, argument: Argument, phase: Phase) -> torch.Tensor | None:
    """The logical tensor that a run saved of an argument, as `load_values` gives it; None where it saved none.

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


def load_launch(
    run: RunDir, launch: Launch, phase: Phase, *, device: str | None = None, names: Sequence[str] | None = None
) -> dict[str, torch.Tensor]:
    """The saved arguments of a launch by name, those that shared a storage sharing one again.

    An output of the proxy executor has no address in the journal, so it gets a storage of its own.

    Args:
        device: where to put them; None for where each of them was.
        names: only these arguments; None for every one that was saved.

    Raises:
        RunDirError: a file is missing or damaged, or one of `names` was not saved.
    """
    wanted: dict[str, tuple[Tensor | None, Path]] = {}
    for argument in launch.args:
        if names is not None and argument.name not in names:
            continue
        saved = argument.files.get(phase)
        held = argument.before if phase is Phase.BEFORE else argument.after
        if saved is not None and saved.path:
            wanted[argument.name] = (held if isinstance(held, Tensor) else None, run.tensor_path(saved))
        elif names is not None:
            why = f": {saved.reason}" if saved is not None and saved.reason else ""
            raise RunDirError(f"{argument.name} of launch {launch.id} was not saved{why}", hint=_AGAIN)
    placed = {name: (value, path) for name, (value, path) in wanted.items() if value is not None}
    loaded = {name: load_file(path, device or "cpu") for name, (value, path) in wanted.items() if value is None}
    for group in _sharing({name: value for name, (value, _) in placed.items()}):
        loaded |= _load_group({name: placed[name] for name in group}, device)
    return {name: loaded[name] for name in wanted}


def _layout(path: Path, metadata: Mapping[str, str]) -> FileLayout:
    try:
        return FileLayout(
            dtype=dtypes.bare_name(metadata["dtype"]),
            shape=_integers(metadata["shape"]),
            strides=_integers(metadata["strides"]),
            storage_offset=int(metadata["storage_offset"]),
            storage_bytes=int(metadata["storage_bytes"]),
        )
    except KeyError as error:
        raise RunDirError(f"{path} was not written by aoti-debug: no {error} in its metadata", hint=_AGAIN) from error


def _integers(text: str) -> tuple[int, ...]:
    return json_data.from_data(tuple[int, ...], json_data.parse_value(text))


def _restore_dtype(path: Path, stored: torch.Tensor, layout: FileLayout) -> torch.Tensor:
    """Undoes how the runtime stores dtypes that safetensors has not: complex as pairs of reals, others as bytes."""
    import torch

    dtype = getattr(torch, layout.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise RunDirError(f"{path} holds {layout.dtype}, which torch {torch.__version__} has not")
    if stored.dtype != dtype:
        pairs = dtype.is_complex and stored.shape[-1:] == (2,)
        stored = torch.view_as_complex(stored) if pairs else stored.view(dtype)
    if stored.dtype != dtype or stored.numel() != math.prod(layout.shape):
        raise RunDirError(f"{path} is damaged: its metadata and its data do not agree", hint=_AGAIN)
    return stored.reshape(layout.shape)


def _extent(layout: FileLayout, item_bytes: int) -> int:
    """Bytes of a storage that the tensor fits in."""
    return max(layout.storage_bytes, (layout.storage_offset + reach(layout.shape, layout.strides)) * item_bytes)


def _storage(size: int, device: str) -> Any:
    """Zeroed memory; what no tensor covers is never touched, so it costs nothing on a CPU."""
    import torch

    return torch.zeros(size, dtype=torch.uint8, device=device).untyped_storage()


def _place(values: torch.Tensor, layout: FileLayout, storage: Any, offset: int) -> torch.Tensor:
    """A tensor of `layout` in `storage`, `offset` elements from its start, filled with `values`."""
    import torch

    target = torch.empty(0, dtype=values.dtype, device=storage.device)
    target.set_(storage, offset, layout.shape, layout.strides)
    if target.numel() == 0:
        return target
    source, slim = values, target
    for dim, stride in enumerate(layout.strides):
        if stride == 0 and layout.shape[dim] > 1:
            source, slim = source.narrow(dim, 0, 1), slim.narrow(dim, 0, 1)
    if _overlaps(slim):
        cells = sum(
            torch.arange(size).reshape([-1 if d == dim else 1 for d in range(slim.dim())]) * stride
            for dim, (size, stride) in enumerate(zip(slim.shape, slim.stride(), strict=True))
        )
        assert isinstance(cells, torch.Tensor)
        bits = _BITS[values.element_size()]  # indexing is not there for every dtype
        span = torch.empty(0, dtype=getattr(torch, bits), device=storage.device)
        span.set_(storage, offset, (int(cells.max()) + 1,), (1,))
        flat = source.contiguous().view(span.dtype).reshape(-1)
        span[cells.reshape(-1).to(span.device)] = flat.to(span.device)
    else:
        slim.copy_(source)
    return target


def _overlaps(tensor: torch.Tensor) -> bool:
    """Whether two elements may share an address."""
    reach = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def _sharing(values: Mapping[str, Tensor]) -> list[list[str]]:
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
    """Tensors of one storage. One whose address does not fit its dtype there gets a storage of its own."""
    start = min(value.storage_ptr for value, _ in group.values())
    contents = {name: load_values(path) for name, (_, path) in group.items()}
    where = device or next(iter(group.values()))[0].layout.device
    size = 0
    offsets: dict[str, int] = {}
    for name, (value, _) in group.items():
        values, layout = contents[name]
        distance, rest = divmod(value.data_ptr - start, values.element_size())
        if rest == 0:
            offsets[name] = distance
            shift = (distance - layout.storage_offset) * values.element_size()
            size = max(size, shift + _extent(layout, values.element_size()))
    shared = _storage(size, where)
    placed: dict[str, torch.Tensor] = {}
    for name, (values, layout) in contents.items():
        alone = name not in offsets
        storage = _storage(_extent(layout, values.element_size()), where) if alone else shared
        placed[name] = _place(values, layout, storage, layout.storage_offset if alone else offsets[name])
    return placed
