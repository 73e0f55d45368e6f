"""The recorded results of the launches before one, instead of launching them again."""

from __future__ import annotations

from collections.abc import Iterator

from aoti_debug.base.abi import Phase
from aoti_debug.compare.diff.difference import TensorDifference
from aoti_debug.compare.diff.pairing.pair import LaunchPair
from aoti_debug.compare.measure.output_errors import output_error
from aoti_debug.compare.what_if.instructions import Instruction, Replace, Skip
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.timeline import Launch


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


def recorded_results(run: RunDir, launch: Launch) -> Iterator[Instruction]:
    """The instructions by which everything before a launch of a run gets what was recorded.

    A launch of which a result was not saved runs again.

    Raises:
        RunDirError: a path leads outside of the run.
    """
    for earlier in run.launches:
        if earlier.sequence >= launch.sequence:
            return
        written = {argument.name: argument.files.get(Phase.AFTER) for argument in earlier.args if argument.written}
        files = {name: saved for name, saved in written.items() if saved is not None and saved.path}
        if not written or len(files) < len(written):
            continue
        yield Skip(earlier.id)
        for name, saved in files.items():
            yield Replace(earlier.id, name, run.tensor_path(saved))
