"""The changes that make a package equal to eager: the answer as data, as lines of text, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

from aoti_debug.base import wording
from aoti_debug.base.errors import EXIT_CLEAN, EXIT_FINDING, EXIT_UNCONFIRMED
from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.bisect import build_changes
from aoti_debug.compare.bisect.build_changes import Change, LeaveOut, Part, SettingChange
from aoti_debug.compare.bisect.build_trials import BuildTrial, result_text
from aoti_debug.compare.bisect.equality import UnequalLaunch
from aoti_debug.runs.run.timed_pairs import PairedTimes

FORMAT = 1
_MAX_LAUNCHES = 4  # launches that are listed for a change
_MAX_LEFT = 12  # launches that are listed of those that stay unequal
_BUG = "bug"
_SWITCH = "switch"
_ROUNDING = "rounding"
_KINDS = {
    _BUG: "a bug may be the cause: in the baseline, {wrong}; aoti-debug triage looks into it",
    _SWITCH: "a switch: no launch that was compared is wrong, and settings alone make it equal",
    _ROUNDING: "rounding, likely: no launch that was compared is wrong; operators that Inductor computes otherwise may "
    "round otherwise",
}


class EqualEnd(str, Enum):
    """The end of a search."""

    ALREADY = "equal already"
    EQUAL = "equal with the changes, of which each is needed"
    NOT_MINIMAL = "equal with the changes, of which some may not be needed"
    CANNOT = "not equal with all changes together either"
    UNFINISHED = "no equal build yet"
    NOT_REPEATABLE = "what it is compared with is not repeatable"
    UNKNOWN = "not comparable"


@dataclass(frozen=True, kw_only=True)
class EqualStep:
    """A change that is needed.

    Attributes:
        without: the trial of the other changes alone.
        price: how long a call takes with it, beside the others alone; None if it was not timed.
    """

    change: Change
    without: BuildTrial
    price: PairedTimes | None = None

    @property
    def heals(self) -> tuple[UnequalLaunch, ...]:
        """The launches that are not equal without it; () if it changes what comes before the launches."""
        return () if self.without.equality is None else self.without.equality.launches


@dataclass(frozen=True, kw_only=True)
class EqualSearch:
    """The answer of a search for the changes that make a program equal to eager.

    Attributes:
        trials: all builds, in order, those of an earlier, interrupted search first.
        known: how many of them that were.
        reason: of an end without an answer, why.
        steps: the changes that are needed; of an unfinished search those that may be.
        best: the trial whose unequal launches compute the fewest operators.
        price: how long a call takes with all changes, beside the baseline; None if it was not timed.
        untimed: why it was not; "" if it was.
        directory: of the search.
    """

    end: EqualEnd
    trials: tuple[BuildTrial, ...]
    known: int
    reason: str = ""
    steps: tuple[EqualStep, ...] = ()
    best: BuildTrial | None = None
    price: PairedTimes | None = None
    untimed: str = ""
    directory: str = ""

    @property
    def baseline(self) -> BuildTrial:
        """The build without changes."""
        return self.trials[0]

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines to paste."""
        return build_changes.lines_of([step.change for step in self.steps])

    @property
    def kind(self) -> str:
        """ "bug", "rounding" or "switch": what the difference is; "" where that is not known."""
        if self.end is EqualEnd.ALREADY or self.end in (EqualEnd.NOT_REPEATABLE, EqualEnd.UNKNOWN):
            return ""
        if self.baseline.bug:
            return _BUG
        if self.end is EqualEnd.UNFINISHED:
            return ""
        only_settings = all(isinstance(step.change, SettingChange) for step in self.steps)
        return _SWITCH if self.steps and only_settings else _ROUNDING


