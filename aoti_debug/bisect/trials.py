"""The builds of a bisection of settings with their results, on the disk: one that is interrupted goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aoti_debug.errors import RunDirError
from aoti_debug.machine import files, json_data

FORMAT = 1
NAME = "bisect.json"


@dataclass(frozen=True)
class Operator:
    """An operator of a wrong launch, "aten.relu.default", with the nodes of the lowered graph that call it."""

    name: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Trial:
    """A build of the program with a change, and what was found.

    Attributes:
        name: the change, "--inductor-config cpp.simdlen=1", "at most 7 lowerings"; "as it is".
        wrong: the finding, "0.7 cpp_fused_relu_3 is wrong"; "" if there is none.
        failure: why it was not built or run; "" if it was.
        applied: of a limited subsystem, its applications in order.
        operators: of what is wrong as it is: those that may be to blame.
        device: "cpu" or "cuda".
        seconds: the time that it took.
    """

    name: str
    wrong: str = ""
    failure: str = ""
    applied: tuple[str, ...] = ()
    operators: tuple[Operator, ...] = ()
    device: str = "cpu"
    seconds: float = 0.0

    @property
    def is_right(self) -> bool:
        """True if it was built and run without a finding."""
        return not self.wrong and not self.failure


@dataclass(frozen=True)
class _State:
    format: int
    key: str
    configs: Mapping[str, Any] = field(default_factory=dict)
    trials: tuple[Trial, ...] = ()
    is_done: bool = False


class Trials:
    """The trials of one bisection.

    Args:
        key: what identifies it: the program, its settings and inputs; a file of another key or of a finished bisection
            begins anew.

    Raises:
        RunDirError: the file is damaged.
    """

    def __init__(self, folder: Path, key: str, configs: Mapping[str, Any]) -> None:
        self._path = folder / NAME
        self._state = _State(FORMAT, key, configs)
        if self._path.exists():
            try:
                found = json_data.from_data(_State, json_data.parse_versioned(self._path.read_bytes(), FORMAT))
            except (json_data.DamagedJsonError, json_data.OtherFormatError) as error:
                raise RunDirError(f"{self._path} is damaged: {error}", hint="remove it to begin anew") from error
            if found.key == key and not found.is_done:
                self._state = found
        self.known = len(self._state.trials)

    @property
    def all(self) -> tuple[Trial, ...]:
        """The finished trials, in order."""
        return self._state.trials

    def find(self, name: str) -> Trial | None:
        """The finished trial of a name."""
        return next((trial for trial in self._state.trials if trial.name == name), None)

    def add(self, trial: Trial) -> None:
        """Adds a trial, and writes it down."""
        self._write(replace(self._state, trials=(*self._state.trials, trial)))

    def finish(self) -> None:
        """The next bisection begins anew."""
        self._write(replace(self._state, is_done=True))

    def _write(self, state: _State) -> None:
        self._state = state
        files.write(self._path, json_data.to_text(state))
