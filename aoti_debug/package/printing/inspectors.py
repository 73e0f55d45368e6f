"""Inspectors: Python functions that are called on tensors in a model, or on results of its modules; imports torch.

They are called in eager and in packages.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from fnmatch import fnmatchcase
from types import TracebackType
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils.hooks import RemovableHandle

from aoti_debug.base.errors import UsageError
from aoti_debug.base.machine import current_rank as machine_ranks
from aoti_debug.package.printing import print_operator, template
from aoti_debug.package.printing.template import InspectedTensor

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
    with torch.inference_mode(mode=False), torch.no_grad():
        excluded = False
        torch._C._dispatch_tls_set_dispatch_key_excluded(_COUNTING, excluded)
        try:
            yield
        finally:
            torch._C._dispatch_tls_set_dispatch_key_excluded(_COUNTING, excluded)


NAME = "aoti_debug::inspect_"
GRADIENT = "aoti_debug::inspect_gradient"
BACKWARD = "backward"  # the phase of gradients


TensorFunction = Callable[[torch.Tensor, InspectedTensor], object]

_REGISTERED: dict[str, ModelInspector] = {}  # by tag
_USES: Counter[str] = Counter()  # how often each of them was made and not forgotten


class ModelInspector:
    """An inspector of a model; see `inspector`."""

    def __init__(
        self,
        forward: TensorFunction | None,
        backward: TensorFunction | None,
        tag: str,
        ranks: Collection[int] | None,
    ) -> None:
        self.forward = forward
        self.backward = backward
        self.tag = tag
        self.ranks = None if ranks is None else frozenset(ranks)

    def __call__(self, *tensors: torch.Tensor, phase: str = "forward") -> Any:
        """Inspects tensors of any shape and dtype; returns them, a single one alone.

        A compiled graph inspects in a backward pass only what is returned here and used.
        """
        if phase == BACKWARD and torch.compiler.is_compiling() and not _is_exporting():
            copies = tuple(GRADIENT_OPERATOR(self.tag, tensor, index) for index, tensor in enumerate(tensors))
            return copies[0] if len(copies) == 1 else copies
        OPERATOR(self.tag, phase, list(tensors))
        if self.backward is not None and torch.is_grad_enabled() and not _is_exporting():
            tensors = tuple(self._with_backward(tensor, index) for index, tensor in enumerate(tensors))
        return tensors[0] if len(tensors) == 1 else tensors

    def _with_backward(self, tensor: torch.Tensor, index: int) -> torch.Tensor:
        if not tensor.requires_grad:
            return tensor
        if torch.compiler.is_compiling():  # graphs have no hooks
            compiled: torch.Tensor = _WithBackward.apply(tensor, self.tag, index)
            return compiled
        tensor.register_hook(functools.partial(_inspect_in_hook, self.tag, index))
        return tensor

    def same_as(self, other: ModelInspector) -> bool:
        """True if both call the same functions on the same ranks."""
        return (self.forward, self.backward, self.ranks) == (other.forward, other.backward, other.ranks)

    def inspect(self, tensor: torch.Tensor, phase: str, index: int) -> None:
        """Calls the function of a phase on one tensor, on the ranks that were asked for.

        Raises:
            RuntimeError: the function has changed the tensor.
        """
        function = self.backward if phase == BACKWARD and self.backward is not None else self.forward
        if function is None or not machine_ranks.selected(self.ranks):
            return
        with counting():
            shared = alias(tensor)
            version = shared._version
            function(shared, InspectedTensor(self.tag, phase, index))
            if shared._version != version:
                raise RuntimeError(f"the inspector {self.tag!r} has changed tensor {index} in {phase}")


def _is_exporting() -> bool:
    """True within torch.export. torch.compile of torch 2.11 takes `torch.compiler.is_exporting` for true everywhere."""
    flag = getattr(torch.compiler, "_is_exporting_flag", None)
    return torch.compiler.is_exporting() if flag is None else bool(flag)


def inspector(
    forward: TensorFunction | None = None,
    backward: TensorFunction | None = None,
    tag: str = "",
    ranks: Collection[int] | None = None,
) -> ModelInspector:
    """Makes an inspector: `x = inspect(x)` in a model calls `forward(x, place)`, and `backward` on the gradient of x.

    It works in eager and under torch.compile, and survives export: `aoti-debug run --inspect my.py:f --tag TAG` calls a
    function on the same tensors of a package, and `aoti_debug.inspect(package)` calls `forward`.

    Args:
        forward, backward: functions of a tensor, which they must not change, and an InspectedTensor.
        tag: names it; one inspector has it.
        ranks: of torch.distributed, on which it is called; None for all.

    Raises:
        UsageError: another inspector has this tag, or it has characters other than printable ASCII.
    """
    made = ModelInspector(forward, backward, tag, ranks)
    if template.c_safe(tag) != tag:
        raise UsageError(f"the tag {tag!r} has characters that a package cannot hold", hint="use printable ASCII")
    other = _REGISTERED.get(tag)
    if other is not None and not made.same_as(other):
        raise UsageError(f"there are two inspectors of the tag {tag!r}", hint="give each its own tag=")
    _REGISTERED[tag] = made
    _USES[tag] += 1
    return made


def forget(tag: str) -> None:
    """Takes back one making of the inspector of a tag. After the last one it is not called, and the tag is free."""
    _USES[tag] -= 1
    if _USES[tag] <= 0:
        del _USES[tag]
        _REGISTERED.pop(tag, None)


def call_registered(tag: str, phase: str, index: int, tensor: torch.Tensor) -> None:
    """Calls the function of the inspector of a tag on one tensor, if this process has such an inspector.

    Raises:
        RuntimeError: the function has changed the tensor.
    """
    registered = _REGISTERED.get(tag)
    if registered is not None:  # a saved program may be loaded without its functions
        registered.inspect(tensor, phase, index)


class _WithBackward(torch.autograd.Function):  # type: ignore[misc]
    """Returns its tensor; its backward inspects the gradient."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, tag: str, index: int) -> torch.Tensor:
        ctx.place = (tag, index)
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        tag, index = ctx.place
        return GRADIENT_OPERATOR(tag, gradient, index), None, None


