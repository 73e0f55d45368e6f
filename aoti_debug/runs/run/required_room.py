"""Checks, before a package is loaded, that there is room for it: in temporary files, memory and a GPU's memory.

Only what cannot go well is refused: what a model allocates while it runs is not known.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping
from pathlib import Path

from aoti_debug.base import dtypes, wording
from aoti_debug.base.abi import Variable
from aoti_debug.base.errors import ArtifactError, TargetError
from aoti_debug.base.machine.files import free_space
from aoti_debug.package import weights_file
from aoti_debug.package.manifest import Manifest
from aoti_debug.package.pt2.archive import AOTINDUCTOR, DAMAGED, INPUTS_MEMBER

_SHARED = Path("/dev/shm")
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def require(
    package: Path,
    manifest: Manifest,
    environment: Mapping[str, str],
    *,
    inputs: Path | None = None,
    weights: Path | None = None,
) -> None:
    """Checks that the host has room for a run.

    Args:
        inputs: their file; None for those in the package.
        weights: a file of tensors that take the place of weights.
        environment: of the process that the package runs in.

    Raises:
        TargetError: it has not; the message has both numbers, the hint what would help.
        ArtifactError: the package is damaged.
    """
    what, sizes = f"running {package.name}", _sizes(package)
    folder = f"{AOTINDUCTOR}{manifest.model}/"
    unpacked = sum(size for name, size in sizes.items() if name.startswith(folder))
    temporary = [(Path(environment["TMPDIR"]), unpacked)]
    free_space.require_disk(temporary, what, hint="TMPDIR names a folder on another disk", reserved=0)
    shared = _flight_bytes(manifest, environment)
    if shared is not None and _SHARED.is_dir():
        hint = f"a smaller {Variable.FLIGHT_BYTES.value} keeps fewer inputs"
        free_space.require_disk([(_SHARED, shared)], f"the flight recorder of {what}", hint=hint, reserved=0)
    if manifest.device == "cpu":  # what a GPU gets is read in parts
        members = (weights_file.MEMBER, *(() if inputs else (INPUTS_MEMBER,)))
        files = [path for path in (inputs, weights) if path is not None and path.suffix == ".pt"]
        read = sum(sizes.get(member, 0) for member in members) + sum(path.stat().st_size for path in files)
        free_space.require_memory(read, what, hint="end other programs, or pass smaller inputs with --inputs")


def require_on_device(manifest: Manifest, free: int, total: int, device: str) -> None:
    """Checks that a GPU has room for the weights of a model.

    Args:
        free, total: bytes of its memory.
        device: its name: "cuda:0".

    Raises:
        TargetError: it has not.
    """
    needed = bytes_on_device(manifest)
    if needed <= free:
        return
    sizes = [wording.byte_size(size) for size in (needed, free, total)]
    raise TargetError(
        f"the weights of the model need {sizes[0]} of the memory of {device}, and {sizes[1]} of {sizes[2]} are free",
        hint="nvidia-smi shows what uses the device; CUDA_VISIBLE_DEVICES names another one",
    )


def bytes_on_device(manifest: Manifest) -> int:
    """The bytes that the weights of a model take at least, as far as their dtypes are known.

    Those of one attribute of the program count once.
    """
    sizes: dict[str, int] = {}
    for constant in manifest.constants:
        known = dtypes.of_name(constant.dtype)
        if known is not None and not constant.folded:
            sizes[constant.fqn or constant.name] = math.prod(constant.shape) * known.item_bytes
    return sum(sizes.values())


def _flight_bytes(manifest: Manifest, environment: Mapping[str, str]) -> int | None:
    """The shared memory that a flight recorder takes at once; None if it takes what is there, or as it needs it."""
    text = environment.get(Variable.FLIGHT_BYTES.value, "").upper()
    number, unit = (text[:-1], text[-1:]) if text[-1:] in _UNITS and text[-1:] else (text, "")
    if manifest.device != "cuda" or environment.get(Variable.FLIGHT.value, "0") == "0" or not number.isdecimal():
        return None
    return int(number) << _UNITS[unit]


def _sizes(package: Path) -> dict[str, int]:
    """The bytes of each member, by its name below the archive's root.

    Raises:
        ArtifactError: the archive is damaged.
    """
    try:
        with zipfile.ZipFile(package) as archive:
            return {info.filename.partition("/")[2]: info.file_size for info in archive.infolist()}
    except (*DAMAGED, OSError) as error:
        raise ArtifactError(f"{package} is damaged: {error}", hint="copy or build it again") from error
