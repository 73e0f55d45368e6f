"""Joins the model lines of a new lowering of an exported program to a package that torch has compiled from it.

Two lowerings of one program need not make the same kernels under the same names. For model lines, launch sites are
matched by content: generated kernels by their source, or by their name where the package holds no source of them, calls
of operators by the operator; first in order, then unique ones anywhere. The same torch with the same settings makes the
same launches of the same kernels in the same order; only names may differ.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from difflib import SequenceMatcher
from pathlib import Path

from aoti_debug.base.frozen import dataclass
from aoti_debug.instrument.builder.compare_kernels import normalised_source
from aoti_debug.instrument.frontend.lowered_model import LoweredModel
from aoti_debug.instrument.wrapper.analysis import Analysis
from aoti_debug.package import program_graphs
from aoti_debug.package.manifest import Arg, Certainty, Manifest, PackageOrigin, Promise, Site
from aoti_debug.package.program_graphs import BufferValue, Graph, Reference

NO_MODEL_LINES = "none were compiled in; --exported PROGRAM.pt2 joins those of its program"
_BUFFER = re.compile(r"(?:\w+_)?buf\d+\Z")


def join_model_lines(package: Analysis, fresh: Analysis) -> tuple[Analysis, int]:
    """Copies model lines from the launch sites of a new lowering to the matching sites of a compiled package.

    Returns:
        The analysis of the package, whose joined lines are marked as inferred, and the number of sites that got one.
    """
    without_source = _without_source(package)
    contents, fresh_contents = _contents(package, without_source), _contents(fresh, without_source)
    pairs: dict[int, int] = {}
    for block in SequenceMatcher(None, contents, fresh_contents, autojunk=False).get_matching_blocks():
        pairs |= {block.a + step: block.b + step for step in range(block.size)}
    pairs = {**_unique_pairs(contents, fresh_contents), **pairs}
    joined = {
        index: replace(fresh.sites[other].provenance, certainty=Certainty.INFERRED)
        for index, other in pairs.items()
        if fresh.sites[other].provenance.source
    }
    sites = (replace(site, provenance=joined.get(index, site.provenance)) for index, site in enumerate(package.sites))
    return replace(package, sites=tuple(sites)), len(joined)


def lacks_model_lines(manifest: Manifest) -> bool:
    """True if a package was compiled without model lines, which its exported program could add."""
    compiled = manifest.source in (PackageOrigin.COMPILED, PackageOrigin.UNCOMPILED)
    return compiled and not any(site.provenance.source for site in manifest.sites)


def _without_source(package: Analysis) -> frozenset[str]:
    return frozenset(kernel.name for kernel in package.kernels if not kernel.source)


def _contents(analysis: Analysis, without_source: frozenset[str]) -> list[str]:
    """The content of each site, to compare: its function and the source of its kernels, or its operator."""
    sources = _sources(analysis, without_source)
    return [f"{site.function} {' '.join(_code(site, sources))}" for site in analysis.sites]


def _unique_pairs(contents: Sequence[str], fresh_contents: Sequence[str]) -> Mapping[int, int]:
    """Index -> index in the other sequence, of the contents that occur exactly once in both."""
    counts, fresh_counts = Counter(contents), Counter(fresh_contents)
    fresh_index = {content: index for index, content in enumerate(fresh_contents)}
    return {
        index: fresh_index[content]
        for index, content in enumerate(contents)
        if counts[content] == 1 and fresh_counts[content] == 1
    }


@dataclass(frozen=True)
class LoweringMatch:
    """The launches of a package beside those of a new lowering of its program.

    Attributes:
        difference: the first launch site that differs, as a sentence; "" if none does.
        names: the package's name of each buffer of the new lowering.
    """

    difference: str
    names: Mapping[str, str] = field(default_factory=dict)


def match(package: Analysis, fresh: Analysis) -> LoweringMatch:
    """Compares the launch sites of a package and of a new lowering, one by one."""
    sources, fresh_sources = _sources(package), _sources(fresh)
    without_source = _without_source(package)
    names: dict[str, str] = {}
    for number, (ours, theirs) in enumerate(zip(package.sites, fresh.sites, strict=False)):
        where = f"launch site {number} is {_described(ours)} in the package"
        if (ours.function, ours.subgraph, ours.op) != (theirs.function, theirs.subgraph, theirs.op):
            return LoweringMatch(f"{where}, {_described(theirs)} in the program")
        if missing := [name for name in _launched(ours) if name in without_source]:
            return LoweringMatch(f"{where}, without the source of {missing[0]}")
        if _code(ours, sources) != _code(theirs, fresh_sources):
            kernel = _described(theirs) if ours.kernel != theirs.kernel else "with another source"
            return LoweringMatch(f"{where}, {kernel} in the program")
        if len(ours.args) != len(theirs.args):
            return LoweringMatch(f"{where}, with {len(ours.args)} arguments, not {len(theirs.args)}")
        for own, other in zip(ours.args, theirs.args, strict=True):
            if (name := _renamed(own, other, names)) is not None:
                return LoweringMatch(f"{where}; its argument {own.name} is {name} in the program")
    if len(package.sites) != len(fresh.sites):
        return LoweringMatch(f"the package has {len(package.sites)} launch sites, the program {len(fresh.sites)}")
    return LoweringMatch("", names)


def _renamed(own: Arg, other: Arg, names: dict[str, str]) -> str | None:
    """Notes the package's name of a buffer; the other name of what is no buffer, or was paired with another one."""
    ours, theirs = own.base or own.name, other.base or other.name
    if _BUFFER.match(ours) and _BUFFER.match(theirs):
        return None if names.setdefault(theirs, ours) == ours else theirs
    return None if ours == theirs else theirs


