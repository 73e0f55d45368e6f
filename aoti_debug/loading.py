"""Loads a model of a package, with weights that lie beside it."""

from __future__ import annotations

from typing import Any

from aoti_debug import compiled_for
from aoti_debug.artifact import AOTINDUCTOR, WEIGHTS_CONFIG, Artifact


def load(package: Artifact, model: str, device: str) -> Any:
    """The model as torch loads it.

    Raises:
        ArtifactError: it was compiled for another GPU.
    """
    from torch._inductor.package import load_package

    folder = f"{AOTINDUCTOR}{model}/"
    if device == "cuda":
        compiled_for.check_this_gpu(package, folder)
    if f"{folder}{WEIGHTS_CONFIG}" in package.members:
        from torch.export.pt2_archive._package import load_pt2

        return load_pt2(str(package.path), load_weights_from_disk=True).aoti_runners[model]
    return load_package(str(package.path), model_name=model)
