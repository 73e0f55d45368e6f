"""Reads the weights that a package refers to: they are mapped from the file of its exported program."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from aoti_debug.base.errors import ArtifactError
from aoti_debug.package import weights_file
from aoti_debug.package.pt2.archive import Artifact
from aoti_debug.package.pt2.program_weights import mapped, stored_weights
from aoti_debug.package.weights_file import WeightsFile

if TYPE_CHECKING:
    import torch


def read(package: Artifact, weights: WeightsFile, device: str) -> Mapping[str, torch.Tensor]:
    """The weights of the package's model, by their names in it.

    On the CPU they are mapped: nothing is read before it is used, and what is overwritten is copied page by page.

    Args:
        device: "cpu" or "cuda"; the current device gets a copy of the weights that the model has on a GPU.

    Raises:
        ArtifactError: the file lacks one of them.
    """
    import torch

    here = f"cuda:{torch.cuda.current_device()}" if device == "cuda" else device
    others = io.BytesIO(package.read(weights_file.MEMBER))
    found: dict[str, torch.Tensor] = torch.load(
        others, weights_only=True, map_location=lambda storage, place: storage if place == "cpu" else storage.cuda()
    )
    path = Path(weights.path)
    stored = stored_weights(path)
    for name, attribute in weights.names.items():
        if attribute not in stored:
            raise ArtifactError(f"{path} has no weight {attribute} that can be mapped", hint="build the package again")
        found[name] = mapped(path, stored[attribute]).to(here)
    return found
