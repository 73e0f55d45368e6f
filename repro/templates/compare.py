"""Says whether a tensor is the recorded one, bit for bit, and where it differs most if it is not."""

from __future__ import annotations

import torch


def difference(got: torch.Tensor, recorded: torch.Tensor) -> str:
    """How `got` differs from `recorded`: "" if they are equal bit for bit.

    NaN equals NaN of the same bits; 0.0 and -0.0 differ. A relative difference is to the recorded value.
    """
    if got.dtype != recorded.dtype or got.shape != recorded.shape:
        return f"is {kind(got)}, recorded {kind(recorded)}"
    shape = tuple(got.shape)
    got, recorded = _row(got), _row(recorded)
    unequal = (_bits(got) != _bits(recorded)).any(dim=1)
    count = int(unequal.sum())
    if count == 0:
        return ""
    return f"differs in {count} of {got.numel()} elements: {_worst(got, recorded, unequal, shape)}"


def kind(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def _row(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)


def _bits(row: torch.Tensor) -> torch.Tensor:
    """uint8 [numel, itemsize]"""
    return row.view(torch.uint8).reshape(row.numel(), row.element_size())


def _worst(got: torch.Tensor, recorded: torch.Tensor, unequal: torch.Tensor, shape: tuple[int, ...]) -> str:
    def place(at: int) -> str:
        return f"{_index(at, shape)} ({got[at].item()} here, {recorded[at].item()} recorded)"

    wide = torch.complex128 if got.is_complex() else torch.float64
    mine, theirs = got.to(wide), recorded.to(wide)
    finite = mine.isfinite() & theirs.isfinite()
    absolute = torch.where(finite, (mine - theirs).abs(), 0.0)
    relative = torch.where(absolute > 0, absolute / theirs.abs(), 0.0)
    parts = []
    if bool((absolute > 0).any()):
        parts += [
            f"max {name} {measure.max().item():.3g} at {place(int(measure.argmax()))}"
            for name, measure in (("abs", absolute), ("rel", relative))
        ]
    special = unequal & ~finite
    if bool(special.any()):
        parts.append(f"{int(special.sum())} with NaN or Inf, the first at {place(int(special.nonzero()[0]))}")
    if not parts:
        parts.append(f"equal in double precision, the first at {place(int(unequal.nonzero()[0]))}")
    return "; ".join(parts)


def _index(position: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    index: list[int] = []
    for size in reversed(shape):
        position, rest = divmod(position, size)
        index.insert(0, rest)
    return tuple(index)
