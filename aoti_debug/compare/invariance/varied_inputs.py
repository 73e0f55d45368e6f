"""Inputs of one sample in several surroundings: alone, among others, at other places, among other values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from aoti_debug.base import wording
from aoti_debug.base.errors import ModelFaultError, UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.package.inputs.input_files import Inputs
from aoti_debug.package.inputs.signature import Dim, ModelSignature, has_nested_arguments
from aoti_debug.package.inputs.symbolic_sizes import is_symbol

if TYPE_CHECKING:
    from torch import Tensor

BATCH = "batch"
LENGTH = "length"
_SEED = 0
_SMALL = 1024  # a power of two: division is exact
_DIM = 'torch.export.Dim("batch", min=1, max=64)'


class Others(str, Enum):
    """The content of the inputs beside the sample."""

    GIVEN = "given"  # other rows of the given inputs, again from the first one when they run out
    DRAWN = "drawn"  # elements of the given inputs, in random order
    ZEROS = "zeros"  # padding
    MASKED = "masked"  # elements of the given inputs, in random order; zeros in inputs that are masks
    SMALL = "small"  # elements of the given inputs, in random order; floating ones a thousandth as large, but of masks


_AMONG = {
    Others.GIVEN: "",
    Others.DRAWN: " among drawn elements",
    Others.ZEROS: " among zeros",
    Others.MASKED: " among drawn elements that are masked",
    Others.SMALL: " among small drawn elements",
}


@dataclass(frozen=True)
class InputAxis:
    """A dimension of an input.

    Attributes:
        position: of the input among the leaves of the signature.
        axis: from 0.
    """

    position: int
    axis: int


@dataclass(frozen=True)
class VariedSize:
    """A size of the model that is not fixed.

    Attributes:
        symbol: its name in the exported program: "s77".
        axes: the dimensions of inputs that have this size.
        text: the first of them for people: "axis 0 of ids".
        bounds: the dimension with its smallest and its largest size.
        is_batch: True if it is the first dimension of an input: its rows are samples.
    """

    symbol: str
    axes: tuple[InputAxis, ...]
    text: str
    bounds: Dim
    is_batch: bool


@dataclass(frozen=True)
class SampleSurroundings:
    """The place of the sample in the inputs of one call.

    Attributes:
        size: of the varied dimension.
        place: index of the sample's first row.
        others: what the other rows hold.
    """

    size: int
    place: int
    others: Others

    @property
    def text(self) -> str:
        """ "size 16, place 0", "size 16, place 0 among drawn elements"."""
        return f"size {self.size}, place {self.place}{_AMONG[self.others]}"

    @property
    def members(self) -> dict[str, Any]:
        """The place as members of a JSON object."""
        return {"size": self.size, "place": self.place, "others": self.others.value}

    def left_out(self, error: ModelFaultError) -> str:
        """A sentence on a run that was left out, as the model did not end well in it."""
        said = wording.first_line(str(error)).partition(": ")[2]
        return f"not asked: {self.text}, for which the model does not end well: {said}"


def varied_size(signature: ModelSignature, name: str) -> VariedSize:
    """Finds the size that a name means.

    Args:
        name: "batch": the first size that is not fixed of the first dimension of an input; "length": the first one of
            another dimension; "ids.1": of axis 1 of the input ids; or the symbol, "s77".

    Raises:
        UsageError: the model has no such size, or it does not say which rows of an input belong to it.
    """
    found = list(_sizes(signature))
    if not found:
        _refuse_expressions(signature, "")
        places = "" if _has_one_row(signature) else "; --fixed looks at other places and other values in the one batch"
        hint = f"{export_hint(signature)}{places}"
        raise UsageError("every size of the inputs is fixed: there is one batch only", hint=hint)
    chosen = next((size for size in found if _is_meant(size, name, signature)), None)
    if chosen is None:
        known = ", ".join(f"{size.symbol} ({size.text})" for size in found)
        raise UsageError(f"no size of the model is {name!r}: {known}", hint=f"--dim {found[0].symbol}")
    _refuse_expressions(signature, chosen.symbol)
    return chosen


def export_hint(signature: ModelSignature) -> str:
    """The dynamic_shapes to export a program with whose batch is fixed: an entry for each input, as torch asks.

    The batch is taken to be the first size of the first tensor.
    """
    sized = [leaf.shape[0] for leaf in signature.leaves if leaf.shape]
    rows = ", and inputs of two rows or more" if _has_one_row(signature) else ""
    exports = "aoti_debug.invariance(model, x) exports a module so"
    if not sized or signature.others or has_nested_arguments(signature) or not all(x.name for x in signature.leaves):
        return f"export it with dynamic_shapes that make the first size of its inputs {_DIM}{rows}; {exports}"
    entries = (
        f'"{leaf.name}": {"{0: batch}" if leaf.shape and leaf.shape[0] == sized[0] else None}'
        for leaf in signature.leaves
    )
    return f"export it with batch = {_DIM}, dynamic_shapes={{{', '.join(entries)}}}{rows}; {exports}"


def _has_one_row(signature: ModelSignature) -> bool:
    """True if the first size of the first tensor is 1: torch fixes it in a program that is exported with it."""
    return next((leaf.shape[0].maximum == 1 for leaf in signature.leaves if leaf.shape), False)


def _refuse_expressions(signature: ModelSignature, symbol: str) -> None:
    """Refuses inputs with a size that is an expression of a symbol: "2*s77".

    Args:
        symbol: of the size that varies; "" for any.

    Raises:
        UsageError: there is one.
    """
    for position, leaf in enumerate(signature.leaves):
        for axis, dim in enumerate(leaf.shape):
            if not dim.fixed and dim.symbol != symbol and symbol in dim.symbol:
                raise UsageError(
                    f"axis {axis} of {signature.name(position)} has the size {dim.symbol}: it is not known which of "
                    "its rows belong to a sample",
                    hint="export the program with a size of its own for that axis",
                )


def _sizes(signature: ModelSignature) -> Iterator[VariedSize]:
    axes: dict[str, list[InputAxis]] = {}
    bounds: dict[str, Dim] = {}
    for position, leaf in enumerate(signature.leaves):
        for axis, dim in enumerate(leaf.shape):
            if not dim.fixed and is_symbol(dim.symbol):
                axes.setdefault(dim.symbol, []).append(InputAxis(position, axis))
                bounds.setdefault(dim.symbol, dim)
    for symbol, places in axes.items():
        text = f"axis {places[0].axis} of {signature.name(places[0].position)}"
        yield VariedSize(symbol, tuple(places), text, bounds[symbol], any(place.axis == 0 for place in places))


def _is_meant(size: VariedSize, name: str, signature: ModelSignature) -> bool:
    if name in (BATCH, LENGTH):
        return size.is_batch == (name == BATCH)
    return name == size.symbol or any(name == f"{signature.name(place.position)}.{place.axis}" for place in size.axes)


def inputs_of(given: Inputs, varied: VariedSize, sample: range, surroundings: SampleSurroundings) -> Inputs:
    """The inputs of a call in which the sample has other surroundings.

    Args:
        given: the inputs that hold the sample.
        sample: the indices of its rows there.
    """
    from torch.utils import _pytree as pytree

    leaves, structure = pytree.tree_flatten((tuple(given.args), dict(given.kwargs)))
    by_leaf: dict[int, list[int]] = {}
    for place in varied.axes:
        by_leaf.setdefault(place.position, []).append(place.axis)
    masks = masks_of(given, varied) if surroundings.others is Others.MASKED else ()
    for position, axes in by_leaf.items():
        beside = replace(surroundings, others=Others.ZEROS) if position in masks else surroundings
        leaves[position] = _varied(leaves[position], axes, sample, beside)
    args, kwargs = pytree.tree_unflatten(leaves, structure)
    return Inputs(tuple(args), kwargs)


def masks_of(given: Inputs, varied: VariedSize) -> frozenset[int]:
    """The positions of the inputs with the varied size that are masks: they hold 0 and 1 only, and others hold more."""
    from torch.utils import _pytree as pytree

    leaves = pytree.tree_leaves((tuple(given.args), dict(given.kwargs)))
    positions = {place.position for place in varied.axes}
    masks = frozenset(n for n in positions if _is_mask(leaves[n]))
    return masks if masks != positions else frozenset()


def _is_mask(tensor: Tensor) -> bool:
    """True if it holds 0 and 1 only."""
    return bool(((tensor == 0) | (tensor == 1)).all())


def require_masks(given: Inputs, varied: VariedSize) -> None:
    """Checks that there are masks among the inputs.

    Raises:
        UsageError: there are none.
    """
    if not masks_of(given, varied):
        raise UsageError(
            f"no input along {varied.text} is a mask: none holds 0 and 1 only, beside others that hold more",
            hint="--others drawn draws elements for all inputs",
        )


def require_sample(given: Inputs, varied: VariedSize, sample: range) -> None:
    """Checks that the inputs hold the sample.

    Raises:
        UsageError: they have fewer rows.
    """
    from torch.utils import _pytree as pytree

    leaves = pytree.tree_leaves((tuple(given.args), dict(given.kwargs)))
    size = leaves[varied.axes[0].position].shape[varied.axes[0].axis]
    if sample.stop > size:
        raise UsageError(
            f"the inputs have {wording.pluralize(size, 'row')} along {varied.text}: there is no row {sample.stop - 1}",
            hint=f"--sample takes a row from 0 to {size - 1}, or FIRST:END",
        )


def _varied(tensor: Tensor, axes: Sequence[int], sample: range, surroundings: SampleSurroundings) -> Tensor:
    import torch

    place, width = surroundings.place, len(sample)
    chosen: Any = tensor
    for axis in axes:
        rest = [row for row in range(tensor.shape[axis]) if row not in sample] or list(sample)
        rows = [rest[index % len(rest)] for index in range(surroundings.size - width)]
        rows[place:place] = sample
        chosen = chosen.index_select(axis, torch.tensor(rows, device=tensor.device))
    has_others = any(tensor.shape[axis] > width for axis in axes)
    if surroundings.others is not Others.GIVEN or not has_others:
        region = [slice(None)] * tensor.ndim
        for axis in axes:
            region[axis] = slice(place, place + width)
        own = chosen[tuple(region)].clone()
        chosen = torch.zeros_like(chosen) if surroundings.others is Others.ZEROS else _drawn(tensor, chosen)
        if surroundings.others is Others.SMALL and tensor.is_floating_point() and not _is_mask(tensor):
            chosen = (chosen.double() / _SMALL).to(chosen.dtype)
        chosen[tuple(region)] = own
    order = sorted(range(tensor.ndim), key=lambda axis: -tensor.stride(axis))
    back = [order.index(axis) for axis in range(tensor.ndim)]
    return chosen.permute(order).contiguous().permute(back)


def _drawn(tensor: Tensor, like: Tensor) -> Tensor:
    """Elements of a tensor in random order, in the shape of another one; the same each time."""
    import torch

    generator = torch.Generator().manual_seed(_SEED)
    places = torch.randint(0, max(tensor.numel(), 1), (like.numel(),), generator=generator)
    return tensor.reshape(-1)[places.to(tensor.device)].reshape(like.shape).clone()


def bounds_error(varied: VariedSize, size: int) -> str:
    """The reason why a size is not possible; "" if it is."""
    if varied.bounds.admits(size):
        return ""
    limit = "" if varied.bounds.maximum < 0 else f" to {varied.bounds.maximum}"
    return f"{varied.text} is {varied.bounds.minimum}{limit}: {size} is not possible"


def possible_sizes(varied: VariedSize, sizes: Sequence[int]) -> tuple[int, ...]:
    """Sizes as near to those given as the model takes them, the smallest one included."""
    most = max(sizes) if varied.bounds.maximum < 0 else varied.bounds.maximum
    return tuple(sorted({min(max(size, varied.bounds.minimum), most) for size in sizes}))
