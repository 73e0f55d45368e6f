"""Keeps weights out of the archive that Inductor writes: files of weights stay where they are, tensors are returned."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from aoti_debug.instrument.frontend.protocol.messages import WEIGHTS_OBJECT, is_weights
from aoti_debug.instrument.frontend.worker.position_file import replaced


class KeptWeights:
    """The weights that were kept out of an archive.

    Attributes:
        tensors: the constants, by their names in the package; empty where Inductor wrote them to files.
        files: those of Inductor.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, Any] = {}
        self.files: list[Path] = []

    def take(self, file: Any) -> bool:
        """True for weights, which are kept."""
        if isinstance(file, str):
            if is_weights(file):
                self.files.append(Path(file))
            return is_weights(file)
        self.tensors.update({name: tensor for name, (tensor, _) in file.items()})
        return True

    def move_files(self, folder: Path) -> None:
        """Moves the files to a folder.

        Inductor does not name the object with the size of weights that are mapped: the newest one below their folder.
        """
        mapped = [file for file in self.files if not file.name.endswith(WEIGHTS_OBJECT)]
        for file in mapped:
            objects = file.parent.rglob(f"*{WEIGHTS_OBJECT}")
            self.files.append(max(objects, key=lambda path: path.stat().st_mtime_ns))
        for file in self.files:
            shutil.move(file, folder / file.name)


@contextlib.contextmanager
def without_weights() -> Iterator[KeptWeights]:
    """Archives that are written inside the `with` get no weights; these are yielded."""
    import torch._inductor.package

    kept = KeptWeights()

    def wrap(package_aoti: Callable[..., Any]) -> Callable[..., Any]:
        return lambda path, files: package_aoti(path, [file for file in files if not kept.take(file)])

    with replaced(torch._inductor.package, "package_aoti", wrap):
        yield kept


def stored_names(program: Any, constants: Mapping[str, Any]) -> dict[str, str]:
    """The attribute of the program that holds each constant, by the constant's name; others are left out.

    A constant is known by its memory: Inductor hands on the tensors that it was given, unless it has made new ones.
    """
    import torch

    held = {**program.state_dict, **program.constants}
    attributes = {
        _place(tensor): name for name, tensor in held.items() if type(tensor) in (torch.Tensor, torch.nn.Parameter)
    }
    found = {name: attributes.get(_place(tensor)) for name, tensor in constants.items() if tensor.numel()}
    return {name: attribute for name, attribute in found.items() if attribute is not None}


def _place(tensor: Any) -> tuple[Any, ...]:
    if tensor.is_mkldnn:
        return (id(tensor),)
    return (tensor.device, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
