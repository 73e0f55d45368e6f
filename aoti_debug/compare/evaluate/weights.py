"""The weights of an exported program, mapped from its archive when they are used. Runs in a child process.

The system reads what is used, and drops it when memory is scarce. What is overwritten is copied page by page; the
archive does not change.
"""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from aoti_debug.base import dtypes, wording
from aoti_debug.package.pt2 import load_program
from aoti_debug.package.pt2.program_weights import StoredWeight, mapped, stored_weights
from aoti_debug.package.reference.program import Node, TensorType

if TYPE_CHECKING:
    import torch


class ExportedWeights:
    """The weights of an exported program.

    Args:
        exported: the program; None if it is not known.

    Attributes:
        failure: why the program could not be loaded; "" if it was, or was not asked for.
    """

    def __init__(self, exported: Path | None) -> None:
        self._exported = exported
        self.failure = ""

    def value(self, node: Node) -> torch.Tensor | None:
        """The value of a weight as the program begins with it; None if it is not known, or of another type."""
        import torch

        type_ = node.types[0] if len(node.types) == 1 else None
        if self._exported is None or type_ is None:
            return None
        stored = self._stored.get(node.target)
        value = self._loaded.get(node.target) if stored is None else mapped(self._exported, stored)
        if not isinstance(value, torch.Tensor):
            return None
        return value.detach() if has_type(value, type_) else None

    @cached_property
    def _stored(self) -> Mapping[str, StoredWeight]:
        with contextlib.suppress(OSError, zipfile.BadZipFile):
            return {} if self._exported is None else stored_weights(self._exported)
        return {}

    @cached_property
    def _loaded(self) -> Mapping[str, object]:
        """All weights, read by torch: those that cannot be mapped are among them."""
        try:
            program = load_program.load(str(self._exported))
        except Exception as error:  # noqa: BLE001 - loading runs code of torch, and of the program's operators
            self.failure = (
                f"{self._exported} cannot be loaded: {wording.first_line(str(error)) or type(error).__name__}"
            )
            return {}
        return {**program.constants, **program.state_dict}


def has_type(value: torch.Tensor, type_: TensorType) -> bool:
    """True if a tensor has the dtype and the shape of a type."""
    return (dtypes.bare_name(value.dtype), tuple(map(str, value.shape))) == (type_.dtype, type_.shape)
