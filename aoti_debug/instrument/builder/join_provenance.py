"""Model lines for a package that was compiled without them, from a new lowering of its exported program.

Two lowerings of one program need not make the same kernels under the same names. Launch sites are matched by content:
generated kernels by their source, calls of operators by the operator; first in order, then unique ones anywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.instrument.builder.kernels.kernel_text import normalised_source
from aoti_debug.package.manifest import Certainty, Kernel, Manifest, PackageOrigin, Provenance, Site

NO_MODEL_LINES = "none were compiled in; --exported PROGRAM.pt2 joins those of its program"


@dataclass(frozen=True)
class JoinedSites:
    """Launch sites with the model lines that could be joined.

    Attributes:
        sites: all sites; the provenance of the joined ones is marked as inferred.
        count: number of sites that got a model line.
    """

    sites: tuple[Site, ...]
    count: int


def join(
    sites: Sequence[Site], kernels: Iterable[Kernel], fresh: Sequence[Site], fresh_kernels: Iterable[Kernel]
) -> JoinedSites:
    """Copies model lines from newly lowered launch sites to the matching sites of a compiled package.

    Args:
        sites, kernels: of the package, without provenance.
        fresh, fresh_kernels: of the new lowering, with provenance.
    """
    tokens, fresh_tokens = _tokens(sites, kernels), _tokens(fresh, fresh_kernels)
    pairs: dict[int, int] = {}
    for block in SequenceMatcher(None, tokens, fresh_tokens, autojunk=False).get_matching_blocks():
        pairs |= {block.a + step: block.b + step for step in range(block.size)}
    unique = _unique_pairs(tokens, fresh_tokens)
    pairs |= {index: match for index, match in unique.items() if index not in pairs}
    joined = {
        index: _inferred(fresh[match].provenance) for index, match in pairs.items() if fresh[match].provenance.source
    }
    return JoinedSites(
        tuple(replace(site, provenance=joined.get(index, site.provenance)) for index, site in enumerate(sites)),
        len(joined),
    )


def lacks_model_lines(manifest: Manifest) -> bool:
    """True if a package was compiled without model lines, which its exported program could add."""
    compiled = manifest.source in (PackageOrigin.COMPILED, PackageOrigin.UNCOMPILED)
    return compiled and not any(site.provenance.source for site in manifest.sites)


def _tokens(sites: Iterable[Site], kernels: Iterable[Kernel]) -> list[str]:
    """The content of each site, to compare: its function and the source of its kernels, or its operator."""
    sources: Mapping[str, str] = {kernel.name: normalised_source(kernel) for kernel in kernels}
    return [
        f"{site.function} {' '.join(sources.get(name, name) for name in (site.launches or (site.kernel,)))}"
        for site in sites
    ]


def _unique_pairs(tokens: Sequence[str], fresh_tokens: Sequence[str]) -> Mapping[int, int]:
    """Index -> index in the other sequence, of the tokens that occur exactly once in both."""
    counts, fresh_counts = Counter(tokens), Counter(fresh_tokens)
    fresh_index = {token: index for index, token in enumerate(fresh_tokens)}
    return {
        index: fresh_index[token]
        for index, token in enumerate(tokens)
        if counts[token] == 1 and fresh_counts[token] == 1
    }


def _inferred(provenance: Provenance) -> Provenance:
    return replace(provenance, certainty=Certainty.INFERRED)
