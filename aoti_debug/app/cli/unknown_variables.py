"""Environment variables that look like those of aoti-debug and are none: a misspelt one would do nothing, silently."""

from __future__ import annotations

from collections.abc import Iterable

from aoti_debug.base.abi import Variable

_PREFIX = "AOTI_DEBUG_"
_SIMILAR = 0.7  # of difflib


def warnings(names: Iterable[str]) -> list[str]:
    """A warning for each name that is unknown, with the most similar known one."""
    known = [variable.value for variable in Variable]
    unknown = sorted(name for name in names if name.startswith(_PREFIX) and name not in known)
    if not unknown:
        return []
    import difflib  # few environments need it

    lines = []
    for name in unknown:
        similar = difflib.get_close_matches(name, known, n=1, cutoff=_SIMILAR)
        lines.append(f"warning: {name} is not known" + (f"; perhaps {similar[0]}" if similar else ""))
    return lines