def exit_code(found: EqualSearch) -> int:
    """0: equal already; 1: it is not equal; 7: that is not known, or the search did not come to its end."""
    if found.end is EqualEnd.ALREADY:
        return EXIT_CLEAN
    is_answer = found.end in (EqualEnd.EQUAL, EqualEnd.NOT_MINIMAL, EqualEnd.CANNOT)
    return EXIT_FINDING if is_answer else EXIT_UNCONFIRMED


def equal_lines(found: EqualSearch) -> list[str]:
    """The builds of an earlier, interrupted search, and the answer: changes with what each heals and costs."""
    earlier = found.trials[: found.known]
    width = max((len(trial.name) for trial in earlier), default=0)
    lines = [f"{t.name:<{width}}  {wording.duration(t.seconds):>8}  {result_text(t)}" for t in earlier]
    if earlier:
        lines += [f"note: the first {wording.pluralize(found.known, 'build')} had been made before", ""]
    return [*lines, *_answer(found)]


def _answer(found: EqualSearch) -> Iterator[str]:
    builds = wording.pluralize(len(found.trials), "build")
    if found.end is EqualEnd.ALREADY:
        yield f"EQUAL ALREADY: what the package returns and keeps is eager's, bit for bit; {builds}"
    elif found.end is EqualEnd.NOT_REPEATABLE:
        yield f"NOT REPEATABLE {found.reason}: nothing can be made equal to it; {builds}"
    elif found.end is EqualEnd.UNKNOWN:
        yield f"NOT COMPARABLE {found.reason}; {builds}"
    elif found.end in (EqualEnd.EQUAL, EqualEnd.NOT_MINIMAL):
        yield from _found(found, builds)
    else:
        yield from _not_found(found, builds)
    if found.kind:
        yield f"  kind    {_KINDS[found.kind].format(wrong=found.baseline.wrong)}"


def _found(found: EqualSearch, builds: str) -> Iterator[str]:
    changes = wording.pluralize(len(found.steps), "change")
    if found.end is EqualEnd.EQUAL:
        each = "it is" if len(found.steps) == 1 else "each is"
        yield f"EQUAL with {changes}, {each} needed: without it the outputs differ; {builds}"
    else:
        yield f"EQUAL with {changes}, some of which may not be needed: {found.reason}; {builds}"
    for step in found.steps:
        yield f"  {step.change.option}"
        if found.end is EqualEnd.EQUAL:
            yield f"    heals {_healed(step)}"
        if step.price is not None:
            yield f"    time  {price_text(step.price)}"
    if any(isinstance(step.change, LeaveOut) and step.change.part is not Part.PASS for step in found.steps):
        yield "  lines of Python go into a module for --import"
    if found.price is not None and len(found.steps) > 1:
        yield f"  time    all together: {price_text(found.price)}"
    if found.untimed:
        yield f"  time    not measured: {found.untimed}"
    if found.end is EqualEnd.EQUAL:
        yield "  proved  by a build with these changes: what it returned and kept was eager's, bit for bit"
    if found.best is not None and found.best.equality is not None and found.best.equality.launches:
        count = len(found.best.equality.launches)
        still = f"{wording.pluralize(count, 'launch')} of it write{'s' if count == 1 else ''}"
        yield f"  note    {still} other bits than eager all the same, which no output shows"
    if found.end is EqualEnd.NOT_MINIMAL:
        yield "  next    the same command goes on"


def _healed(step: EqualStep) -> str:
    if not step.heals:
        return "no launch: the graph that kernels are generated from may differ"
    names = [launch_text(launch) for launch in step.heals]
    return wording.join_truncated(names, _MAX_LAUNCHES)


def launch_text(launch: UnequalLaunch) -> str:
    """ "0.7 cpp_fused_relu_3 (model.py:23)"."""
    line = f" ({launch.line})" if launch.line else ""
    return f"{launch.launch} {launch.kernel}{line}"


