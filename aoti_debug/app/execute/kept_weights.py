"""The weights that a script gives a model after it was loaded, in files that outlive its process."""

from __future__ import annotations

import itertools
import shutil
import threading
import weakref
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import json_data
from aoti_debug.package import weights_file
from aoti_debug.package.inputs.validate import is_parameter
from aoti_debug.package.pt2 import archive, trust

_SWAP = "swap_constant_buffer"
_FREE = "free_inactive_constant_buffer"
_FROM_FILE = "update_constant_buffer_from_blob"  # whose path torch reads
_FROM_CPU = "_from_cpu"  # ends the name of a method that takes weights of a GPU on the CPU
_FILES = 8  # of one model; the oldest one is deleted, unless it is in force
_LARGEST = 1 << 30  # bytes that are kept, unless all calls are to be kept
_STATE = "weights-*.json"


@dataclass(frozen=True)
class WeightsChange:
    """Weights that a method of a loader has set.

    Attributes:
        names: of the weights.
        is_copied: torch has copied it from the other buffer; it does so of all weights but parameters.
    """

    file: str
    names: tuple[str, ...]
    is_copied: bool = False


@dataclass(frozen=True)
class WeightsInForce:
    """The weights in force in a buffer.

    Attributes:
        changes: in their order; None if some were not kept.
        is_whole: what no change sets is as in the package; else torch leaves parameters that none sets without memory.
    """

    changes: tuple[WeightsChange, ...] | None
    is_whole: bool

    def with_change(self, change: WeightsChange | None) -> WeightsInForce:
        """The weights after a change, without earlier ones of which it leaves nothing; None: one that was not kept."""
        if change is None or self.changes is None:
            return replace(self, changes=None)
        before = (one for one in dict.fromkeys(self.changes) if not set(one.names) <= set(change.names))
        return replace(self, changes=(*before, change))

    def with_copies_of(self, other: WeightsInForce) -> WeightsInForce:
        """The weights after torch has copied what it copies of the other buffer."""
        if self.changes is None or other.changes is None:
            return replace(self, changes=None)
        copied = tuple(replace(one, is_copied=True) for one in other.changes)
        return replace(self, changes=(*(one for one in self.changes if one not in copied), *copied))

    def exchanged(self, change: WeightsChange, other: WeightsChange | None) -> WeightsInForce:
        """The weights with another change in the place of one; None: one that was not kept."""
        if self.changes is None or all(one.file != change.file for one in self.changes):
            return self
        if other is None:
            return replace(self, changes=None)
        found = (replace(other, is_copied=one.is_copied) if one.file == change.file else one for one in self.changes)
        return replace(self, changes=tuple(found))

    @property
    def is_of_package(self) -> bool:
        """True if nothing was set."""
        return self.is_whole and self.changes == ()

    @property
    def names(self) -> frozenset[str]:
        """The names of what was set, as far as it is known."""
        return frozenset().union(*(change.names for change in self.changes or ()))


_EMPTY = WeightsInForce((), is_whole=False)  # of a buffer without memory


@dataclass(frozen=True)
class _State:
    """The weights in force from a call on, which is given by its number."""

    call: int
    weights: WeightsInForce


class _Watched:
    """Tensors of the script that a model uses themselves. It does not keep them alive, as torch does not.

    Args:
        change: in which they were set.
        method: of the loader that has set them.
    """

    def __init__(self, change: WeightsChange, method: str, tensors: Mapping[str, Any]) -> None:
        self.change = change
        self.method = method
        versions = {name: tensor._version for name, tensor in tensors.items() if not tensor.is_inference()}
        self._known = {name: (weakref.ref(tensors[name]), version) for name, version in versions.items()}

    @property
    def is_changed(self) -> bool:
        """True if an operation of torch has written to one since it was kept."""
        known = ((reference(), version) for reference, version in self._known.values())
        return any(tensor is not None and tensor._version != version for tensor, version in known)

    def tensors(self) -> dict[str, Any]:
        """Those that are still there, by name."""
        return {name: tensor for name, (reference, _) in self._known.items() if (tensor := reference()) is not None}


