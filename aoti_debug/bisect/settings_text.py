"""A bisection of settings as lines of text."""

from __future__ import annotations

from aoti_debug import wording
from aoti_debug.bisect.settings import SettingsBisection


def settings_lines(found: SettingsBisection) -> list[str]:
    """All builds with their results, and the change that heals the model."""
    width = max(len(trial.name) for trial in found.trials)
    lines = []
    for trial in found.trials:
        result = f"not tried: {trial.failure}" if trial.failure else trial.wrong or "right"
        lines.append(f"{trial.name:<{width}}  {wording.duration(trial.seconds):>8}  {result}")
    if found.known:
        lines.append(f"note: the first {wording.count(found.known, 'build')} had been made before")
    builds = wording.count(len(found.trials), "build")
    lines.append("")
    if found.trials[0].is_right:
        return [*lines, f"NOTHING WRONG as it is; {builds}"]
    if not found.change:
        return [*lines, f"NOT FOUND: no setting, pass or lowering heals it; {builds}"]
    return [*lines, f"HEALED by  {found.change}", f"  cause    {found.cause}; {builds}"]
