"""The syntax of watchpoints, `pattern ":" condition`, checked before a run starts; the runtime parses the same."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from aoti_debug.base.errors import UsageError
from aoti_debug.package.manifest import Manifest
from aoti_debug.runs.rundir import watch_condition
from aoti_debug.runs.rundir.watch_condition import ConditionError

ACTIONS = ("save", "stack", "stop", "count")


def check(watchpoint: str) -> None:
    """Checks the syntax of a watchpoint.

    Raises:
        UsageError: it does not parse; the message has a caret under the place.
    """
    try:
        _check(watchpoint)
    except ConditionError as error:
        raise UsageError(
            f"--watch does not parse: {error.shown_in(watchpoint)}",
            hint="--watch 'NAME: CONDITION', such as 'buf7: absmax > 1e4' or '*: nan'",
        ) from error


def _check(watchpoint: str) -> None:
    if ";" in watchpoint:
        raise ConditionError("a watchpoint has no semicolon; give --watch more than once", watchpoint.index(";"))
    pattern, colon, text = watchpoint.rpartition(":")
    if not colon:
        raise ConditionError("a colon is missing between the name and the condition", len(watchpoint))
    if not pattern.strip():
        raise ConditionError("the name of an argument or a kernel is missing", 0)
    watch_condition.parse(watchpoint, len(watchpoint) - len(text))


def check_actions(words: str) -> None:
    """Checks a list of actions with commas between them.

    Raises:
        UsageError: one is not known.
    """
    for word in words.split(","):
        if word.strip() not in ACTIONS:
            raise UsageError(f"--on-hit {words}: there is no {word.strip()!r}", hint=f"it takes {', '.join(ACTIONS)}")


def unmatched(watchpoints: Iterable[str], manifest: Manifest) -> tuple[str, ...]:
    """The patterns of watchpoints that match neither an argument nor a kernel of the package."""
    names = {site.kernel for site in manifest.sites} | {arg.name for site in manifest.sites for arg in site.args}
    patterns = (watchpoint.rpartition(":")[0].strip() for watchpoint in watchpoints)
    return tuple(pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in names))
