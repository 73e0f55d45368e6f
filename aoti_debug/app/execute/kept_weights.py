"""The weights that a script gives a model after it was loaded, in files that outlive its process."""

from __future__ import annotations

import itertools
import shutil
import threading
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import json_data
from aoti_debug.package import weights_file
from aoti_debug.package.pt2 import archive, trust

_SWAP = "swap_constant_buffer"
_FROM_CPU = "_from_cpu"  # ends the name of a method that takes weights of a GPU on the CPU
_FILES = 8  # of one model; the oldest one is deleted, unless it is in force
_LARGEST = 1 << 30  # bytes that are kept, unless all calls are to be kept
_STATE = "weights-*.json"


@dataclass(frozen=True)
class _State:
    """What is in force from a call on.

    Attributes:
        call: its number.
        files: of changes, in their order; None if some were not kept.
    """

    call: int
    files: tuple[str, ...] | None


class GivenWeights:
    """Keeps the weights that one loaded model is given. Any thread may call it.

    Args:
        folder: for the files.
        keeps_all: also of more than a GiB.
    """

    def __init__(self, folder: Path, *, keeps_all: bool) -> None:
        self._folder = folder
        self._keeps_all = keeps_all
        self._active: tuple[str, ...] | None = ()
        self._inactive: tuple[str, ...] | None = ()
        self._files: list[str] = []
        self._numbers = itertools.count()
        self._is_told = True
        self._lock = threading.Lock()

    def changed(self, method: str, tensors: Mapping[str, Any], *, inactive: bool, in_place: bool = False) -> None:
        """Keeps what a method of a loader has set.

        Args:
            inactive: in the buffer that the model does not use now; what is not set is as in the other one.
            in_place: the model uses these tensors themselves; else it copies their memory, and of views too much.
        """
        with self._lock:
            self._is_told = False
            if method == _SWAP:
                self._active, self._inactive = self._inactive, self._active
                return
            kept = self._kept(method, tensors, in_place=in_place)
            changed = None if kept is None or self._active is None else (*self._active, kept)
            if inactive:
                self._inactive = changed
            else:
                self._active = changed

    def tell(self, folder: Path, call: int) -> None:
        """Writes down what is in force from a call on, into the folder of the model's calls."""
        if self._is_told:
            return
        with self._lock:
            if not self._is_told:
                path = folder / _STATE.replace("*", str(call))
                path.write_text(json_data.to_text(_State(call, self._active)), encoding="utf-8")
                self._is_told = True

    def _kept(self, method: str, tensors: Mapping[str, Any], *, in_place: bool) -> str | None:
        """The file of a change; None if there is no room, or it is too large."""
        import torch

        if not self._keeps_all and sum(tensor.nbytes for tensor in tensors.values()) > _LARGEST:
            return None
        path = self._folder / f"{next(self._numbers)}.pt"
        plain = {name: tensor.detach() for name, tensor in tensors.items()}
        if method.endswith(_FROM_CPU):
            plain = {name: tensor.cuda() for name, tensor in plain.items()}
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if in_place:  # without what they may be views of
                plain = {name: tensor.clone() for name, tensor in plain.items()}
            torch.save({"method": method.removesuffix(_FROM_CPU), "tensors": plain}, path)
        except (OSError, RuntimeError):  # a full disk; the script goes on
            path.unlink(missing_ok=True)
            return None
        self._files.append(str(path))
        in_force = {*(self._active or ()), *(self._inactive or ())}
        for file in [file for file in self._files[:-_FILES] if file not in in_force]:
            self._files.remove(file)
            Path(file).unlink(missing_ok=True)
        return str(path)


def of_call(folder: Path, call: int) -> tuple[Path, ...] | None:
    """The files of the changes that were in force in a call; None where some were not kept.

    Args:
        folder: of the model's calls.
    """
    states = [json_data.parse(_State, path.read_bytes()) for path in folder.glob(_STATE)]
    state = max((state for state in states if state.call <= call), key=lambda state: state.call, default=None)
    files = () if state is None else state.files
    found = None if files is None else tuple(map(Path, files))
    return found if found is None or all(file.exists() for file in found) else None


def names_of(changes: tuple[Path, ...]) -> frozenset[str]:
    """The names of the weights that changes set, as the package has them."""
    import torch

    loaded = (torch.load(file, weights_only=True, mmap=True) for file in changes)
    return frozenset(name for change in loaded for name in change["tensors"])


def with_weights(package: Path, changes: tuple[Path, ...], output: Path) -> Path:
    """Writes a copy of an instrumented package whose model is given weights when it is loaded.

    Raises:
        OSError: there is no room.
    """
    import torch

    shutil.copyfile(package, output)
    root = archive.inspect(package).root
    loaded = [torch.load(file, weights_only=True) for file in changes]
    with zipfile.ZipFile(output, "a") as file, file.open(f"{root}/{weights_file.REPLACED}", "w") as member:
        torch.save(loaded, member)
    trust.remember(archive.inspect(output))
    return output