class GivenWeights:
    """Keeps the weights that one loaded model is given. Any thread may call it.

    Args:
        folder: for the files.
        keeps_all: also of more than a GiB.
    """

    def __init__(self, folder: Path, *, keeps_all: bool) -> None:
        self._folder = folder
        self._keeps_all = keeps_all
        self._active = WeightsInForce((), is_whole=True)
        self._inactive = _EMPTY
        self._files: list[str] = []
        self._numbers = itertools.count()
        self._watched: list[_Watched] = []
        self._is_told = True
        self._lock = threading.Lock()

    def changed(self, method: str, tensors: Mapping[str, Any], *, inactive: bool, in_place: bool = False) -> None:
        """Keeps what a method of a loader has set.

        Args:
            inactive: in the buffer that the model does not use now; torch copies what is not set, but no parameters,
                from the other one.
            in_place: the model uses these tensors themselves, also after the script has changed them; else it copies
                their memory, and of views too much.
        """
        with self._lock:
            self._is_told = False
            if method == _SWAP:
                self._active, self._inactive = self._inactive, self._active
                return
            if method == _FREE:  # as before anything was set in it
                self._inactive = _EMPTY
                return
            if method == _FROM_FILE:
                self._active = self._active.with_change(None)
                return
            kept = self._kept(method, tensors, in_place=in_place)
            if in_place and kept is not None and self._keeps_all:
                self._watched.append(_Watched(kept, method, tensors))
            if inactive:
                self._inactive = self._inactive.with_copies_of(self._active).with_change(kept)
            else:
                self._active = self._active.with_change(kept)

    def tell(self, folder: Path, call: int) -> None:
        """Writes down what is in force from a call on, into the folder of the model's calls."""
        if self._is_told and not any(watched.is_changed for watched in tuple(self._watched)):
            return
        with self._lock:
            for watched in [watched for watched in self._watched if watched.is_changed]:
                self._keep_again(watched)
            if not self._is_told:
                path = folder / _STATE.replace("*", str(call))
                path.write_text(json_data.to_text(_State(call, self._active)), encoding="utf-8")
                self._is_told = True

    def _keep_again(self, watched: _Watched) -> None:
        """Keeps tensors that the model uses themselves as the script has changed them."""
        self._is_told = False
        tensors = watched.tensors()
        self._watched.remove(watched)
        kept = self._kept(watched.method, tensors, in_place=True) if len(tensors) == len(watched.change.names) else None
        self._active, self._inactive = (w.exchanged(watched.change, kept) for w in (self._active, self._inactive))
        if kept is not None:
            self._watched.append(_Watched(kept, watched.method, tensors))

    def _kept(self, method: str, tensors: Mapping[str, Any], *, in_place: bool) -> WeightsChange | None:
        """The change; None if there is no room, or it is too large."""
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
        in_force = {change.file for weights in (self._active, self._inactive) for change in weights.changes or ()}
        for file in [file for file in self._files[:-_FILES] if file not in in_force]:
            self._files.remove(file)
            Path(file).unlink(missing_ok=True)
        return WeightsChange(str(path), tuple(tensors))


def of_call(folder: Path, call: int) -> WeightsInForce | None:
    """The weights that were in force in a call; None where some were not kept.

    Args:
        folder: of the model's calls.
    """
    states = [json_data.parse(_State, path.read_bytes()) for path in folder.glob(_STATE)]
    state = max((state for state in states if state.call <= call), key=lambda state: state.call, default=None)
    weights = WeightsInForce((), is_whole=True) if state is None else state.weights
    is_kept = weights.changes is not None and all(Path(change.file).exists() for change in weights.changes)
    return weights if is_kept else None


def with_weights(package: Path, weights: WeightsInForce, output: Path) -> Path:
    """Writes a copy of an instrumented package whose model is given weights when it is loaded.

    Raises:
        OSError: there is no room.
    """
    import torch

    shutil.copyfile(package, output)
    inspected = archive.inspect(package)
    parameters = {
        name for one in inspected.manifest().constants if is_parameter(one) for name in (one.name, one.fqn) if name
    }
    loaded = []
    for change in weights.changes or ():
        data = torch.load(change.file, weights_only=True)
        kept = {n: tensor for n, tensor in data["tensors"].items() if not (change.is_copied and n in parameters)}
        loaded.append({**data, "tensors": kept})
    with (
        zipfile.ZipFile(output, "a") as file,
        file.open(f"{inspected.root}/{weights_file.REPLACED}", "w") as member,
    ):
        torch.save({"changes": loaded, "is_whole": weights.is_whole}, member)
    trust.remember(archive.inspect(output))
    return output
