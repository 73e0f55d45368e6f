"""Loads a model of a package, with weights that lie beside it."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path
from typing import Any

from aoti_debug.machine import cache
from aoti_debug.pt2 import compatibility
from aoti_debug.pt2.archive import AOTINDUCTOR, WEIGHTS_CONFIG, Artifact

_NO_STEM = "File not found: _metadata.json"


def load(package: Artifact, model: str, device: str) -> Any:
    """The model as torch loads it, on the current device.

    A torch that finds the model's files by the name of its C++ source (2.11) loads no package from which that source
    was taken out; such a package gets an empty one.

    Raises:
        ArtifactError: it was compiled for another GPU.
    """
    if device == "cuda":
        compatibility.check_this_gpu(package, f"{AOTINDUCTOR}{model}/")
    try:
        return _load(package, package.path, model)
    except RuntimeError as error:
        if _NO_STEM not in str(error) or package.wrapper_sources(model):
            raise
    with cache.scratch() as work:
        return _load(package, with_empty_source(package, model, work), model)


def with_empty_source(package: Artifact, model: str, directory: Path) -> Path:
    """A copy of the package in which an empty C++ source lies beside each library of a model."""
    copy = directory / package.path.name
    shutil.copyfile(package.path, copy)
    folder = f"{AOTINDUCTOR}{model}/"
    with zipfile.ZipFile(copy, "a") as archive:
        for name in package.members:
            if name.startswith(folder) and name.endswith(".so"):
                archive.writestr(f"{package.root}/{name.removesuffix('.so')}.cpp", "")
    return copy


def _load(package: Artifact, path: Path, model: str) -> Any:
    from torch._inductor.package import load_package

    if f"{AOTINDUCTOR}{model}/{WEIGHTS_CONFIG}" in package.members:
        from torch.export.pt2_archive._package import load_pt2

        return load_pt2(str(path), load_weights_from_disk=True).aoti_runners[model]
    return load_package(str(path), model_name=model)
