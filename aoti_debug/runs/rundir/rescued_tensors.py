"""Tensors that were rescued from a process that died (rescued.json): they count as saved by the run.

{"format": 1, "tensors": [{"launch": "0.3", "slot": 1, "bytes": 64, "hash": ["…", "…"], "path": "…", "reason": ""}]}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aoti_debug.base.abi import CallKind, Phase, SaveStatus
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import atomic_write, json_data
from aoti_debug.runs.rundir.formats import weight_reference
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey, TensorFile

NAME = "rescued.json"
FORMAT = 1


@dataclass(frozen=True)
class _Tensor:
    launch: str
    slot: int
    bytes: int
    hash: tuple[str, str]  # hexadecimal
    path: str
    reason: str


@dataclass(frozen=True)
class _Index:
    format: int
    tensors: tuple[_Tensor, ...]


def read(run: Path) -> tuple[TensorFile, ...]:
    """Reads rescued.json; empty if nothing was rescued.

    Raises:
        RunDirError: the file is damaged.
    """
    hint = "without this file the run opens with the tensors that it saved itself"
    try:
        return json_data.read_file(run, NAME, _records, format_=FORMAT, hint=hint)
    except FileNotFoundError:
        return ()


def _records(data: Mapping[str, Any]) -> tuple[TensorFile, ...]:
    return tuple(_record(tensor) for tensor in json_data.from_data(_Index, data).tensors)


def write(run: Path, tensors: Sequence[TensorFile]) -> None:
    """Replaces rescued.json atomically.

    Raises:
        OSError: it cannot be written.
    """
    atomic_write.write(run / NAME, json_data.to_text(_Index(FORMAT, tuple(map(_to_json, tensors)))) + "\n")


def _to_json(tensor: TensorFile) -> _Tensor:
    first, second = (f"{part:016x}" for part in tensor.hash)
    return _Tensor(str(tensor.key), tensor.slot, tensor.bytes, (first, second), tensor.path, tensor.reason)


def _record(tensor: _Tensor) -> TensorFile:
    """The inverse of `_to_json`.

    Raises:
        ValueError: the launch or the hash is malformed.
    """
    call, _, launch = tensor.launch.rpartition(".")
    kind = CallKind.CONSTANT if call.startswith("c") else CallKind.MODEL
    first, second = (int(part, 16) for part in tensor.hash)
    kept = SaveStatus.REFERRED if weight_reference.is_reference(Path(tensor.path)) else SaveStatus.WRITTEN
    return TensorFile(
        time_ns=0,
        thread=0,
        key=LaunchKey(kind, int(call.removeprefix("c")), int(launch)),
        slot=tensor.slot,
        phase=Phase.BEFORE,
        status=SaveStatus.SKIPPED if tensor.reason else kept,
        bytes=tensor.bytes,
        hash=(first, second),
        path=tensor.path,
        reason=tensor.reason,
    )
