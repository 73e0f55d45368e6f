"""Stops a run before a launch, with everything as it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from aoti_debug.base.errors import TargetError
from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.compare.what_if.instructions import Instruction, Stop, Wait
from aoti_debug.compare.what_if.replay_session import ReplaySession
from aoti_debug.runs.run.supervise import Observer
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.run_json import ExitKind
from aoti_debug.runs.rundir.timeline import Launch


@dataclass(frozen=True)
class Reached:
    """A run that has stopped before a launch.

    Attributes:
        run: it recorded the arguments of the launch.
        seconds: from the start of the process to its end.
        refused: the instructions that were not followed.
    """

    run: RunDir
    launch: Launch
    seconds: float
    refused: tuple[str, ...]


def stop_before(
    session: ReplaySession,
    instructions: Sequence[Instruction],
    launch: Launch,
    wait: Callable[[int], None] | None = None,
) -> Reached:
    """Runs the model up to a launch.

    Args:
        wait: called with the id of the process while it stands before the launch; it goes no further afterwards.

    Raises:
        TargetError: it did not come so far.
    """
    file = session.folder / "wait"
    waits: list[Instruction] = []
    if wait is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        waits.append(Wait(launch.id, file))
    session.options = replace(session.options, launch=launch.id)
    found = session.again(
        f"to {launch.id}",
        (*instructions, *waits, Stop(launch.id)),
        level=1,
        observer=Observer() if wait is None else _WaitObserver(file, wait),
    )
    if found.run.state is not ExitKind.STOPPED:
        raise TargetError(
            f"{launch.id} was not reached: {found.run.info.exit.detail or found.run.state.value}",
            hint=f"aoti-debug show --run {found.run.path}",
        )
    return Reached(found.run, found.run.launch(launch.id), found.seconds, found.refused)


class _WaitObserver(Observer):
    """Notices that the process waits, and lets it go on."""

    def __init__(self, file: Path, wait: Callable[[int], None]) -> None:
        self._file = file
        self._wait = wait

    def tick(self) -> None:
        waiting = self._file.with_name(f"{self._file.name}.waiting")
        if not self._file.exists() or not waiting.exists():
            return
        try:
            self._wait(int(waiting.read_text()))
        finally:
            self._file.unlink()