def _described(site: Site) -> str:
    """ "cpp_fused_add_0", "aten.mm.out of true_graph_0", "aten.mm.out in constant folding"."""
    name = site.op or site.kernel
    if site.subgraph:
        return f"{name} of {site.subgraph}"
    return f"{name} in constant folding" if site.function == program_graphs.FOLDING else name


def _sources(analysis: Analysis, left_out: frozenset[str] = frozenset()) -> Mapping[str, str]:
    return {kernel.name: normalised_source(kernel) for kernel in analysis.kernels if kernel.name not in left_out}


def _code(site: Site, sources: Mapping[str, str]) -> list[str]:
    """The sources of the kernels that a site launches, or the function that it calls."""
    return [sources.get(name, name) for name in _launched(site)]


def _launched(site: Site) -> tuple[str, ...]:
    return site.launches or (site.kernel,)


def add_reference(package: LoweredModel, program_: LoweredModel, names: Mapping[str, str], work: Path) -> LoweredModel:
    """The package with the reference, and with the layouts of buffers, of a new lowering of its program.

    Args:
        names: of `LoweringMatch`.
        work: a folder for the file.
    """
    if program_.reference_file is None:
        return package
    promises = renamed_promises(program_.answer.promises, names)
    answer = replace(package.answer, promises=promises, without_promises=program_.answer.without_promises)
    reference = write_renamed(program_.reference_file, names, work / "joined_reference.json")
    return replace(package, answer=answer, reference_file=reference)


def add_exported(package: LoweredModel, program_: LoweredModel, difference: str, work: Path) -> LoweredModel:
    """The package with the graph of its exported program alone: its kernels were generated from another one.

    Args:
        difference: of `LoweringMatch`.
        work: a folder for the file.
    """
    if program_.reference_file is None:
        return package
    found = program_graphs.from_json(program_.reference_file.read_bytes())
    if not found.exported:
        return package
    file = work / "joined_exported.json"
    failure = f"the package is not what the program is lowered to here: {difference}"
    file.write_text(program_graphs.to_json(replace(found, graphs=(), failure=failure)))
    return replace(package, exported_file=file)


def write_renamed(reference: Path, names: Mapping[str, str], output: Path) -> Path:
    """Writes a reference whose buffers have the names of the package."""
    found = program_graphs.from_json(reference.read_bytes())
    output.write_text(program_graphs.to_json(renamed(found, names)))
    return output


def renamed(reference: Reference, names: Mapping[str, str]) -> Reference:
    """The reference with other names of buffers."""
    return replace(reference, graphs=tuple(_renamed_graph(graph, names) for graph in reference.graphs))


def renamed_promises(promises: tuple[Promise, ...], names: Mapping[str, str]) -> tuple[Promise, ...]:
    """The layouts of buffers with other names of them."""
    return tuple(replace(promise, name=names.get(promise.name, promise.name)) for promise in promises)


def _renamed_graph(graph: Graph, names: Mapping[str, str]) -> Graph:
    buffers = tuple(BufferValue(names.get(item.buffer, item.buffer), item.node) for item in graph.buffers)
    return replace(graph, buffers=buffers)
