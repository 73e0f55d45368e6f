"""Times calls of several packages of one model in turn, so that each two of them can be compared in pairs.

The packages are loaded into one process at level 0 and called one after the other, round after round, in turns forwards
and backwards: what slows the machine down meets all of them. `main` is that process.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from aoti_debug.base.abi import Variable
from aoti_debug.base.errors import TargetError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import user_code as user_modules
from aoti_debug.base.machine.files import json_data
from aoti_debug.base.machine.processes import python_process
from aoti_debug.base.machine.processes.child_process import changed_environment
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.package.inputs import input_files
from aoti_debug.package.pt2 import archive
from aoti_debug.runs.run.load_model import load_recorded

PAIRS = 21  # how often to time calls, unless another number is asked for
_WORKER = "aoti_debug.runs.run.timed_pairs"
_SECONDS = 600.0
_WARM_UP = 3
_SAMPLE = 0.005  # seconds that a sample takes at least: short calls are repeated
_ENOUGH = 60.0  # seconds after which no round is begun any more
_FEWEST = 5


@dataclass(frozen=True)
class TimedPackages:
    """Packages of one model.

    Attributes:
        packages: instrumented packages.
        rounds: how often each is timed.
        inputs: a file; None for those embedded in the packages.
        own_inputs: a file for each package instead; () for the same ones.
    """

    packages: tuple[str, ...]
    rounds: int
    inputs: Path | None = None
    user_code: UserCode = UserCode()
    own_inputs: tuple[Path, ...] = ()


@dataclass(frozen=True)
class PairedTimes:
    """Times of calls of two packages, in pairs.

    Attributes:
        before, after: seconds of a call, the medians.
        ratio: after by before, the median over the pairs.
        low, high: its quartiles.
        pairs: their number.
    """

    before: float
    after: float
    ratio: float
    low: float
    high: float
    pairs: int

    @classmethod
    def of(cls, before: Sequence[float], after: Sequence[float]) -> PairedTimes:
        """The pairs of two sequences of at least two times, in seconds."""
        ratios = [second / first for first, second in zip(before, after, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
        return cls(statistics.median(before), statistics.median(after), middle, low, high, len(ratios))

    @property
    def is_clear(self) -> bool:
        """True if three quarters of the pairs at least say the same: slower, or faster."""
        return self.low > 1 or self.high < 1


@dataclass(frozen=True)
class _Request:
    packages: tuple[str, ...]
    rounds: int
    inputs: tuple[str, ...]
    imports: tuple[str, ...]
    libraries: tuple[str, ...]


@dataclass(frozen=True)
class _Times:
    seconds: tuple[tuple[float, ...], ...]
    failure: str = ""


def time_calls(asked: TimedPackages, folder: Path) -> tuple[tuple[float, ...], ...]:
    """Seconds of the calls of each package; those of one place were made one after the other.

    Args:
        folder: for the request, the answer and the output of the process.

    Raises:
        TargetError: a package cannot be called, or takes too long.
    """
    code = asked.user_code
    for path in asked.packages:
        code = code.after(
            archive.inspect(Path(path)).manifest().imports, archive.inspect(Path(path)).manifest().libraries
        )
    inputs = tuple(map(str, asked.own_inputs)) or (str(asked.inputs or ""),) * len(asked.packages)
    request = _Request(asked.packages, asked.rounds, inputs, code.imports, tuple(map(str, code.libraries)))
    with changed_environment({Variable.LEVEL.value: "0"}):
        answer, status = python_process.ask(_WORKER, request, _Times, folder, "times", seconds=_SECONDS)
    if answer is None or answer.failure:
        why = f"the process ended with {status}" if answer is None else answer.failure
        raise TargetError(f"calls were not timed: {why}", hint=f"{folder / 'times.log'} has its output")
    return answer.seconds


def main() -> int:
    """Times the packages of the request in the file that the first argument names."""
    request = json_data.parse(_Request, Path(sys.argv[1]).read_bytes())
    try:
        answer = _Times(_timed(request))
    except Exception as error:  # noqa: BLE001 - whatever a model raises is the answer
        answer = _Times((), f"{type(error).__name__}: {error}")
    Path(sys.argv[2]).write_text(json_data.to_text(answer))
    return 0


def _timed(request: _Request) -> tuple[tuple[float, ...], ...]:
    import torch

    user_modules.load(request.imports, request.libraries)
    packages = [archive.inspect(Path(path)) for path in request.packages]
    inputs = [
        input_files.given_or_embedded(package, path) for package, path in zip(packages, request.inputs, strict=True)
    ]
    index = input_files.device_index((inputs[0].args, dict(inputs[0].kwargs)))
    if index >= 0:
        torch.cuda.set_device(index)
    wait: Callable[[], Any] = torch.cuda.synchronize if index >= 0 else _nothing
    calls: list[Callable[[], Any]] = []
    for package, given in zip(packages, inputs, strict=True):
        model = load_recorded(package, package.manifest())
        calls.append(lambda model=model, given=given: model(*given.args, **given.kwargs))  # type: ignore[misc]
    times: list[list[float]] = [[] for _ in calls]
    with torch.no_grad():
        repeats = [_repeats(call, wait) for call in calls]
        began = time.monotonic()
        for number in range(request.rounds):
            if number >= _FEWEST and time.monotonic() - began > _ENOUGH:
                break
            order = range(len(calls)) if number % 2 == 0 else range(len(calls) - 1, -1, -1)
            for place in order:
                times[place].append(_seconds(calls[place], repeats[place], wait))
    return tuple(map(tuple, times))


def _repeats(call: Callable[[], Any], wait: Callable[[], Any]) -> int:
    """How many calls make a sample; calls it a few times first."""
    for _ in range(_WARM_UP):
        taken = _seconds(call, 1, wait)
    return max(1, round(_SAMPLE / max(taken, 1e-7)))


def _seconds(call: Callable[[], Any], repeats: int, wait: Callable[[], Any]) -> float:
    wait()
    began = time.perf_counter()
    for _ in range(repeats):
        call()
    wait()
    return (time.perf_counter() - began) / repeats


def _nothing() -> None:
    """Waits for nothing: calls on the CPU are done when they return."""


if __name__ == "__main__":
    sys.exit(main())
