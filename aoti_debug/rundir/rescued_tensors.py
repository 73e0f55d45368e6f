"""Tensors that were rescued from a process that died (rescued.json): they count as saved by the run.

{"format": 1, "tensors": [{"launch": "0.3", "slot": 1, "bytes": 64, "hash": ["…", "…"], "path": "…", "reason": ""}]}
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from aoti_debug.abi import CallKind, Phase, SaveStatus
from aoti_debug.errors import RunDirError
from aoti_debug.rundir.records import LaunchKey, TensorFile

NAME = "rescued.json"
FORMAT = 1


def read(run: Path) -> tuple[TensorFile, ...]:
    """Empty where nothing was rescued.

    Raises:
        RunDirError: the file is damaged.
    """
    path = run / NAME
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] != FORMAT:
            raise RunDirError(f"{path} has format {found['format']}; this aoti-debug reads format {FORMAT}")
        return tuple(_record(tensor) for tensor in found["tensors"])
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise RunDirError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise RunDirError(f"{path} is damaged: {error}", hint="without this file the run opens as it was") from error


def write(run: Path, tensors: Sequence[TensorFile]) -> None:
    """In one step.

    Raises:
        OSError: it cannot be written.
    """
    described = [
        {
            "launch": str(tensor.key),
            "slot": tensor.slot,
            "bytes": tensor.bytes,
            "hash": [f"{part:016x}" for part in tensor.hash],
            "path": tensor.path,
            "reason": tensor.reason,
        }
        for tensor in tensors
    ]
    text = json.dumps({"format": FORMAT, "tensors": described}, indent=1)
    temporary = run / f".{NAME}.{os.getpid()}"
    try:
        temporary.write_text(text + "\n", encoding="utf-8")
        temporary.replace(run / NAME)
    finally:
        temporary.unlink(missing_ok=True)


def _record(tensor: dict[str, object]) -> TensorFile:
    call, _, launch = str(tensor["launch"]).rpartition(".")
    kind = CallKind.CONSTANT if call.startswith("c") else CallKind.MODEL
    first, second = (int(part, 16) for part in tensor["hash"])  # type: ignore[attr-defined]
    status = SaveStatus.SKIPPED if tensor["reason"] else SaveStatus.WRITTEN
    return TensorFile(
        time_ns=0,
        thread=0,
        key=LaunchKey(kind, int(call.removeprefix("c")), int(launch)),
        slot=int(str(tensor["slot"])),
        phase=Phase.BEFORE,
        status=status,
        bytes=int(str(tensor["bytes"])),
        hash=(first, second),
        path=str(tensor["path"]),
        reason=str(tensor["reason"]),
    )
