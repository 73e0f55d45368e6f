"""Finds, by trials with other numbers, the element of a computation's inputs without which its result is not bad.

A trial puts harmless numbers in place of some elements and asks if the result is still bad. An element is to blame if
the result is bad with it alone (every other element of its tensor replaced) and not bad without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from aoti_debug.base.frozen import dataclass
from aoti_debug.repro.templates.shrink import smallest_count

if TYPE_CHECKING:
    import torch

_TYPICAL = 3  # of a tensor's own elements that are tried as harmless
_PLAIN = (0, 1, 2)


class UndecidedError(Exception):
    """A trial ended in something else than a good or a bad result."""


class TimeOverError(Exception):
    """The time for trials was over before an answer was found."""


@dataclass(frozen=True)
class Culprit:
    """A tensor, or the element of it, that makes a result bad.

    Attributes:
        element: row-major; None if only several elements together make it bad.
        value: of the element; "" without one.
        instead: a number with which, in the place of the element or of the tensor, the result is not bad.
        alone: False if the result stays bad without the element, for another one does the same.
    """

    name: str
    element: int | None
    value: str
    instead: str
    alone: bool


IsBad = Callable[[Mapping[str, "torch.Tensor"]], bool]
"""Tells if the result is bad with these tensors in place of those of the same names.

Raises:
    UndecidedError: it cannot be told.
    TimeOverError: there is no time for another trial.
"""


def find_culprit(tensors: Mapping[str, torch.Tensor], is_bad: IsBad, value: str = "") -> Culprit | None:
    """The only tensor without which the result is not bad; None if there is none, or several.

    A tensor of truth values counts only if no tensor of numbers is to blame.

    Args:
        tensors: what the result is computed from.
        value: the bad number as text: among several tensors, the one that holds it is to blame.

    Raises:
        TimeOverError: raised by `is_bad`.
    """
    for harmless in (_own, _plain):
        found = [c for name, t in tensors.items() if (c := _of_tensor(name, t, is_bad, harmless)) is not None]
        numbers = [c for c in found if not _is_mask(tensors[c.name])]
        held = [c for c in numbers if value and c.value == value]
        for candidates in (numbers, held, found):
            if len(candidates) == 1:
                return candidates[0]
        if found:
            return None
    return None


def _of_tensor(
    name: str, tensor: torch.Tensor, is_bad: IsBad, harmless: Callable[[torch.Tensor], Iterator[int | float]]
) -> Culprit | None:
    """The culprit in one tensor; None if no harmless number in all of its elements makes the result good."""
    for number in harmless(tensor):
        try:
            if not is_bad({name: _filled(tensor, number)}):
                return _element(name, tensor, number, is_bad)
        except UndecidedError:
            continue
    return None


def _element(name: str, tensor: torch.Tensor, number: int | float, is_bad: IsBad) -> Culprit:
    """The element that is to blame: the most unusual one, or else the first that makes the result bad by itself."""
    flat = tensor.reshape(-1)

    def is_bad_alone(element: int) -> bool:
        changed = _filled(tensor, number)
        changed.view(-1)[element] = flat[element]
        return is_bad({name: changed})

    def is_bad_without(element: int) -> bool:
        changed = tensor.clone().contiguous()
        changed.view(-1)[element] = number
        return is_bad({name: changed})

    def is_bad_with_first(kept: int) -> bool:
        changed = _filled(tensor, number)
        changed.view(-1)[:kept] = flat[:kept]
        return is_bad({name: changed})

    def culprit(element: int, *, alone: bool) -> Culprit:
        return Culprit(name, element, str(flat[element].item()), instead, alone)

    instead = str(_filled(tensor, number).view(-1)[0].item())
    unusual = _farthest(flat, number)
    if is_bad_alone(unusual) and not is_bad_without(unusual):
        return culprit(unusual, alone=True)
    first = smallest_count(tensor.numel(), is_bad_with_first) - 1
    if not is_bad_alone(first):
        return Culprit(name, None, "", instead, alone=False)
    return culprit(first, alone=not is_bad_without(first))


def _farthest(flat: torch.Tensor, number: int | float) -> int:
    """The element that differs most from a number; NaN most of all."""
    distances = (flat.double() - float(number)).abs()
    return int(distances.nan_to_num(nan=float("inf")).argmax())


def _filled(tensor: torch.Tensor, number: int | float) -> torch.Tensor:
    import torch

    return torch.full(tensor.shape, number, dtype=tensor.dtype, device=tensor.device)


def _own(tensor: torch.Tensor) -> Iterator[int | float]:
    """Typical elements: the median, and those beside it."""
    if tensor.numel() < 2 or _is_mask(tensor) or tensor.dtype.is_complex:
        return
    import torch

    flat = torch.sort(tensor.detach().reshape(-1).cpu()).values
    middle = flat.numel() // 2
    near = (flat[i].item() for i in (middle, middle // 2, middle + (flat.numel() - middle) // 2) if i < flat.numel())
    yield from list(dict.fromkeys(near))[:_TYPICAL]


def _plain(tensor: torch.Tensor) -> Iterator[int | float]:
    yield from (False, True) if _is_mask(tensor) else _PLAIN


def _is_mask(tensor: torch.Tensor) -> bool:
    import torch

    return bool(tensor.dtype == torch.bool)
