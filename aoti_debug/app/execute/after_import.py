"""A finder of modules that calls a function as soon as one of them has been executed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType


class AfterImport:
    """Finds modules as Python does, and calls a function as soon as one of them has been executed."""

    def __init__(self, actions: Mapping[str, Callable[[Any], None]]) -> None:
        self._actions = actions

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the spec that the other finders find."""
        action = self._actions.get(name)
        if action is None:
            return None
        position = sys.meta_path.index(self)
        others = (finder.find_spec(name, path, target) for finder in sys.meta_path[position + 1 :])
        spec = next((found for found in others if found is not None), None)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            action(module)

        vars(spec.loader)["exec_module"] = exec_module
        return spec
