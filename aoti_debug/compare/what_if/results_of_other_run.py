"""The recorded results of one run as replacements for those of another."""

from __future__ import annotations

from collections.abc import Iterator

from aoti_debug.compare.diff.difference import TensorDifference
from aoti_debug.compare.diff.pairing.pair import LaunchPair
from aoti_debug.compare.measure.output_errors import output_error
from aoti_debug.compare.what_if.instructions import Replace
from aoti_debug.runs.rundir.run_directory import RunDir


def results_of(pair: LaunchPair, first: RunDir) -> Iterator[Replace]:
    """The results of the first run that were saved, for what the launch of the second writes in the same shape.

    Raises:
        RunDirError: a path leads outside of the run.
    """
    for tensors in pair.writes:
        layouts = tensors.a.argument.layout, tensors.b.argument.layout
        if layouts[0] is None or layouts[1] is None or tensors.a.file is None:
            continue
        if (layouts[0].dtype, layouts[0].shape) == (layouts[1].dtype, layouts[1].shape):
            yield Replace(pair.launch.id, tensors.b.argument.name, first.tensor_path(tensors.a.file))


def is_rounding(difference: TensorDifference, first: RunDir, second: RunDir) -> bool:
    """True if rounding may explain the difference of two saved tensors; False if that is not known."""
    files = difference.pair.a.file, difference.pair.b.file
    if files[0] is None or files[1] is None or difference.elements is None:
        return False
    return output_error(second.tensor_path(files[1]), first.tensor_path(files[0])).is_right
