"""Fingerprints of tensors: equal for tensors with the same numbers, up to rounding, in whatever order. In a child."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_TOLERANCE = 1e-6  # relative


@dataclass(frozen=True, order=True)
class Fingerprint:
    """The properties of a tensor's numbers that do not depend on their order.

    Attributes:
        norm: the root of the sum of their squares.
        total: their sum; of a complex tensor, that of the real and imaginary parts.
        largest: the largest absolute value.
        special: the number of elements that are not finite; the others are what is summed.
    """

    norm: float
    total: float
    largest: float
    special: int


def fingerprint(tensor: torch.Tensor) -> Fingerprint:
    """The fingerprint of a tensor of any dtype that has numbers."""
    import torch

    numbers = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    wide = numbers.detach().resolve_neg().to(torch.float64).reshape(-1)
    finite = torch.isfinite(wide)
    special = wide.numel() - int(finite.sum())
    if special:
        wide = wide[finite]
    if not wide.numel():
        return Fingerprint(0.0, 0.0, 0.0, special)
    return Fingerprint(float(torch.linalg.vector_norm(wide)), float(wide.sum()), float(wide.abs().max()), special)


class Fingerprints:
    """The fingerprints of many tensors, to look up one that is like another."""

    def __init__(self) -> None:
        self._of_count: dict[int, list[Fingerprint]] = defaultdict(list)
        self._is_sorted = True

    def add(self, tensor: torch.Tensor) -> None:
        """Adds a tensor's."""
        self._of_count[tensor.numel()].append(fingerprint(tensor))
        self._is_sorted = False

    def has_like(self, tensor: torch.Tensor) -> bool:
        """True if a tensor of as many elements has been added whose numbers are the same up to rounding."""
        if not self._is_sorted:
            for found in self._of_count.values():
                found.sort()
            self._is_sorted = True
        candidates = self._of_count.get(tensor.numel())
        if candidates is None:
            return False
        wanted = fingerprint(tensor)
        allowed = _TOLERANCE * wanted.norm
        at = bisect_left(candidates, wanted.norm - allowed, key=lambda other: other.norm)
        while at < len(candidates) and candidates[at].norm <= wanted.norm + allowed:
            if _is_like(wanted, candidates[at], tensor.numel()):
                return True
            at += 1
        return False


def _is_like(first: Fingerprint, second: Fingerprint, count: int) -> bool:
    # by Cauchy and Schwarz a sum of `count` numbers is at most their norm times the root of `count`
    rounding = _TOLERANCE * first.norm * math.sqrt(count)
    return (
        first.special == second.special
        and abs(first.total - second.total) <= rounding
        and abs(first.largest - second.largest) <= _TOLERANCE * max(first.largest, second.largest)
    )
