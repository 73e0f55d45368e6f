"""Checks, before a package is loaded, that there is room for it: in temporary files, memory and a GPU's memory.

So is the disk of a run that saves tensors. Only what cannot go well is refused: what a model allocates while it runs is
not known, nor the sizes of tensors that depend on the inputs.
"""

from __future__ import annotations

import math
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from aoti_debug.base import dtypes, wording
from aoti_debug.base.abi import Variable
from aoti_debug.base.errors import TargetError
from aoti_debug.base.machine import exhaustion
from aoti_debug.package import weights_file
from aoti_debug.package.manifest import Form, Manifest
from aoti_debug.package.pt2.archive import AOTINDUCTOR, DAMAGED, INPUTS_MEMBER, unreadable
from aoti_debug.package.recording_settings import SiteFilter
from aoti_debug.package.weights_file import LARGE, REFERRED

_SHARED = Path("/dev/shm")
_MODEL = "run_impl"
_KEPT_FREE = "1G"  # room that the runtime leaves on the disk
# Variables that limit what is saved, or choose launches by their numbers: what is certain is not known then.
_NARROWING = (Variable.LAUNCH, Variable.RANKS, Variable.MAX_BYTES, Variable.MAX_FILES, Variable.MAX_TENSOR_BYTES)
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
    exhaustion.require_disk(temporary, what, hint="TMPDIR names a folder on another disk", reserved=0)
    shared = _flight_bytes(manifest, environment)
    if shared is not None and _SHARED.is_dir():
        hint = f"a smaller {Variable.FLIGHT_BYTES.value} keeps fewer inputs"
        exhaustion.require_disk([(_SHARED, shared)], f"the flight recorder of {what}", hint=hint, reserved=0)
    if manifest.device == "cpu":  # what a GPU gets is read in parts
        members = (weights_file.MEMBER, *(() if inputs else (INPUTS_MEMBER,)))
        files = [path for path in (inputs, weights) if path is not None and path.suffix == ".pt"]
        read = sum(sizes.get(member, 0) for member in members) + sum(path.stat().st_size for path in files)
        exhaustion.require_memory(read, what, hint="end other programs, or pass smaller inputs with --inputs")


def require_for_tensors(run: Path, package: Path, manifest: Manifest, environment: Mapping[str, str]) -> None:
    """Checks that the disk of a run at level 1 has room for what it is certain to save.

    Args:
        run: its directory.
        environment: of the process that the package runs in.

    Raises:
        TargetError: it has not; the message has both numbers, the hint what would help.
    """
    if any(environment.get(variable.value) for variable in _NARROWING):
        return
    weights, others = bytes_to_save(manifest, _chosen(manifest, environment), environment.get(Variable.PHASE.value, ""))
    left = _bytes_in(environment.get(Variable.KEEP_FREE_BYTES.value, _KEPT_FREE)) or 0
    free = shutil.disk_usage(run).free
    if weights + others + left <= free:
        return
    sizes = [wording.byte_size(size) for size in (weights + others, free, left)]
    by_reference = ", a package that is built with --weights by-reference copies no weights" if weights > LARGE else ""
    raise TargetError(
        f"a run at level 1 of {package.name} saves at least {sizes[0]} of tensors; on the disk of {run.parent} "
        f"{sizes[1]} are free, of which AOTI_DEBUG_KEEP_FREE_BYTES leaves {sizes[2]}",
        hint=f"--filter or --module chooses launches, --out names a folder on another disk{by_reference}",
    )


def bytes_to_save(manifest: Manifest, chosen: SiteFilter, phase: str) -> tuple[int, int]:
    """The bytes of weights and of other tensors that a run at level 1 saves at least.

    Each tensor counts once: it is a link to an equal file if it is saved again. Left out are those of which the package
    does not say the size, views, what the run refers to, and launches of branches and loops, which may not happen.

    Args:
        phase: "before", "after" or "both"; "" for the level's own choice.
    """
    referred = {
        *(manifest.weights.names if manifest.weights else ()),
        *(manifest.packed.begins if manifest.packed else ()),
    }
    of_weights = {c.name: _bytes_of(c.dtype, c.shape) for c in manifest.constants}
    of_others = {p.name: _bytes_of(p.dtype, p.sizes) for p in manifest.promises if p.function == _MODEL}
    saved = {
        argument.name
        for site in manifest.sites
        if site.function == _MODEL and not site.subgraph and not site.loops and chosen.selects(site)
        for argument in site.args
        if argument.base in ("", argument.name) and not (phase == "before" and argument.form is Form.OUTPUT_SLOT)
    }
    weights = sum(
        size for name, size in of_weights.items() if name in saved and not (name in referred and size > REFERRED)
    )
    return weights, sum(size for name, size in of_others.items() if name in saved and name not in of_weights)


def _bytes_of(dtype: str, sizes: Sequence[int | str]) -> int:
    """The bytes of a tensor; 0 if its sizes are no numbers, or its dtype is not known."""
    known = dtypes.of_name(dtype)
    numbers = [int(size) for size in sizes if str(size).isdecimal()]
    return math.prod(numbers) * known.item_bytes if known is not None and len(numbers) == len(sizes) else 0


def _chosen(manifest: Manifest, environment: Mapping[str, str]) -> SiteFilter:
    """The launch sites that a run records: by the environment or, where it says nothing, by the package."""
    baked = (manifest.filters, manifest.module_filters, manifest.line_filters)
    given = [environment.get(variable.value) for variable in (Variable.FILTER, Variable.MODULE, Variable.LINE)]
    lists = [
        of_package if text is None else tuple(word for word in text.split(",") if word)
        for of_package, text in zip(baked, given, strict=True)
    ]
    return SiteFilter(*lists)


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
    if manifest.device != "cuda" or environment.get(Variable.FLIGHT.value, "0") == "0":
        return None
    return _bytes_in(environment.get(Variable.FLIGHT_BYTES.value, ""))


def _bytes_in(text: str) -> int | None:
    """A number of bytes as the runtime reads it, "2G"; None if it is none: the runtime says so."""
    text = text.upper()
    number, unit = (text[:-1], text[-1:]) if text[-1:] in _UNITS and text[-1:] else (text, "")
    return int(number) << _UNITS[unit] if number.isdecimal() else None


def _sizes(package: Path) -> dict[str, int]:
    """The bytes of each member, by its name below the archive's root.

    Raises:
        ArtifactError: the archive is damaged.
    """
    try:
        with zipfile.ZipFile(package) as archive:
            return {info.filename.partition("/")[2]: info.file_size for info in archive.infolist()}
    except (*DAMAGED, OSError) as error:
        raise unreadable(str(package), error) from error
