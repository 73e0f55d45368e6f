"""The functions of operators and other targets of a graph. Runs in a child process.

Operators that only Inductor puts into graphs are given in terms of aten, as in torch/_inductor/inductor_prims.py: torch
registers them when Inductor is imported, which takes seconds.

A kernel draws the number of an element from the seed and the element's row-major index in the random tensor: with
Philox 4x32-10, by the functions of torch/csrc/inductor/cpp_prefix.h on a CPU, by those of triton.language.random on a
GPU.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aoti_debug.compare.evaluate import higher_order
from aoti_debug.package.argument_values import extent_elements
from aoti_debug.package.program_graphs import HIGHER_ORDER, USER_TRITON, Node, Reference

if TYPE_CHECKING:
    import torch

LOOKUP = "prims.inductor_lookup_seed.default"
UNIFORM_OR_NORMAL = "prims.inductor_random.default"
INTEGER = "prims.inductor_randint.default"
DRAWN = (UNIFORM_OR_NORMAL, INTEGER)

_WORD = 0xFFFFFFFF
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_FACTORS = (0xD2511F53, 0xCD9E8D57)
_ROUNDS = 10
_SCALE = 4.6566127342e-10  # of a 31 bit integer to [0, 1)
_CHUNK = 1 << 16  # numbers at once: they stay in the cache of the processor
_KEPT = 2  # tensors of words that are kept, for the other arithmetics

Words = tuple["torch.Tensor", "torch.Tensor"]
CONDITION, LOOP = "higher_order.cond", "higher_order.while_loop"
_INDUCTOR_RANDOM = (  # how the names of operators begin that make seeds, or random numbers within kernels
    *("prims.inductor_seed", "prims.inductor_rand", "inductor_prims.inductor_reserve_rng_state"),
)
WITH_GRADIENTS = "higher_order.wrap_with_set_grad_enabled"  # a part of a program in which gradients are on or off
_WITH_BODIES = (CONDITION, LOOP, WITH_GRADIENTS)  # operators whose bodies are graphs of the reference
WITHOUT_VALUE = ("aoti_debug.print_.default", "aoti_debug.inspect_.default")  # they print, or call a function
TORCH_RAISES = (RuntimeError, TypeError, ValueError, IndexError)  # what errors of torch's C++ code become
FRESH = frozenset(  # operators that give memory as it is
    {
        *("aten.empty.memory_format", "aten.empty_like.default", "aten.empty_strided.default"),
        *("aten.empty_permuted.default", "aten.new_empty.default", "aten.new_empty_strided.default"),
    }
)
_NO_KERNEL = re.compile(r"not implemented for '(\w+)'")
ELEMENTWISE = frozenset({"prims.fma.default"})


def drawn(target: str, args: Sequence[Any], device: str, dtype: torch.dtype) -> torch.Tensor:
    """The result of an operator of DRAWN.

    Args:
        args: as in its call; the seed is a tensor.
        device: the device of the kernel, "cpu" or "cuda:0": it decides by which functions the numbers are drawn.
        dtype: in which normal numbers are computed: float32 as the kernel does, or float64.
    """
    size, seed = (args[2], args[3]) if target == INTEGER else (args[0], args[1])
    on_cpu = device.startswith("cpu")
    key = int(seed) & _WORD if on_cpu else int(seed)
    words = philox(key, math.prod(size), seed.device)
    if target == INTEGER:
        numbers = _integer(words, *args[:2])
    elif args[2] == "rand":
        numbers = _uniform_cpu(words[0]) if on_cpu else _uniform_triton(words[0])
    else:
        numbers = _normal_cpu(words, dtype) if on_cpu else _normal_triton(words, dtype)
    return numbers.reshape(size)


@functools.lru_cache(maxsize=_KEPT)
def philox(key: int, count: int, device: torch.device) -> Words:
    """The first two of the 32 bit words that Philox 4x32-10 makes of a 64 bit key and each counter from 0."""
    import torch

    first, second = (torch.empty(count, dtype=torch.int64, device=device) for _ in range(2))
    for begin in range(0, count, _CHUNK):
        end = min(begin + _CHUNK, count)
        first[begin:end], second[begin:end] = _words(key, torch.arange(begin, end, device=device))
    return first, second


def _words(key: int, counters: torch.Tensor) -> Words:
    import torch

    a, b, c, d = counters & _WORD, *(torch.zeros_like(counters) for _ in range(3))
    low, high = key & _WORD, key >> 32 & _WORD
    for _ in range(_ROUNDS):
        left, right = a * _FACTORS[0], c * _FACTORS[1]  # modulo 2⁶⁴, as signed numbers
        a, b = (right >> 32 & _WORD) ^ b ^ low, right & _WORD
        c, d = (left >> 32 & _WORD) ^ d ^ high, left & _WORD
        low, high = low + _KEY_STEPS[0] & _WORD, high + _KEY_STEPS[1] & _WORD
    return a, b


def _integer(words: Words, low: int, high: int) -> torch.Tensor:
    """`(first + second · 2³²) mod (high - low) + low`, unsigned."""
    import torch

    first, second = (word.cpu().numpy().astype("uint64") for word in words)
    result = (first | second << 32) % (high - low)
    return torch.from_numpy(result.astype("int64")).to(words[0].device) + low


def _uniform_cpu(word: torch.Tensor) -> torch.Tensor:
    return (word & 0x7FFFFFFF).float() * _SCALE


def _uniform_triton(word: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.where(word > 0x7FFFFFFF, ~word & _WORD, word).float() * _SCALE


def _normal_cpu(words: Words, dtype: torch.dtype) -> torch.Tensor:
    first, second = (1 - _uniform_cpu(word) for word in words)
    return ((-2.0 * first.to(dtype).log().double()).sqrt() * (2.0 * math.pi * second.double()).cos()).to(dtype)


def _normal_triton(words: Words, dtype: torch.dtype) -> torch.Tensor:
    first, second = (_uniform_triton(word) for word in words)
    return (-2.0 * first.clamp_min(1.0e-7).to(dtype).log()).sqrt() * (2.0 * math.pi * second.to(dtype)).cos()


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

    def of_dtype(self, program: Reference | None, device: str) -> str:
        """A sentence on an operator that eager has not for the dtype of its operands; "" for any other exception.

        Args:
            program: with the graph that the node is in, the first one.
            device: that it was called on.
        """
        named = _NO_KERNEL.search(str(self.raised))
        node = None if program is None else program.graphs[0].by_name.get(self.node)
        if program is None or node is None or named is None:
            return ""
        import torch

        dtype = getattr(getattr(torch, f"{named[1]}Tensor", None), "dtype", named[1])  # torch.ByteTensor.dtype
        line = program.line(node)
        at = f" at {line.place}" if line is not None else ""
        lacks = f"eager on {device} has no {node.target} ({node.name}) for {str(dtype).removeprefix('torch.')}{at}"
        return f"{lacks}, so that the program cannot be evaluated in eager: {first_line(self.raised)}"


def is_random(target: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """True if a call draws random numbers; one whose dropout is off, or has the probability 0, does not."""
    import torch

    if target == LOOKUP:
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


FILLING = ("aten.fill_.Scalar", "aten.fill_.Tensor", "aten.zero_.default")  # in any order, they leave the same
SHARED = "a tensor of which several elements are one place in memory: what it leaves there depends on the order"
_MAX_PLACES = 1 << 24  # elements of a view whose places in memory are counted


def overwrites_shared(node: Node, args: Sequence[Any]) -> bool:
    """True if a node overwrites a tensor of which several elements are one place in memory."""
    pairs = zip(node.args, args, strict=False)
    return any(isinstance(item, Mapping) and item.get("node") in node.mutates and shares_places(a) for item, a in pairs)


def require_filling(target: str) -> None:
    """Raises NotEvaluableError if what an operator leaves in such a tensor depends on the order of its work."""
    if target not in FILLING:
        raise NotEvaluableError(f"{target} overwrites {SHARED}")


def shares_places(value: Any) -> bool:
    """True for a tensor of which several elements are one place in memory: an expanded one, windows that overlap."""
    import torch

    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.numel() < 2:
        return False
    if torch._C._functorch.is_functorch_wrapped_tensor(value):
        return False
    found: int = torch._debug_has_internal_overlap(value)
    if found < 2 or value.numel() > _MAX_PLACES:  # 0: none; 1: some
        return bool(found == 1)
    count: int = _places(value).unique().numel()
    return bool(count < value.numel())


def _places(view: torch.Tensor) -> torch.Tensor:
    """The place in memory of each element of a view, from 0."""
    import torch

    return torch.arange(extent_elements(view.shape, view.stride()), device=view.device).as_strided(
        view.shape, view.stride()
    )


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
