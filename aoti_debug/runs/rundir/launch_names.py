"""Launches by what `aoti-debug show` prints of them: the id, the kernel, or the line of the model."""

from __future__ import annotations

import re
from collections.abc import Iterable

from aoti_debug.base.errors import UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.package.recording.site_filter import SiteFilter
from aoti_debug.runs.rundir.run_directory import RunDir, is_launch_id, name_hint
from aoti_debug.runs.rundir.timeline import Launch

SHORTENED = "…"  # in the middle of a name that a table has no room for
_LINE = re.compile(r"[^:]+:\d+")
_PATTERN = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class NamedLaunches:
    """The launches that a word names.

    Attributes:
        is_one: it names one launch, or those of one kernel; False for a pattern, and for what several names begin with.
    """

    launches: tuple[Launch, ...]
    is_one: bool


def find(run: RunDir, word: str) -> NamedLaunches | None:
    """The launches that a word names; None if it names none.

    Args:
        word: "0.3", "3", a kernel, a pattern (fnmatch), the beginning of a name, a name that was shortened, or
            "model.py:23".

    Raises:
        RunDirError: it is the id of a launch that the run does not have.
    """
    if is_launch_id(word):
        return NamedLaunches((run.launch(word),), is_one=True)
    for pattern in (word, word.replace(SHORTENED, "*"), f"{word}*"):
        launches = run.launches_of(pattern)
        if launches:
            kernels = {launch.kernel for launch in launches}
            return NamedLaunches(launches, is_one=len(kernels) == 1 and (word in kernels or not _PATTERN.search(word)))
    if _LINE.fullmatch(word):
        sites = SiteFilter(lines=(word,)).site_ids(run.manifest.sites)
        launches = tuple(launch for launch in run.launches if launch.site.id in sites)
        return NamedLaunches(launches, is_one=False) if launches else None
    return None


def unknown(run: RunDir, word: str, what: str, others: Iterable[str] = ()) -> UsageError:
    """The error for a word that names no launch.

    Args:
        what: what it is not: "neither a kernel nor a launch".
        others: further names that would do.
    """
    known = tuple(dict.fromkeys((*run.kernels(), *(site.kernel for site in run.manifest.sites))))
    if word in known:
        return UsageError(f"{word} was not launched in run {run.path.name}", hint=name_hint(word, run.kernels()))
    return UsageError(
        f"{word!r} is {what} of run {run.path.name}", hint=name_hint(word, dict.fromkeys((*known, *others)))
    )