def _not_found(found: EqualSearch, builds: str) -> Iterator[str]:
    if found.end is EqualEnd.CANNOT:
        yield f"CANNOT BE MADE EQUAL: not with all changes together either; {builds}"
    else:
        yield f"NOT FINISHED: no build is equal yet: {found.reason}; {builds}"
    best = found.best
    if best is None or best.equality is None:
        return
    where = "in the baseline" if not best.changes else f"nearest: {best.name}"
    yield f"  {where}: {result_text(best)}"
    launches = best.equality.launches
    for launch in launches[:_MAX_LEFT]:
        yield f"  {launch_text(launch)}"
        yield f"    {why_unequal(launch, found)}"
    if len(launches) > _MAX_LEFT:
        yield f"  and {len(launches) - _MAX_LEFT} more"
    if found.end is EqualEnd.UNFINISHED:
        yield "  next    the same command goes on"


def why_unequal(launch: UnequalLaunch, found: EqualSearch) -> str:
    """The observation on a launch that stays unequal, and what may be its cause."""
    values = wording.join_truncated(launch.values, 3)
    if launch.same_code:
        return (
            f"{values}: it calls the operator as eager does, and from the same inputs it returns other bits; another "
            "layout of its inputs, or another algorithm of its library, may be the cause"
        )
    met = (*found.baseline.applied.lowerings, *found.baseline.applied.decompositions)
    fixed = [name for name in launch.operators if name in launch.values and name not in met]
    if fixed:
        return f"{values}: generated code cannot call {wording.comma_separated(fixed)} as it is"
    return f"{values}: no change that was tried gives eager's bits"


def price_text(price: PairedTimes) -> str:
    """ "1.36 ms a call, without 1.20 ms: 1.13 times as long (quartiles 1.10 to 1.16 of 21 pairs)"."""
    clear = "" if price.is_clear else "; no clear difference"
    return (
        f"{wording.duration(price.after)} a call, without {wording.duration(price.before)}: {price.ratio:.2f} times as "
        f"long (quartiles {price.low:.2f} to {price.high:.2f} of {price.pairs} pairs{clear})"
    )


def equal_document(found: EqualSearch) -> dict[str, Any]:
    """The object that `aoti-debug equal --json` prints."""
    best = None if found.best is None else found.best.equality
    return {
        "format": FORMAT,
        "end": found.end.name.lower(),
        "kind": found.kind or None,
        "reason": found.reason or None,
        "lines": list(found.lines),
        "changes": [_step_document(step) for step in found.steps],
        "price": price_document(found.price),
        "untimed": found.untimed or None,
        "unequal": [_launch_document(launch) for launch in (() if best is None else best.launches)],
        "trials": [_trial_document(trial) for trial in found.trials],
        "known": found.known,
    }


def _step_document(step: EqualStep) -> dict[str, Any]:
    change = step.change
    return {
        "line": change.option,
        "part": "setting" if isinstance(change, SettingChange) else change.part.value,
        "heals": [_launch_document(launch) for launch in step.heals],
        "price": price_document(step.price),
    }


def _launch_document(launch: UnequalLaunch) -> dict[str, Any]:
    return {
        "launch": launch.launch,
        "kernel": launch.kernel,
        "line": launch.line or None,
        "values": list(launch.values),
        "same_code": launch.same_code,
    }


def price_document(price: PairedTimes | None) -> dict[str, Any] | None:
    """The times as JSON data; None if there are none."""
    if price is None:
        return None
    return {
        "seconds_without": price.before,
        "seconds_with": price.after,
        "ratio": price.ratio,
        "quartiles": [price.low, price.high],
        "pairs": price.pairs,
    }


def _trial_document(trial: BuildTrial) -> dict[str, Any]:
    found = trial.equality
    return {
        "name": trial.name,
        "changes": list(trial.changes),
        "is_equal": found is not None and not trial.failure and found.is_equal,
        "unequal_launches": None if found is None else len(found.launches),
        "unequal_outputs": [] if found is None else list(found.outputs),
        "wrong": trial.bug or None,
        "failure": trial.failure or None,
        "seconds": trial.seconds,
    }
