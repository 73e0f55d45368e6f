"""Settings of what a run records: its level, 0 to 3 or "hash", and filters by kernel, module and model line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from fnmatch import fnmatchcase

from aoti_debug.base.abi import Level
from aoti_debug.base.errors import UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.package.manifest import Manifest, PackageOrigin, Provenance, Site
from aoti_debug.package.origins import containing, line_names

LEVELS = tuple(Level)
MEANINGS = "0 off, 1 save tensors, 2 print values, 3 record launches, hash: the hash of every tensor, nothing else"
WITH_HASHES = (Level.SAVE, Level.VALUES, Level.HASH)  # what records the hash of every tensor
PHASES = ("before", "after", "both")  # of a launch: when its values are recorded
MAX_FLIGHT = 65536  # launches that the flight recorder keeps
_HASH = "hash"


def level_number(level: int | str, allowed: Sequence[Level] = LEVELS) -> int:
    """The number of a level that is given as a number (4 for "hash"), or as the text that users write.

    Raises:
        UsageError: it is none of the allowed ones.
    """
    for known in allowed:
        if level == known or str(level) == str(written_level(known)):
            return known.value
    raise UsageError(f"level {level} is not one of {', '.join(str(written_level(e)) for e in allowed)}", hint=MEANINGS)


def written_level(level: int) -> int | str:
    """A level as a user writes it: its number, or "hash"."""
    return _HASH if level == Level.HASH else int(level)


NO_MODULES = "no module paths"
NO_LINES = "no model lines"
_MAX_SIMILAR = 8
_SIMILAR = 0.4  # of difflib


class Criterion(str, Enum):
    """The names that a pattern is compared with, by its option."""

    KERNEL = "--filter"
    MODULE = "--module"
    LINE = "--line"

    @property
    def noun(self) -> str:
        """ "kernel", "module", "model line"."""
        return {"--filter": "kernel", "--module": "module", "--line": "model line"}[self.value]


@dataclass(frozen=True)
class SiteFilter:
    """Patterns that choose launch sites: fnmatch patterns, of which "!" excludes.

    A site is chosen if it passes each of the three lists. A list is passed by a name that matches one of its patterns,
    or none of those that exclude where all do. A fused kernel has the modules and lines of everything in it.

    Attributes:
        kernels: of kernel names: "triton_red_*".
        modules: of module paths: "encoder.layers.0" stands for the module with all that it contains, "encoder.*" for
            what it contains.
        lines: of lines of the model: "model.py:23", also with directories. A line that calls a function or a module
            stands for all that happens there.
    """

    kernels: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """True if it has any pattern."""
        return bool(self.kernels or self.modules or self.lines)

    def __str__(self) -> str:
        """ "filter cpp_* !cpp_a, module encoder"; "" without patterns."""
        lists = zip(Criterion, self._lists(), strict=True)
        return ", ".join(" ".join((criterion.value[2:], *patterns)) for criterion, patterns in lists if patterns)

    @property
    def options(self) -> str:
        """The command-line options: "--filter cpp_* --module encoder"."""
        return " ".join(f"{criterion.value} {pattern}" for criterion, pattern in self.patterns())

    def patterns(self) -> tuple[tuple[Criterion, str], ...]:
        """Every pattern with what it is compared with."""
        lists = zip(Criterion, self._lists(), strict=True)
        return tuple((criterion, pattern) for criterion, patterns in lists for pattern in patterns)

    def selects(self, site: Site) -> bool:
        """True if a site is chosen."""
        return self.takes(site.kernel, site.provenance)

    def site_ids(self, sites: Iterable[Site]) -> frozenset[int]:
        """The ids of the chosen sites; a run has many launches of each."""
        return frozenset(site.id for site in sites if self.selects(site))

    def takes(self, kernel: str, provenance: Provenance) -> bool:
        """True if a launch of a kernel, or a call of an operator, with this origin is chosen."""
        lists = zip(Criterion, self._lists(), strict=True)
        return all(
            _passes(patterns, _names(kernel, provenance, criterion)) for criterion, patterns in lists if patterns
        )

    def _lists(self) -> tuple[tuple[str, ...], ...]:
        return self.kernels, self.modules, self.lines


EVERYTHING = SiteFilter()


@dataclass(frozen=True)
class Unmatched:
    """A pattern that matches nothing in a package.

    Attributes:
        known: the names that there are, the most similar first.
        missing: why no pattern could match: the package holds no such names; "" if it does.
    """

    criterion: Criterion
    pattern: str
    known: tuple[str, ...]
    missing: str = ""


def baked(manifest: Manifest) -> SiteFilter:
    """The filter that a package was built with."""
    return SiteFilter(manifest.filters, manifest.module_filters, manifest.line_filters)


def check_patterns(chosen: SiteFilter) -> None:
    """Checks patterns without a package.

    Raises:
        UsageError: a pattern is empty, contains a comma, or is of a line and names none.
    """
    for criterion, pattern in chosen.patterns():
        what = f"{criterion.value} {pattern!r}"
        if not pattern.removeprefix("!"):
            raise UsageError("an empty filter", hint=f"{criterion.value} takes a pattern: {_EXAMPLES[criterion]}")
        if "," in pattern:
            raise UsageError(f"{what} contains a comma", hint=f"give {criterion.value} more than once")
        if criterion is Criterion.LINE and ":" not in pattern:
            raise UsageError(f"{what} is not FILE:LINE", hint=f"'model.py:23', or '{pattern}:*' for the whole file")


def require_names(manifest: Manifest, chosen: SiteFilter, package: str) -> None:
    """Checks that a package holds the names that patterns are compared with.

    Raises:
        UsageError: it holds no module paths, or no model lines.
    """
    for criterion, _ in chosen.patterns():
        if missing := _missing(manifest, criterion):
            raise UsageError(f"{package} holds {missing}", hint=_names_hint(manifest))


def unmatched(manifest: Manifest, chosen: SiteFilter) -> tuple[Unmatched, ...]:
    """The patterns that match nothing in a package."""
    found = []
    for criterion, pattern in chosen.patterns():
        known = known_names(manifest.sites, criterion)
        if not any(
            _passes((pattern.removeprefix("!"),), _names(site.kernel, site.provenance, criterion))
            for site in manifest.sites
        ):
            missing = _missing(manifest, criterion)
            found.append(Unmatched(criterion, pattern, nearest(pattern, known), missing))
    return tuple(found)


def known_names(sites: Iterable[Site], criterion: Criterion) -> tuple[str, ...]:
    """The kernels, modules or lines of sites, each once, in order."""
    if criterion is Criterion.KERNEL:
        return tuple(sorted({site.kernel for site in sites}))
    if criterion is Criterion.MODULE:
        return tuple(dict.fromkeys(path for site in sites for path in site.provenance.modules))
    return tuple(dict.fromkeys(name for site in sites for name in line_names(site.provenance)))


def nearest(pattern: str, known: Sequence[str]) -> tuple[str, ...]:
    """The names, with those that are similar to a pattern first."""
    word = pattern.removeprefix("!").rpartition("/")[2]
    short = {name.rpartition("/")[2]: name for name in known}
    import difflib  # only a pattern that matches nothing needs it

    similar = difflib.get_close_matches(word, short, n=_MAX_SIMILAR, cutoff=_SIMILAR)
    return tuple(dict.fromkeys((*(short[name] for name in similar), *known)))


_EXAMPLES = {
    Criterion.KERNEL: "'triton_*', '!cpp_fused_*'",
    Criterion.MODULE: "'encoder.layers.0', '!*.norm?'",
    Criterion.LINE: "'model.py:23', '!layers.py:*'",
}


def _names(kernel: str, provenance: Provenance, criterion: Criterion) -> tuple[str, ...]:
    """What patterns are compared with."""
    if criterion is Criterion.KERNEL:
        return (kernel,)
    if criterion is Criterion.MODULE:
        return tuple(dict.fromkeys(part for path in provenance.modules for part in containing(path)))
    return tuple(suffix for name in line_names(provenance) for suffix in _suffixes(name))


def _passes(patterns: Sequence[str], names: Sequence[str]) -> bool:
    excluded = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    included = [pattern for pattern in patterns if not pattern.startswith("!")]
    matches: Callable[[str], bool] = lambda pattern: any(fnmatchcase(name, pattern) for name in names)  # noqa: E731
    return not any(map(matches, excluded)) and (not included or any(map(matches, included)))


def _suffixes(place: str) -> tuple[str, ...]:
    """ "/a/model.py:3" and what follows each slash: "a/model.py:3", "model.py:3"."""
    starts = (index + 1 for index, character in enumerate(place) if character == "/")
    return (place, *(place[start:] for start in starts))


def _missing(manifest: Manifest, criterion: Criterion) -> str:
    if criterion is Criterion.KERNEL or known_names(manifest.sites, criterion):
        return ""
    return NO_MODULES if criterion is Criterion.MODULE else NO_LINES


def _names_hint(manifest: Manifest) -> str:
    """What would add the module paths and model lines that a package lacks."""
    if manifest.without_source:
        return "its wrapper source is missing: only --filter selects its launches"
    if manifest.source is PackageOrigin.EXPORTED:
        return "its operations are all the model's own, without submodules; or it was built before paths were kept"
    return "aoti-debug build --exported PROGRAM.pt2 adds those of the program that it was compiled from"
