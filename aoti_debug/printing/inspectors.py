"""Inspectors in a model: Python functions that are called on its tensors, in eager and in packages; imports torch."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch

from aoti_debug.errors import UsageError
from aoti_debug.printing import operator, template

NAME = "aoti_debug::inspect_"


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


TensorFunction = Callable[[torch.Tensor, InspectedTensor], object]

_REGISTERED: dict[str, ModelInspector] = {}  # by tag


class ModelInspector:
    """An inspector of a model; see `inspector`."""

    def __init__(
        self,
        forward: TensorFunction | None,
        backward: TensorFunction | None,
        tag: str,
        ranks: Collection[int] | None,
    ) -> None:
        self.forward = forward
        self.backward = backward
        self.tag = tag
        self.ranks = None if ranks is None else frozenset(ranks)

    def __call__(self, *tensors: torch.Tensor, phase: str = "forward") -> Any:
        """Inspects tensors of any shape and dtype; returns them, a single one alone."""
        OPERATOR(self.tag, phase, list(tensors))
        if self.backward is not None and not torch.compiler.is_compiling():
            for index, tensor in enumerate(tensors):
                if tensor.requires_grad and torch.is_grad_enabled():
                    tensor.register_hook(self._hook(index))
        return tensors[0] if len(tensors) == 1 else tensors

    def _hook(self, index: int) -> Callable[[torch.Tensor], None]:
        return lambda gradient: self.inspect(gradient, "backward", index)

    def inspect(self, tensor: torch.Tensor, phase: str, index: int) -> None:
        """Calls the function of a phase on one tensor, on the ranks that were asked for."""
        function = self.backward if phase == "backward" and self.backward is not None else self.forward
        if function is None or (self.ranks is not None and _rank() not in self.ranks):
            return
        version = None if tensor.is_inference() else tensor._version
        with torch.no_grad():
            function(tensor.detach(), InspectedTensor(self.tag, phase, index))
        if version is not None and tensor._version != version:
            raise RuntimeError(f"the inspector {self.tag!r} has changed tensor {index} in {phase}")


def inspector(
    forward: TensorFunction | None = None,
    backward: TensorFunction | None = None,
    tag: str = "",
    ranks: Collection[int] | None = None,
) -> ModelInspector:
    """Makes an inspector: `x = inspect(x)` in a model calls `forward(x, place)`, and `backward` on the gradient of x.

    It survives export: `aoti-debug run --inspect my.py:f --tag TAG` calls a function on the same tensors of a package.

    Args:
        forward, backward: functions of a tensor, which they must not change, and an InspectedTensor.
        tag: names it; one inspector has it.
        ranks: of torch.distributed, on which it is called; None for all.

    Raises:
        UsageError: another inspector has this tag, or it has characters other than printable ASCII.
    """
    made = ModelInspector(forward, backward, tag, ranks)
    if template.c_safe(tag) != tag:
        raise UsageError(f"the tag {tag!r} has characters that a package cannot hold", hint="use printable ASCII")
    other = _REGISTERED.get(tag)
    if other is not None and (other.forward, other.backward) != (forward, backward):
        raise UsageError(f"there are two inspectors of the tag {tag!r}", hint="give each its own tag=")
    _REGISTERED[tag] = made
    return made


def _rank() -> int:
    distributed = torch.distributed
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0


def _inspect(tag: str, phase: str, tensors: list[torch.Tensor]) -> None:
    registered = _REGISTERED.get(tag)
    if registered is None:  # a saved program, loaded without its functions
        return
    for index, tensor in enumerate(tensors):
        registered.inspect(tensor, phase, index)


def _inspect_nothing(tag: str, phase: str, tensors: list[torch.Tensor]) -> None:
    pass


operator.library.define("inspect_(str tag, str phase, Tensor[] tensors) -> ()")
operator.library.impl("inspect_", _inspect, "CompositeExplicitAutograd")
torch.library.register_fake(NAME, _inspect_nothing, lib=operator.library)
OPERATOR = torch.ops.aoti_debug.inspect_.default
torch.fx.node.has_side_effect(OPERATOR)