def _inspect(tag: str, phase: str, tensors: list[torch.Tensor]) -> None:
    for index, tensor in enumerate(tensors):
        call_registered(tag, phase, index, tensor)


def _inspect_in_hook(tag: str, index: int, gradient: torch.Tensor) -> None:
    GRADIENT_OPERATOR(tag, gradient, index)


def _inspect_gradient(tag: str, gradient: torch.Tensor, index: int) -> torch.Tensor:
    """Inspects a gradient and returns a copy: some versions of torch drop an operator whose result nothing reads."""
    call_registered(tag, BACKWARD, index, gradient)
    return gradient.clone()


def _inspect_nothing(*_: object) -> None:
    pass


def _copy(tag: str, gradient: torch.Tensor, index: int) -> torch.Tensor:
    return torch.empty_like(gradient)


print_operator.library.define("inspect_(str tag, str phase, Tensor[] tensors) -> ()")
print_operator.library.impl("inspect_", _inspect, "CompositeExplicitAutograd")
print_operator.library.define("inspect_gradient(str tag, Tensor gradient, int index) -> Tensor")
print_operator.library.impl("inspect_gradient", _inspect_gradient, "CompositeExplicitAutograd")
torch.library.register_fake(NAME, _inspect_nothing, lib=print_operator.library)
torch.library.register_fake(GRADIENT, _copy, lib=print_operator.library)
OPERATOR = torch.ops.aoti_debug.inspect_.default
GRADIENT_OPERATOR = torch.ops.aoti_debug.inspect_gradient.default
for _operator in (OPERATOR, GRADIENT_OPERATOR):
    torch.fx.node.has_side_effect(_operator)


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
            forget(tag)

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
            made[tag] = inspector(forward, backward, tag, ranks)
    except UsageError:
        for tag in made:
            forget(tag)
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
