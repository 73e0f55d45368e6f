"""The arithmetics that a region is evaluated in, and values in their dtypes. Runs in a child process.

A weight in float64 takes two to eight times its size, so a large input keeps its own dtype until an operator reads it.
Of most operators that read a large weight, one copy of a weight at a time is made; of selections and views none, and of
matrix products a few columns or rows at a time: their results are the same, or differ by the rounding of float64.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Set
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from aoti_debug.base import dtypes
from aoti_debug.base.frozen import dataclass
from aoti_debug.package.program_graphs import ValueKey

if TYPE_CHECKING:
    import torch

if TYPE_CHECKING:
    pass

_CONVOLUTIONS = frozenset({"convolution", "_convolution", "cudnn_convolution", "conv1d", "conv2d", "conv3d"})
_MATRIX_PRODUCTS = frozenset({"mm", "bmm", "addmm", "baddbmm", "matmul", "linear"})
_DROPPED_BITS = 13  # of the 23 of float32
_HALF = ("float16", "bfloat16")
LARGE = 16 << 20  # bytes of a tensor in its own dtype
_PIECE = 128 << 20  # bytes of a converted part of a tensor
_STEPS = 8 << 20  # bytes of a converted tensor whose elements are moved together
_WHOLE = 2 * _PIECE  # bytes of a converted tensor that is multiplied in one piece
_MOVES = frozenset(
    f"aten.{name}"
    for name in (
        "alias.default",
        "detach.default",
        "embedding.default",
        "gather.default",
        "index.Tensor",
        "index_select.default",
        "permute.default",
        "reshape.default",
        "select.int",
        "slice.Tensor",
        "squeeze.dim",
        "t.default",
        "transpose.int",
        "unsqueeze.default",
        "view.default",
    )
)
_PRODUCTS = {"aten.mm.default": 0, "aten.addmm.default": 1}  # the position of the first factor


def may_use_tensor_float(target: str, device: str) -> bool:
    """True if an operator of float32 tensors may multiply in TF32 on a device: with 10 bits of mantissa.

    torch lets cuDNN use it for convolutions unless `torch.backends.cudnn.allow_tf32` is off, and cuBLAS for matrix
    products if `torch.backends.cuda.matmul.allow_tf32` is on. Whether it is used depends on layout and size, so that
    eager and a kernel may differ.
    """
    import torch

    if not device.startswith("cuda"):
        return False
    name = target.split(".")[1] if target.startswith("aten.") else ""
    if name in _CONVOLUTIONS:
        return bool(torch.backends.cudnn.allow_tf32)
    return name in _MATRIX_PRODUCTS and bool(torch.backends.cuda.matmul.allow_tf32)


def tensor_float_of(value: Any) -> Any:
    """The nearest TF32 numbers to a float32 tensor; another value as it is."""
    import torch

    if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
        return value
    bits = value.contiguous().view(torch.int32)
    half, mask = 1 << (_DROPPED_BITS - 1), -(1 << _DROPPED_BITS)
    nearest = ((bits + half) & mask).view(torch.float32)
    return torch.where(value.isfinite(), nearest, value)


class Arithmetic(str, Enum):
    """The arithmetic of the operators of a region."""

    EAGER = "eager"  # as the program says: every operator rounds to its own dtype
    KERNEL = "kernel"  # float32 within the region for float16 and bfloat16, as in a fused kernel; TF32 where allowed
    DOUBLE = "float64"


_WIDER: Mapping[Arithmetic, Mapping[str, str]] = {
    Arithmetic.EAGER: {},
    Arithmetic.KERNEL: dict.fromkeys(_HALF, "float32"),
    Arithmetic.DOUBLE: {**dict.fromkeys((*_HALF, "float32"), "float64"), "complex64": "complex128"},
}


def wider(dtype: str, arithmetic: Arithmetic) -> str:
    """The dtype that stands for another one within a region: "float64" for "bfloat16"."""
    return _WIDER[arithmetic].get(dtype, dtype)


def unit(dtype: torch.dtype) -> float:
    """The relative distance of neighbouring numbers in the arithmetic that kernels use for a dtype."""
    import torch

    return 2.0**-52 if dtype == torch.float64 else 2.0**-23


@dataclass(frozen=True)
class Narrow:
    """A tensor in its own dtype, to be read in another one.

    Attributes:
        dtype: that it is read in.
        upwards: True where an element is to be moved up by `step`, False where down; None to move none.
        step: relative.
    """

    tensor: torch.Tensor
    dtype: torch.dtype
    upwards: torch.Tensor | None = None
    step: float = 0.0

    @property
    def nbytes(self) -> int:
        """The size in bytes of the converted tensor."""
        return int(self.tensor.numel() * self.dtype.itemsize)

    def wide(self) -> torch.Tensor:
        """The converted tensor."""
        if self.upwards is None:
            return self.tensor.to(self.dtype)
        assert self.dtype.itemsize == 8  # that of float64: what is moved is split alike
        converted = self.tensor.to(self.dtype, copy=True)
        for part, upwards in zip(split(converted, _STEPS), split(self.upwards, _STEPS // 8), strict=True):
            part.mul_(upwards.to(self.dtype).mul_(2).sub_(1).mul_(self.step).add_(1))
        return converted

    def moved(self, function: Callable[[torch.Tensor], torch.Tensor]) -> Narrow:
        """The result of a function that only selects or arranges elements."""
        upwards = None if self.upwards is None else function(self.upwards)
        return replace(self, tensor=function(self.tensor), upwards=upwards)

    def pieces(self, dim: int, nbytes: int) -> Iterator[torch.Tensor]:
        """Converted parts of the tensor along a dimension, in order, of that size or of one index."""
        size = self.tensor.shape[dim]
        length = max(1, size * nbytes // max(self.nbytes, 1))
        for begin in range(0, size, length):
            cut = functools.partial(_cut, dim=dim, begin=begin, end=min(begin + length, size))
            yield self.moved(cut).wide()


def narrow(value: Any, arithmetic: Arithmetic) -> Any:
    """A value, as Narrow if it is a large tensor that another dtype stands for in an arithmetic."""
    import torch

    if not isinstance(value, torch.Tensor) or value.nbytes < LARGE:
        return value
    dtype = getattr(torch, wider(dtypes.bare_name(value.dtype), arithmetic))
    return value if dtype == value.dtype else Narrow(value, dtype)


class WideValues(MutableMapping[ValueKey, Any]):
    """Values by key; one that is held as Narrow is converted each time it is read."""

    def __init__(self) -> None:
        self._held: dict[ValueKey, Any] = {}

    def __getitem__(self, key: ValueKey) -> Any:
        value = self._held[key]
        return value.wide() if isinstance(value, Narrow) else value

    def __setitem__(self, key: ValueKey, value: Any) -> None:
        self._held[key] = value

    def __delitem__(self, key: ValueKey) -> None:
        del self._held[key]

    def __iter__(self) -> Iterator[ValueKey]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: object) -> bool:
        return key in self._held

    def held(self, key: ValueKey) -> Any:
        """A value as it is held."""
        return self._held[key]

    def without(self, nodes: Set[str]) -> WideValues:
        """The values, but for those that some nodes compute or overwrite."""
        others = WideValues()
        others._held = {key: value for key, value in self._held.items() if (key.after or key.node) not in nodes}
        return others

    def drop(self, nodes: Set[str]) -> None:
        """Drops all values of some nodes."""
        for key in [key for key in self._held if key.node in nodes]:
            del self._held[key]


def moves(target: str) -> bool:
    """True for an operator that only selects or arranges the elements of its first argument."""
    return target in _MOVES


def wide(value: Any) -> Any:
    """A value, with what is Narrow in it converted."""
    if isinstance(value, Narrow):
        return value.wide()
    if isinstance(value, list):
        return [wide(item) for item in value]
    if isinstance(value, dict):
        return {name: wide(item) for name, item in value.items()}
    return value


def as_narrow(value: Any) -> Any:
    """A value, with the tensors of what is Narrow in it: of the same shapes."""
    if isinstance(value, Narrow):
        return value.tensor
    return [as_narrow(item) for item in value] if isinstance(value, list) else value


def product(target: str, args: list[Any], multiply: Callable[[list[Any]], Any]) -> torch.Tensor | None:
    """The product of matrices of which one is large, a few of its rows or columns at a time; None for anything else."""
    import torch

    if target not in _PRODUCTS:
        return None
    at = _PRODUCTS[target]
    for position, dim in ((at + 1, 1), (at, 0)):
        factor = args[position]
        if isinstance(factor, Narrow) and factor.nbytes > _WHOLE:
            others = [wide(item) if index != position else None for index, item in enumerate(args)]
            parts: list[torch.Tensor] = []
            begin = 0
            for piece in factor.pieces(dim, _PIECE):
                end = begin + piece.shape[dim]
                summand = [_summand(item, dim, begin, end) for item in others[:at]]
                parts.append(multiply([*summand, *(piece if item is None else item for item in others[at:])]))
                begin = end
            return torch.cat(parts, dim)
    return None


def _summand(summand: Any, dim: int, begin: int, end: int) -> Any:
    """The part of a summand, which may be broadcast, for some rows or columns of a product."""
    own = dim - 2 + summand.dim()
    is_broadcast = own < 0 or summand.shape[own] == 1
    return summand if is_broadcast else _cut(summand, dim=own, begin=begin, end=end)


def split(tensor: torch.Tensor, nbytes: int) -> tuple[torch.Tensor, ...]:
    """Parts of a tensor along its first dimension, of that size or of one index."""
    if not tensor.dim() or tensor.nbytes <= nbytes:
        return (tensor,)
    return tuple(tensor.split(max(1, tensor.shape[0] * nbytes // tensor.nbytes)))


def _cut(tensor: torch.Tensor, dim: int, begin: int, end: int) -> torch.Tensor:
    return tensor.narrow(dim, begin, end - begin)
