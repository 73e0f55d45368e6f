"""The numbers of tensors in the text of calls: `$0`."""

from __future__ import annotations


class TensorNumbers:
    """Numbers in the order in which tensors are first named."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._written: dict[tuple[int, int], int] = {}  # (address, elements) -> number
        self._next = 0

    def __contains__(self, name: str) -> bool:
        return name in self._numbers

    def id(self, name: str) -> str:
        """The number of a variable; a new one if it has none yet."""
        if name not in self._numbers:
            self._numbers[name] = self._next
            self._next += 1
        return f"${self._numbers[name]}"

    def read(self, name: str, address: int, numel: int) -> str:
        """The number of a variable that is read: that of the tensor written there, of which it may be a view."""
        number = self._written.get((address, numel))
        return self.id(name) if name in self._numbers or number is None else f"${number}"

    def written(self, name: str, address: int, numel: int) -> str:
        """The number of a variable that is written."""
        id_ = self.id(name)
        self._written[address, numel] = self._numbers[name]
        return id_
