"""The recorded results of the launches before one, instead of launching them again."""

from __future__ import annotations

from collections.abc import Iterator

from aoti_debug.base.abi import Phase
from aoti_debug.compare.what_if.instructions import Instruction, Replace, Skip
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.timeline import Launch


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
