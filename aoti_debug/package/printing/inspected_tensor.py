"""Parts of inspectors that import no torch: the place of a tensor, the registration of their operators."""

from __future__ import annotations

import importlib

from aoti_debug.base.frozen import dataclass


def register() -> None:
    """Registers `aoti_debug::print_` and `aoti_debug::inspect_`; imports torch."""
    importlib.import_module("aoti_debug.package.printing.inspectors")


@dataclass(frozen=True)
class InspectedTensor:
    """The place of a tensor that an inspector in a model is called on.

    Attributes:
        tag: of the inspector.
        phase: "forward", "backward", or what the model passed.
        index: among the tensors of the call, from 0.
    """

    tag: str
    phase: str
    index: int
