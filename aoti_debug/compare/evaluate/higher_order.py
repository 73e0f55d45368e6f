"""Operators whose arguments are graphs, computed by torch's own code for eager. Runs in a child process.

The graphs are passed as functions that evaluate the recorded ones, so that the operator computes in any arithmetic.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from aoti_debug.package.program_graphs import HIGHER_ORDER

if TYPE_CHECKING:
    import torch

ATTENTION, ATTENTION_BACKWARD = f"{HIGHER_ORDER}flex_attention", f"{HIGHER_ORDER}flex_attention_backward"
VECTORISED = (ATTENTION, ATTENTION_BACKWARD)  # they call their graphs inside of torch.vmap
_WITH_OWN_CODE = frozenset(
    {*VECTORISED}
    | {
        f"{HIGHER_ORDER}{name}"
        for name in (
            "associative_scan",
            "auto_functionalized",
            "auto_functionalized_v2",
            "hints_wrapper",
            "invoke_subgraph",
            "map_impl",
            "out_dtype",
            "scan",
            "while_loop_stack_output",
        )
    }
)
_SCORES = 64 << 20  # bytes of attention's scores that are computed at once
_MAX_SCORES = 1 << 30  # bytes of them in a backward pass, which computes all at once

Modification = Callable[..., "torch.Tensor"]


def has_own_code(target: str) -> bool:
    """True for an operator that `function_of` knows: "higher_order.flex_attention"."""
    return target in _WITH_OWN_CODE


def function_of(target: str) -> Callable[..., Any]:
    """The function of such an operator; its graphs are functions of tensors.

    Raises:
        AttributeError: this torch has no such operator.
    """
    import torch

    operator: Callable[..., Any] = getattr(torch.ops.higher_order, target.removeprefix(HIGHER_ORDER))
    if target == ATTENTION:
        return functools.partial(_attention, operator)
    return functools.partial(_attention_backward, operator) if target == ATTENTION_BACKWARD else operator


def _attention(
    operator: Callable[..., tuple[torch.Tensor, ...]],
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score: Modification,
    block_mask: Sequence[Any],
    *others: Any,
) -> list[torch.Tensor]:
    """flex_attention: some rows of the query at a time, because eager holds the scores of all of them."""
    import torch

    *tables, mask = block_mask
    length = _rows(query, key)
    parts = []
    for begin in range(0, query.shape[2], length):
        shifted = (_shifted(score, begin, 3), (*tables, _shifted(mask, begin, 2)))
        parts.append(operator(query[:, :, begin : begin + length], key, value, *shifted, *_with_tuples(others)))
    return [torch.cat(list(tensors), 2) for tensors in zip(*parts, strict=True)]


def _shifted(function: Modification, by: int, position: int) -> Modification:
    """A function that is passed the row of the query as its argument of that position, counted from a part's first."""

    def shifted(*arguments: Any) -> torch.Tensor:
        before, row, after = arguments[:position], arguments[position], arguments[position + 1 :]
        return function(*before, row + by, *after)

    return function if by == 0 else shifted


def _rows(query: torch.Tensor, key: torch.Tensor) -> int:
    """The rows of a query whose scores are computed at once."""
    return max(1, _SCORES // max(1, _bytes_of_scores(query[:, :, :1], key)))


def _bytes_of_scores(query: torch.Tensor, key: torch.Tensor) -> int:
    return int(query.shape[0] * query.shape[1] * query.shape[2] * key.shape[2] * max(query.element_size(), 4))


def _attention_backward(operator: Callable[..., Any], query: torch.Tensor, key: torch.Tensor, *others: Any) -> Any:
    """flex_attention_backward, without the gradients of what the function of scores reads: they are None.

    Eager adds them up in an operator that the lowered graph does not have any more (flex_lib.zeros_and_scatter).

    Raises:
        MemoryError: eager holds all scores at once, and they would take too much.
    """
    if (size := _bytes_of_scores(query, key)) > _MAX_SCORES:
        raise MemoryError(f"the scores take {size >> 20} MiB in eager")
    *tensors, score, joint = others[:7]

    def of_scores(*arguments: Any) -> list[Any]:
        first, *rest = joint(*arguments)
        return [first, *(None for _ in rest)]

    return operator(query, key, *tensors, score, of_scores, *_with_tuples(others[7:]))


def _with_tuples(arguments: Sequence[Any]) -> Iterator[Any]:
    """Arguments of attention, whose code adds tuples."""
    return (tuple(item) if isinstance(item, list) else item for item in arguments)
