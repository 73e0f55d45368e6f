"""The place of a tensor that an inspector in a model is called on."""

from __future__ import annotations

from aoti_debug.base.frozen import dataclass


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
