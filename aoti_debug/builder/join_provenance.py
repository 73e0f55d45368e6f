"""Model lines for a package that was compiled without them: from a fresh lowering of the program that it came from.

Two lowerings of one program need not make the same kernels under the same names. Launches are matched by what they do:
generated kernels by their source, calls of operators by the operator; first in order, then those that are unique.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from aoti_debug.builder.kernel_text import normalised
from aoti_debug.manifest import Certainty, Kernel, Manifest, PackageOrigin, Provenance, Site

NO_LINES = "none were compiled in; --exported PROGRAM.pt2 joins those of its program"


@dataclass(frozen=True)
class Joined:
    """
    Attributes:
        sites: with the provenance that could be found, as inferred.
        count: how many of them got some.
    """

    sites: tuple[Site, ...]
    count: int


def join(
    sites: Sequence[Site], kernels: Iterable[Kernel], fresh: Sequence[Site], fresh_kernels: Iterable[Kernel]
) -> Joined:
    """
    Args:
        sites: without provenance.
        fresh: of the lowering here, with provenance.
    """
    ours, theirs = _tokens(sites, kernels), _tokens(fresh, fresh_kernels)
    pairs: dict[int, int] = {}
    for block in SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks():
        pairs |= {block.a + step: block.b + step for step in range(block.size)}
    pairs |= {at: other for at, other in _unique(ours, theirs).items() if at not in pairs}
    found = {at: _inferred(fresh[other].provenance) for at, other in pairs.items() if fresh[other].provenance.source}
    return Joined(
        tuple(replace(site, provenance=found.get(at, site.provenance)) for at, site in enumerate(sites)), len(found)
    )


def lacks_lines(manifest: Manifest) -> bool:
    """Whether a package was compiled without model lines, and the program that it came from could lend it some."""
    compiled = manifest.source in (PackageOrigin.COMPILED, PackageOrigin.UNCOMPILED)
    return compiled and not any(site.provenance.source for site in manifest.sites)


def _tokens(sites: Iterable[Site], kernels: Iterable[Kernel]) -> list[str]:
    """What each site launches: the source of its kernels, or its operator."""
    sources: Mapping[str, str] = {kernel.name: normalised(kernel) for kernel in kernels}
    return [
        f"{site.function} {' '.join(sources.get(name, name) for name in (site.launches or (site.kernel,)))}"
        for site in sites
    ]


def _unique(ours: Sequence[str], theirs: Sequence[str]) -> Mapping[int, int]:
    """Of tokens that both have once: where, and where in the other."""
    counts, others = Counter(ours), Counter(theirs)
    places = {token: at for at, token in enumerate(theirs)}
    return {at: places[token] for at, token in enumerate(ours) if counts[token] == 1 and others[token] == 1}


def _inferred(provenance: Provenance) -> Provenance:
    return replace(provenance, certainty=Certainty.INFERRED)
