"""Random inputs that fit a model's signature, for a first look without real inputs.

Floating-point values are normally distributed. Integers may be indices: they stay below the smallest dimension of the
other tensors that the same launches read, or are 0 and 1 if those are not known.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aoti_debug.base import dtypes
from aoti_debug.package.argument_values import extent_elements
from aoti_debug.package.inputs.input_files import Inputs, constant_value, unflatten
from aoti_debug.package.inputs.signature import Dim, Leaf, ModelSignature
from aoti_debug.package.inputs.symbolic_sizes import Symbols, is_symbol
from aoti_debug.package.manifest import Arg, Form, Manifest, Role, Site

if TYPE_CHECKING:
    from torch import Tensor

RANDOM_INPUTS_NOTE = (
    "the inputs are random (--random-inputs), and may be the only cause of the fault: to be sure, pass real ones "
    "with --inputs FILE.pt"
)
UNKNOWN_LIMIT = 2  # for integers: 0 and 1
_SPREAD = 14  # the largest difference between a size and its minimum
_TENSORS = (Form.TENSOR, Form.OPTIONAL, Form.LIST, Form.OPTIONAL_LIST, Form.POINTER)


def make(signature: ModelSignature, manifest: Manifest, seed: int) -> Inputs:
    """Makes inputs that fit a signature; the same for the same seed.

    Raises:
        ArtifactError: the value of an input that is not a tensor is unknown.
    """
    import torch

    sizes = shapes(signature, seed)
    limits = index_limits(signature, manifest, sizes)
    generator = torch.Generator().manual_seed(seed)
    values = [
        _tensor(leaf, shape, limit, generator) if leaf.is_tensor else constant_value(signature, position)
        for position, (leaf, shape, limit) in enumerate(zip(signature.leaves, sizes, limits, strict=True))
    ]
    if not signature.in_spec:
        return Inputs(tuple(values), {})
    return unflatten(values, signature)


def shapes(signature: ModelSignature, seed: int) -> tuple[tuple[int, ...], ...]:
    """Chooses sizes within the recorded bounds; dimensions of one symbol, or with equal bounds, get the same size."""
    symbols = Symbols()
    dims = [dim for leaf in signature.leaves for dim in leaf.shape if not dim.fixed]
    for dim in dims:
        if is_symbol(dim.symbol):
            symbols.bind(dim.symbol, _random_size(dim, dim.symbol, seed))
    return tuple(tuple(_choose_size(dim, symbols, seed) for dim in leaf.shape) for leaf in signature.leaves)


def index_limits(signature: ModelSignature, manifest: Manifest, sizes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Returns the exclusive upper bound of the integers of each input: below it they are valid indices everywhere."""
    tensors = [position for position, leaf in enumerate(signature.leaves) if leaf.is_tensor]
    if len(manifest.inputs) != len(tensors):
        return (UNKNOWN_LIMIT,) * len(signature.leaves)
    variables = dict(zip(tensors, manifest.inputs, strict=True))
    known_shapes = {constant.name: constant.shape for constant in manifest.constants}
    known_shapes |= {name: sizes[position] for position, name in variables.items()}
    return tuple(
        _limit(variables[position], manifest, known_shapes) if position in variables else UNKNOWN_LIMIT
        for position in range(len(signature.leaves))
    )


def _limit(name: str, manifest: Manifest, shapes: Mapping[str, tuple[int, ...]]) -> int:
    limits = [
        _limit_at(name, site, shapes)
        for site in manifest.sites
        if any(_variable(arg) == name for arg in _tensors_read(site))
    ]
    return max(1, min(limits, default=UNKNOWN_LIMIT))


def _limit_at(name: str, site: Site, shapes: Mapping[str, tuple[int, ...]]) -> int:
    others = [shapes.get(other) for arg in _tensors_read(site) if (other := _variable(arg)) != name]
    sizes = [size for shape in others if shape is not None for size in shape]
    return min(sizes) if sizes and None not in others else UNKNOWN_LIMIT


def _tensors_read(site: Site) -> Iterator[Arg]:
    return (arg for arg in site.args if arg.form in _TENSORS and arg.role is not Role.OUT)


def _variable(arg: Arg) -> str:
    return arg.base or arg.name


def _choose_size(dim: Dim, symbols: Symbols, seed: int) -> int:
    if dim.fixed:
        return dim.minimum
    known = symbols.value(dim.symbol) if dim.symbol else None
    return _random_size(dim, f"{dim.minimum}..{dim.maximum}", seed) if known is None else known


def _random_size(dim: Dim, name: str, seed: int) -> int:
    least = max(dim.minimum, 2) if dim.maximum < 0 else min(max(dim.minimum, 2), dim.maximum)
    most = least + _SPREAD if dim.maximum < 0 else min(least + _SPREAD, dim.maximum)
    return random.Random(f"{seed} {name}").randint(least, most)


def _tensor(leaf: Leaf, shape: tuple[int, ...], limit: int, generator: Any) -> Tensor:
    import torch

    strides = _strides(leaf, shape)
    extent = extent_elements(shape, strides)
    dtype = getattr(torch, dtypes.bare_name(leaf.dtype))
    if dtype is torch.bool:
        flat = torch.randint(0, 2, (extent,), generator=generator).to(dtype)
    elif dtype.is_floating_point or dtype.is_complex:
        wide = torch.complex64 if dtype.is_complex else torch.float32
        flat = torch.randn((extent,), generator=generator, dtype=wide).to(dtype)
    else:
        flat = torch.randint(0, limit, (extent,), generator=generator).to(dtype)
    return flat.to(leaf.device).as_strided(shape, strides)


def _strides(leaf: Leaf, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Evaluates the strides of a leaf; row-major ones if they are not all known."""
    contiguous = tuple(math.prod(max(size, 1) for size in shape[dim + 1 :]) for dim in range(len(shape)))
    if leaf.strides is None:
        return contiguous
    symbols = Symbols()
    for dim, size in zip(leaf.shape, shape, strict=True):
        symbols.bind(dim.symbol, size)
    strides = [symbols.value(str(stride)) for stride in leaf.strides]
    return contiguous if None in strides else tuple(stride for stride in strides if stride is not None)
