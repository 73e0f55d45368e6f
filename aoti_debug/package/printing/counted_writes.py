"""Aliases of tensors that count the writes in place, wherever they are made; imports torch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

_COUNTING = torch._C.DispatchKey.ADInplaceOrView


def alias(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without its gradient; it counts writes in `_version`, also if it was made in inference mode.

    Call it within `counting()`.
    """
    if not tensor.is_inference():
        return tensor.detach()
    plain = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    plain.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())
    plain = torch._neg_view(plain) if tensor.is_neg() else plain
    return plain.conj() if tensor.is_conj() else plain


@contextlib.contextmanager
def counting() -> Iterator[None]:
    """Has tensors count writes: inference mode and compiled graphs leave that out. Gradients are off."""
    excluded = torch._C._dispatch_tls_is_dispatch_key_excluded(_COUNTING)
    with torch.inference_mode(False), torch.no_grad():
        torch._C._dispatch_tls_set_dispatch_key_excluded(_COUNTING, False)
        try:
            yield
        finally:
            torch._C._dispatch_tls_set_dispatch_key_excluded(_COUNTING, excluded)
