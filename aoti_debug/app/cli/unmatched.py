"""Warnings about names on the command line that match nothing, and about what a package does not record."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import groupby

from aoti_debug.base.machine import current_rank as machine_ranks
from aoti_debug.package.manifest import Form, Manifest
from aoti_debug.package.pt2.extract import UNCHANGED_PACKAGE_HINT
from aoti_debug.package.recording.site_filter import Unmatched
from aoti_debug.runs.run import inspector

_MAX_NAMES = 20


def unmatched_warning(unmatched: Sequence[Unmatched]) -> list[str]:
    """The warning in lines: patterns that match nothing, and the names that there are."""
    lines: list[str] = []
    for criterion, group in groupby(unmatched, lambda pattern: pattern.criterion):
        first, *others = group
        start = f"warning: no {criterion.noun} matches {', '.join(item.pattern for item in (first, *others))}"
        if first.missing:
            lines.append(f"{start}: the package holds {first.missing}")
            continue
        lines += [f"{start}; the package has:", *_listed(first.known)]
    return lines


def unmatched_watch_warning(package: Manifest, unmatched: Sequence[str]) -> list[str]:
    """The warning in lines: watched names that no launch has, and those that there are."""
    if not unmatched:
        return []
    tensors = dict.fromkeys(arg.name for site in package.sites for arg in site.args if arg.form <= Form.POINTER)
    kernels = sorted({site.kernel for site in package.sites})
    first = f"warning: no argument and no kernel is named {', '.join(unmatched)}; the package has:"
    return [first, *_listed(list(tensors)), *_listed(kernels)]


def uncalled_inspector_warning(package: Manifest, tag: str, ranks: str) -> list[str]:
    """The warning in lines: --tag or --ranks because of which an inspector is never called; none without."""
    if not machine_ranks.selected(machine_ranks.parse(ranks)):
        return [f"warning: the inspector is not called: this is rank {machine_ranks.current()}, not {ranks}"]
    known = inspector.tags(package)
    if not tag or any(fnmatchcase(name, tag) for name in known):
        return []
    if not known:
        return [f"warning: no tag matches {tag}: there is no inspector in the model"]
    return [f"warning: no tag matches {tag}; the package has:", *_listed(known)]


def _listed(names: Sequence[str]) -> list[str]:
    lines = [f"  {name}" for name in names[:_MAX_NAMES]]
    return lines + ([f"  and {len(names) - _MAX_NAMES} more"] if len(names) > _MAX_NAMES else [])


def missing_source_note(package: Manifest) -> str:
    """The note on a package without source: what is not recorded, and what to do about it; "" for others."""
    return f"note: {package.without_source}; for more, {UNCHANGED_PACKAGE_HINT}" if package.without_source else ""
