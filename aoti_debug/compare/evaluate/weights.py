"""The weights of an exported program, read when one is first asked for. Runs in a child process."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from aoti_debug import dtypes, wording
from aoti_debug.compare.evaluate import mapped_program
from aoti_debug.printing import registration
from aoti_debug.reference.program import Node

if TYPE_CHECKING:
    import torch


class ExportedWeights:
    """The weights that a launch should have been passed, but was not.

    Args:
        exported: the program; None if it is not known.

    Attributes:
        failure: why the program could not be loaded; "" if it was, or was not asked for.
    """

    def __init__(self, exported: Path | None) -> None:
        self._exported = exported
        self.failure = ""

    def value(self, node: Node) -> torch.Tensor | None:
        """The value of a weight that the program never overwrites; None if it is not known."""
        import torch

        value = self._tensors.get(node.target)
        type_ = node.types[0] if len(node.types) == 1 else None
        if not isinstance(value, torch.Tensor) or type_ is None:
            return None
        is_same = (dtypes.bare_name(value.dtype), tuple(map(str, value.shape))) == (type_.dtype, type_.shape)
        return value.detach() if is_same else None

    @cached_property
    def _tensors(self) -> dict[str, object]:
        if self._exported is None:
            return {}
        registration.register()
        try:
            program = mapped_program.load(self._exported)
        except Exception as error:  # noqa: BLE001 - loading runs code of torch, and of the program's operators
            self.failure = (
                f"{self._exported} cannot be loaded: {wording.first_line(str(error)) or type(error).__name__}"
            )
            return {}
        return {**program.constants, **program.state_dict}
