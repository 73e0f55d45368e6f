"""The inputs of a region, moved by rounding errors. Runs in a child process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aoti_debug.compare.evaluate import rounding_noise
from aoti_debug.package.reference.program import Node, ValueKey

if TYPE_CHECKING:
    import torch


def perturbed(known: dict[ValueKey, Any], generator: torch.Generator, units: float = 1.0) -> dict[ValueKey, Any]:
    """The inputs, with every floating number moved by so many units of the kernel's arithmetic, up or down.

    They are in float64; large ones become that when they are read.
    """
    return {key: rounding_noise.moved(value, generator, units) for key, value in known.items()}


def approximated(generator: torch.Generator) -> Callable[[Node, list[Any], Any], Any]:
    """Moves the results of functions that kernels approximate with an absolute error."""
    return lambda node, _, result: rounding_noise.approximated(node, result, generator)
