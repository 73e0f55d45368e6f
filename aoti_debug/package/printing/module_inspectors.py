"""Inspectors on the results of modules, without a change of the model; imports torch."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase
from types import TracebackType
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils.hooks import RemovableHandle

from aoti_debug.base.errors import UsageError
from aoti_debug.package.printing import inspectors
from aoti_debug.package.printing.inspectors import ModelInspector, TensorFunction


class InstalledInspectors:
    """The inspectors that `inspect_modules` has installed; as a context manager it removes them.

    Attributes:
        tags: of the inspectors: the paths of their modules, in the order of the model.
    """

    def __init__(self, made: dict[str, ModelInspector], handles: list[RemovableHandle]) -> None:
        self.tags = tuple(made)
        self._handles = handles

    def remove(self) -> None:
        """Removes the inspectors from the modules; their functions are called no more."""
        for handle in self._handles:
            handle.remove()
        for tag in self.tags:
            inspectors.forget(tag)

    def __enter__(self) -> InstalledInspectors:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.remove()


def inspect_modules(
    model: torch.nn.Module,
    forward: TensorFunction | None = None,
    backward: TensorFunction | None = None,
    *,
    modules: str = "*",
    ranks: Collection[int] | None = None,
) -> InstalledInspectors:
    """Installs an inspector on the results of every module: in eager, under torch.compile, and in what is exported.

    Args:
        forward, backward: as of `inspector`; the tag is the path of the module, "layers.0.norm1", and the name of the
            class for the model itself.
        modules: a pattern of these tags.
        ranks: as of `inspector`.

    Raises:
        UsageError: no module matches, or another inspector has the tag of one.
    """
    named = {path or type(model).__name__: module for path, module in model.named_modules()}
    chosen = {tag: module for tag, module in named.items() if fnmatchcase(tag, modules)}
    if not chosen:
        raise UsageError(f"no module matches {modules!r}", hint="the first are " + ", ".join(list(named)[:5]))
    made: dict[str, ModelInspector] = {}
    try:
        for tag in chosen:
            made[tag] = inspectors.inspector(forward, backward, tag, ranks)
    except UsageError:
        for tag in made:
            inspectors.forget(tag)
        raise
    handles = [module.register_forward_hook(_hook(made[tag])) for tag, module in chosen.items()]
    return InstalledInspectors(made, handles)


def _hook(inspect: ModelInspector) -> Any:
    def hook(module: torch.nn.Module, args: Any, output: Any) -> Any:
        leaves, structure = pytree.tree_flatten(output)
        places = [index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        if not places:
            return output
        inspected = inspect(*[leaves[place] for place in places])
        for place, tensor in zip(places, (inspected,) if len(places) == 1 else inspected, strict=True):
            leaves[place] = tensor
        return pytree.tree_unflatten(leaves, structure)

    return hook
