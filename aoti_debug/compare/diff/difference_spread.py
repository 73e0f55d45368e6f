"""The distribution of the elements in which a tensor of two runs differs: how much, and where they lie."""

from __future__ import annotations

from aoti_debug.base import wording
from aoti_debug.base.errors import RunDirError
from aoti_debug.compare.diff.difference import TensorDifference
from aoti_debug.compare.diff.element_difference import element_sizes
from aoti_debug.compare.protocol.measurement import ErrorSpread
from aoti_debug.runs.rundir.formats.stored_tensor import open_tensor
from aoti_debug.runs.rundir.run_directory import RunDir

MAX_ELEMENTS = 1 << 24  # elements of a tensor that is read for it


def difference_spread(difference: TensorDifference, a: RunDir, b: RunDir) -> ErrorSpread:
    """The distribution of the differences: in ULP, or in absolute value where the dtype has none; NaN are misplaced.

    Raises:
        ValueError: it is not known; the message says why.
        RunDirError: one of the tensors is damaged.
    """
    import torch

    from aoti_debug.compare.measure.evaluated import spread_of

    pair, elements = difference.pair, difference.elements
    layout, first, second = pair.b.argument.layout, pair.a.file, pair.b.file
    if elements is None or layout is None or first is None or second is None:
        raise ValueError(difference.reason)
    if elements.elements > MAX_ELEMENTS:
        raise ValueError(f"it has more than {wording.pluralize(MAX_ELEMENTS, 'element')}")
    tensors = open_tensor(a.tensor_path(first)), open_tensor(b.tensor_path(second))
    sizes = torch.from_numpy(element_sizes(*tensors))
    if sizes.numel() != layout.numel:
        raise RunDirError(f"{wording.printable(second.path)} is damaged: its size is not that of the launch's tensor")
    ulp = sizes if elements.max_ulp is not None else None
    return spread_of(layout.shape, sizes, ulp, sizes.isinf(), bound=0)
