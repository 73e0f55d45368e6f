"""The functions of operators and other targets of a graph. Runs in a child process.

Operators that only Inductor puts into graphs are given in terms of aten, as in torch/_inductor/inductor_prims.py: torch
registers them when Inductor is imported, which takes seconds.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aoti_debug.compare.evaluate import higher_order, random_numbers
from aoti_debug.package.reference.program import HIGHER_ORDER, USER_TRITON, Node

if TYPE_CHECKING:
    import torch

CONDITION, LOOP = "higher_order.cond", "higher_order.while_loop"
_INDUCTOR_RANDOM = "prims.inductor_"  # operators that make random numbers within kernels
WITH_GRADIENTS = "higher_order.wrap_with_set_grad_enabled"  # a part of a program in which gradients are on or off
_WITH_BODIES = (CONDITION, LOOP, WITH_GRADIENTS)  # operators whose bodies are graphs of the reference
WITHOUT_VALUE = ("aoti_debug.print_.default", "aoti_debug.inspect_.default")  # they print, or call a function
TORCH_RAISES = (RuntimeError, TypeError, ValueError, IndexError)  # what errors of torch's C++ code become


class NotEvaluableError(Exception):
    """The reason why a node cannot be evaluated here."""


class RefusedError(NotEvaluableError):
    """An operator raised an exception.

    Attributes:
        raised: the exception.
        node: the node of the operator; "" where it is not known.
        call: the number of the call of the program, from 0.
    """

    def __init__(self, text: str, raised: BaseException, node: str = "", call: int = 0) -> None:
        super().__init__(text)
        self.raised = raised
        self.node = node
        self.call = call


def is_random(target: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """True if a call draws random numbers; one whose dropout is off, or has the probability 0, does not."""
    import torch

    if target == random_numbers.LOOKUP:
        return False
    if target.startswith(_INDUCTOR_RANDOM):
        return True
    function = operator_of(target)
    if not isinstance(function, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in function.tags:
        return False
    values = {
        parameter.name: args[position] if position < len(args) else kwargs.get(parameter.name, parameter.default_value)
        for position, parameter in enumerate(function._schema.arguments)
    }
    if values.get("num_layers") == 1:  # the dropout of an LSTM, a GRU or an RNN is between its layers
        return False
    if "train" in values:  # native_dropout also draws if it is None
        return values["train"] is not False and all(values[name] for name in ("dropout", "p") if name in values)
    return all(values[name] for name in ("dropout_p", "training") if name in values)


def draws(node: Node) -> bool:
    """True if a node draws random numbers; False for a branch, a loop, or an operator that is not known here."""
    try:
        return is_random(node.target, node.args, node.kwargs)
    except NotEvaluableError:
        return False


@functools.cache
def operator_of(target: str) -> Callable[..., Any]:
    """The function of a target: "aten.add.Tensor", "_operator.getitem".

    Raises:
        NotEvaluableError: there is none here.
    """
    import torch

    if target in WITHOUT_VALUE:
        return _do_nothing
    if target in OPERATORS:
        return OPERATORS[target]
    if target.startswith(USER_TRITON):
        raise NotEvaluableError("a user-defined Triton kernel: the program has no other code for it")
    if higher_order.has_own_code(target):
        with contextlib.suppress(AttributeError):
            return higher_order.function_of(target)
    if target.startswith(HIGHER_ORDER):
        raise NotEvaluableError(f"{target.removeprefix(HIGHER_ORDER)} has no evaluation of its own")
    parts = target.split(".")
    if parts[0] == "prims" and not hasattr(torch.ops.prims, parts[1]):
        _register_inductor_prims()
    try:
        if len(parts) == 3 and parts[0] not in ("math", "_operator"):
            function: Any = getattr(getattr(getattr(torch.ops, parts[0]), parts[1]), parts[2])
        else:
            function = functools.reduce(getattr, parts[1:], importlib.import_module(parts[0]))
    except (AttributeError, ImportError, RuntimeError) as error:
        raise NotEvaluableError(f"{target} is not known here: {first_line(error)}") from error
    if not callable(function):
        raise NotEvaluableError(f"{target} is no function")
    operator: Callable[..., Any] = function
    return operator


def missing_function_reason(targets: Iterable[str]) -> str:
    """The reason why one of these targets cannot be called here; "" if all can."""
    try:
        for target in dict.fromkeys(targets):
            if target not in _WITH_BODIES:
                operator_of(target)
    except NotEvaluableError as error:
        return str(error)
    return ""


def _do_nothing(*_: Any, **__: Any) -> None:
    return None


def implementation_of(target: str) -> Callable[..., Any]:
    """The function that computes a target: of an operator of `prims`, its own one in terms of aten.

    Calling such an operator itself imports torch._dynamo, which takes longer than many evaluations.

    Raises:
        NotEvaluableError: there is none here.
    """
    function = operator_of(target)
    in_aten = getattr(function, "impl_aten", None)
    return in_aten if callable(in_aten) else function


def _register_inductor_prims() -> None:
    """Registers those of Inductor's operators that inductor_operators.py lacks; this imports Inductor."""
    with contextlib.suppress(ImportError):
        importlib.import_module("torch._inductor.inductor_prims")


def failure_text(error: BaseException) -> str:
    """The reason why an evaluation failed on this machine: no memory, a device that is lost."""
    return f"its evaluation fails here: {first_line(error) or type(error).__name__}"


def first_line(error: BaseException) -> str:
    """The first line of an exception's text, or its type if it has none."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _prepare_softmax(values: torch.Tensor, dimension: int) -> tuple[torch.Tensor, torch.Tensor]:
    largest = values.amax(dimension, keepdim=True)
    return largest, (values - largest).exp().sum(dimension, keepdim=True)


def _lookup_seed(seeds: torch.Tensor, index: int) -> torch.Tensor:
    return seeds[index].clone()


def _force_stride_order(values: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    if values.stride() == tuple(stride):
        return values
    return values.clone().as_strided(values.shape, stride).copy_(values)


def _index_put(*args: Any, **kwargs: Any) -> Any:
    import torch

    return torch.ops.aten.index_put_.default(*args, **kwargs)


def _multiply_add(first: torch.Tensor, second: torch.Tensor | float, added: torch.Tensor) -> torch.Tensor:
    return first * second + added


OPERATORS: Mapping[str, Callable[..., Any]] = {
    "prims.prepare_softmax_online.default": _prepare_softmax,
    "prims.inductor_lookup_seed.default": _lookup_seed,
    "prims.inductor_force_stride_order.default": _force_stride_order,
    "prims._unsafe_index_put_.default": _index_put,
    "prims.fma.default": _multiply_add,
}
ELEMENTWISE = frozenset({"prims.fma.default"})
