"""Cells of values with the names of their tensors, the values aligned: "-4.343 in buf0", " 3.099 in buf1"."""

from __future__ import annotations

from collections.abc import Sequence

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.runs.show import terminal_cells

_IN = " in "


@dataclass(frozen=True)
class ValueCell:
    """A value and the tensor that it is in.

    Attributes:
        value: padded to the width of those of the other rows.
        name: of the tensor.
    """

    value: str
    name: str

    def __str__(self) -> str:
        return f"{self.value}{_IN}{self.name}"

    def fit(self, width: int) -> str:
        """At most `width` cells: the name loses its middle, the value is never cut."""
        return f"{self.value}{_IN}{terminal_cells.shorten_middle(self.name, width - len(self.value) - len(_IN))}"


def aligned(texts: Sequence[str]) -> list[str | ValueCell]:
    """Cells of a column: values are aligned on the right, texts without a tensor stay as they are."""
    parts = [text.partition(_IN) for text in texts]
    width = max((len(value) for value, _, name in parts if name), default=0)
    return [ValueCell(f"{value:>{width}}", name) if name else value for value, _, name in parts]
