"""A bisection of settings as lines of text."""

from __future__ import annotations

from aoti_debug.base import wording
from aoti_debug.compare.bisect.bisect_settings import SettingsBisection, result_text


def settings_lines(found: SettingsBisection) -> list[str]:
    """The builds of an earlier, interrupted bisection with their results, and the changes that fix the model.

    The other builds are told when they end, each by the line of its step.
    """
    earlier = found.trials[: found.known]
    width = max((len(trial.name) for trial in earlier), default=0)
    lines = [f"{t.name:<{width}}  {wording.duration(t.seconds):>8}  {result_text(t)}" for t in earlier]
    if earlier:
        lines += [f"note: the first {wording.pluralize(found.known, 'build')} had been made before", ""]
    builds = wording.pluralize(len(found.trials), "build")
    if found.trials[0].is_right:
        return [*lines, f"NOTHING WRONG in the baseline; {builds}"]
    if not found.changes:
        return [*lines, f"NOT FOUND: no setting, pass, lowering or decomposition fixes it; {builds}"]
    first, *others = found.lines
    return [
        *lines,
        f"FIXED by  {first}",
        *(f"          {line}" for line in others),
        f"  cause   {found.cause}; {builds}",
    ]
