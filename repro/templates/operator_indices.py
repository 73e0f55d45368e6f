"""Finds elements of an operator's index tensors that are out of range for the indexed dimension."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .accesses import Access, LoadedIndex
from .memory import reach

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8)


@dataclass(frozen=True)
class Indexed:
    """An index tensor, and what it indexes.

    Attributes:
        least: the least index that is allowed; below 0 where indices count from the end, too.
        allowed: an index that is always allowed, `ignore_index` for one.
    """

    index: torch.Tensor
    table: torch.Tensor
    dim: int
    least: int
    allowed: int | None = None

    @property
    def size(self) -> int:
        """The size of the indexed dimension, or of the whole table."""
        return self.table.numel() if self.dim < 0 else int(self.table.shape[self.dim])


Values = Mapping[str, Any]  # an operator's arguments, by the names of its schema
Rule = Callable[[Values], Iterator[Indexed]]


def _advanced(values: Values) -> Iterator[Indexed]:
    """One index tensor a dimension; None passes over one, a mask over as many as it has."""
    table, dim = values["self"], 0
    for index in values["indices"]:
        masked = index is not None and index.dtype in (torch.bool, torch.uint8)
        if index is not None and not masked:
            yield Indexed(index, table, dim, -int(table.shape[dim]))
        dim += index.dim() if masked else 1


def _along(table: str, *, from_end: bool = False) -> Rule:
    """`index` counts along dimension `dim`."""

    def rule(values: Values) -> Iterator[Indexed]:
        tensor, dim = values[table], int(values["dim"])
        if tensor.dim():
            dim %= tensor.dim()
            yield Indexed(values["index"], tensor, dim, -int(tensor.shape[dim]) if from_end else 0)

    return rule


def _rows(values: Values) -> Iterator[Indexed]:
    yield Indexed(values["indices"], values["weight"], 0, 0)


def _flat(values: Values) -> Iterator[Indexed]:
    yield Indexed(values["index"], values["self"], -1, -values["self"].numel())


def _classes(values: Values) -> Iterator[Indexed]:
    table = values["self"]
    yield Indexed(values["target"], table, 1 if table.dim() > 1 else 0, 0, int(values.get("ignore_index", -100)))


# By the operator's name without a trailing underscore. Those whose rules depend on more are left out.
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("aten::index", "aten::_unsafe_index", "aten::index_put"), _advanced),
    **dict.fromkeys(("aten::_unsafe_index_put", "aten::_index_put_impl"), _advanced),
    **dict.fromkeys(("aten::index_select", "aten::index_add", "aten::index_copy"), _along("self")),
    **dict.fromkeys(("aten::gather", "aten::scatter", "aten::scatter_add", "aten::scatter_reduce"), _along("self")),
    **dict.fromkeys(("aten::embedding", "aten::embedding_bag", "aten::_embedding_bag"), _rows),
    **dict.fromkeys(("aten::take", "aten::put"), _flat),
    "aten::index_fill": _along("self", from_end=True),
    "aten::_embedding_bag_forward_only": _rows,
    "aten::nll_loss_forward": _classes,
}


class IndexWatch(TorchDispatchMode):  # type: ignore[misc]
    """A context that reports out-of-range indices of the operators called in it, before they run."""

    def __init__(self, views: Mapping[str, torch.Tensor], report: Callable[[Access], None]) -> None:
        """Prepares the checks.

        Args:
            views: the launch's arguments, by name.
        """
        super().__init__()
        self.views = views
        self.report = report

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Otherwise the first operator waits for the import of torch's compiler."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        rule = RULES.get(func._schema.name.rstrip("_"))
        if rule is not None:
            names = [argument.name for argument in func._schema.arguments]
            values = {**dict(zip(names, args, strict=False)), **kwargs}
            for indexed in rule(values):
                if (access := self._outside(indexed)) is not None:
                    self.report(access)
        return func(*args, **kwargs)

    def _outside(self, indexed: Indexed) -> Access | None:
        index = indexed.index
        if index.dtype not in INTEGERS or index.numel() == 0:
            return None
        held = index.detach().cpu()
        bad = (held < indexed.least) | (held >= indexed.size)
        if indexed.allowed is not None:
            bad &= held != indexed.allowed
        positions = bad.nonzero()
        if not len(positions):
            return None
        at = [int(i) for i in positions[0]]
        element = sum(i * step for i, step in zip(at, index.stride(), strict=True))
        table, value = self._name(indexed.table), int(held[tuple(at)])
        where = f"dimension {indexed.dim} of {table}" if indexed.dim >= 0 else table
        return Access(
            "operator",
            "index",
            f"index outside of {where}, which has {indexed.size} elements",
            argument=table,
            elements=indexed.size,
            beyond=value - indexed.size + 1 if value >= 0 else value - indexed.least,
            bytes=indexed.table.element_size(),
            count=len(positions),
            index=LoadedIndex(self._name(index), int(element), value),
        )

    def _name(self, tensor: torch.Tensor) -> str:
        """The argument that a tensor is: it, or another view of the same elements."""
        for name, view in self.views.items():
            if view is tensor:
                return name
        begin = tensor.data_ptr()
        for name, view in self.views.items():
            if view.numel() and view.data_ptr() <= begin < view.data_ptr() + reach(view) * view.element_size():
                return name
        return ""
