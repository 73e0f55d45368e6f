"""The provenance of sites: the model lines, graph nodes and module paths that they come from."""

from __future__ import annotations

import bisect
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from aoti_debug.base.errors import ArtifactError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import json_data
from aoti_debug.instrument.wrapper.cpp_syntax import expressions
from aoti_debug.instrument.wrapper.launches.sites import SiteCall
from aoti_debug.package.launch_traits import traits_of
from aoti_debug.package.manifest import Arg, Certainty, Form, ModelLine, Provenance, Role, Site
from aoti_debug.package.origins import is_users_kernel, own_frames
from aoti_debug.package.program_graphs import Graph, Reference

_WRITES = (Role.OUT, Role.INOUT, Role.UNKNOWN)
_READS = (Role.IN, Role.INOUT, Role.UNKNOWN)
_NUMBERS = (Form.SCALAR, Form.INTS)
_WORD = re.compile(r"[A-Za-z_]\w*")
_Index = Mapping[tuple[str, str], list[int]]


def with_modules(sites: Sequence[Site], reference: Reference) -> tuple[Site, ...]:
    """Returns the sites with the paths of the modules that their operations belong to.

    The operations of a site are the nodes that Inductor has recorded for it, otherwise those whose results it writes.
    """
    return tuple(_with_modules(site, reference.graph(site.subgraph, site.function)) for site in sites)


def _with_modules(site: Site, graph: Graph | None) -> Site:
    if graph is None:
        return site
    written = (graph.held.get(arg.base or arg.name, "") for arg in site.args if arg.written)
    nodes = site.provenance.post_grad_nodes
    modules = _modules(nodes[:1] if is_users_kernel(nodes) else nodes, graph) or _modules(written, graph)
    return replace(site, provenance=replace(site.provenance, modules=modules))


def _modules(names: Iterable[str], graph: Graph) -> tuple[str, ...]:
    """The module paths of nodes, in the order of execution; those of the model itself have none."""
    known = [name for name in dict.fromkeys(names) if name in graph.by_name]
    paths = (graph.by_name[name].module for name in graph.sorted(known))
    return tuple(dict.fromkeys(path for path in paths if path))


def infer(sites: Sequence[Site]) -> tuple[Site, ...]:
    """Returns the sites; those without source lines get the lines of a related site.

    That is the site that wrote its operands, else one that reads its result, else the nearest of its function.
    """
    located = _LocatedSites(sites)
    return tuple(site if site.provenance.source else _with_source(site, located.nearest(site)) for site in sites)


def _with_source(site: Site, neighbour: Site | None) -> Site:
    if neighbour is None:
        return site
    own, source_provenance = site.provenance, neighbour.provenance
    source = _matching_frames(_operator_word(site), source_provenance.source)
    if own.certainty is Certainty.NONE:
        provenance = replace(source_provenance, certainty=Certainty.INFERRED, handle="", source=source)
    else:
        provenance = replace(own, certainty=Certainty.INFERRED, source=source, stacks=source_provenance.stacks)
    return replace(site, provenance=provenance)


def _operator_word(site: Site) -> str:
    """Returns the name of a site's operator in the model's source: "scatter", "bernoulli", "item"."""
    if word := traits_of(site.kind).word:
        return word
    operator = re.split(r"::|\.", site.op)[1] if site.op else ""
    return operator if operator == "index_put" else next((word for word in operator.split("_") if word), "")


def _matching_frames(word: str, source: tuple[ModelLine, ...]) -> tuple[ModelLine, ...]:
    """Returns the frames whose line contains the word; all of them if none does."""
    return tuple(frame for frame in source if word and word in frame.text) or source


class _LocatedSites:
    """The sites with known source lines, by function and by the variables that they write, read and compute with."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self._sites = sites
        known = [site for site in sites if site.provenance.source]
        self._writers = _index((site, _bases(site, _WRITES)) for site in known)
        self._readers = _index((site, _bases(site, _READS)) for site in known)
        self._words = _index((site, _words(site.args)) for site in known)
        self._all = _index((site, ("",)) for site in known)

    def nearest(self, site: Site) -> Site | None:
        number = next(self._candidates(site), None)
        return None if number is None else self._sites[number]

    def _candidates(self, site: Site) -> Iterator[int]:
        written, read = _bases(site, _WRITES), _bases(site, _READS)
        yield from _before(site, self._writers, written)
        yield from _before(site, self._writers, read)
        yield from _after(site, self._readers, written)
        yield from _after(site, self._words, _numbers(site))
        yield from _before(site, self._all, ("",))
        yield from _after(site, self._all, ("",))


def _index(entries: Iterable[tuple[Site, Iterable[str]]]) -> _Index:
    index: dict[tuple[str, str], list[int]] = {}
    for site, keys in entries:
        for key in keys:
            index.setdefault((site.function, key), []).append(site.id)
    return index


def _before(site: Site, index: _Index, keys: Iterable[str]) -> Iterator[int]:
    """Yields the last site before `site` under any of the keys."""
    lists = [index.get((site.function, key), []) for key in keys]
    ids_before = [ids[n - 1] for ids in lists if (n := bisect.bisect_left(ids, site.id)) > 0]
    return iter([max(ids_before)] if ids_before else [])


def _after(site: Site, index: _Index, keys: Iterable[str]) -> Iterator[int]:
    """Yields the first site after `site` under any of the keys."""
    lists = [index.get((site.function, key), []) for key in keys]
    ids_after = [ids[n] for ids in lists if (n := bisect.bisect_right(ids, site.id)) < len(ids)]
    return iter([min(ids_after)] if ids_after else [])


def _bases(site: Site, roles: tuple[Role, ...]) -> set[str]:
    return {arg.base for arg in site.args if arg.base and arg.role in roles}


def _words(args: Iterable[Arg]) -> set[str]:
    """The variables that the numbers among the arguments are computed from."""
    return {word for arg in args if arg.form in _NUMBERS for word in _WORD.findall(arg.text)}


def _numbers(item: Site) -> set[str]:
    """The variables that a site stores numbers in: its `&u0_raw` is `u0` in other expressions."""
    names = (expressions.variable(arg.text) for arg in item.args if arg.form is Form.SCALAR_REF)
    return {name.removesuffix("_raw") for name in names if name}


@dataclass(frozen=True)
class KernelInformation:
    """The record of Inductor about one kernel."""

    stack_traces: tuple[str, ...] = ()
    post_grad_nodes: tuple[str, ...] = ()
    pre_grad_nodes: tuple[str, ...] = ()


def kernel_information(text: str) -> Mapping[str, KernelInformation]:
    """Parses `kernel_information.json`; {} for an empty text.

    Raises:
        ArtifactError: the text is damaged.
    """
    if not text.strip():
        return {}
    try:
        data = json_data.parse_object(text)
        return {name: json_data.from_data(KernelInformation, record, name) for name, record in data.items()}
    except json_data.DamagedJsonError as error:
        raise ArtifactError(f"kernel_information.json is damaged: {error}", hint="compile the model again") from error


def attach(sites: Sequence[SiteCall], information: str) -> tuple[Site, ...]:
    """Returns the sites with their provenance.

    A site that Inductor has recorded is exact. One without a record (index_put, scatter, bernoulli_, item,
    clone), or whose record names no line of the model, is inferred from the sites around it.

    Args:
        information: the text of `kernel_information.json`, or "".

    Raises:
        ArtifactError: `information` is damaged.
    """
    records = kernel_information(information)
    return infer([replace(s.site, provenance=_recorded(s, records)) for s in sites])


def with_operator_stacks(sites: Sequence[Site], stacks: Mapping[str, str]) -> tuple[Site, ...]:
    """Returns the sites; custom operators get the stack trace of their call in the exported program.

    Inductor's record may be of a consumer: a pass that reuses memory copies one node's stack trace to another.

    Args:
        stacks: stack traces by operator ("mylib::op.default"), of those that the program calls once.
    """
    calls = Counter(site.op for site in sites)
    return tuple(
        replace(site, provenance=_with_stack(site.provenance, stacks[site.op]))
        if site.op in stacks and calls[site.op] == 1
        else site
        for site in sites
    )


def _with_stack(provenance: Provenance, stack: str) -> Provenance:
    source = own_frames((stack,))
    if not source:
        return provenance
    return replace(provenance, certainty=Certainty.EXACT, source=source, stacks=(stack,))


def _recorded(site: SiteCall, records: Mapping[str, KernelInformation]) -> Provenance:
    notes = site.call.notes
    record = records.get(notes.handle)
    if record is None:
        return Provenance(Certainty.EXACT if notes.nodes else Certainty.NONE, notes.handle, pre_grad_nodes=notes.nodes)
    stacks = record.stack_traces[:1] if is_users_kernel(record.post_grad_nodes) else record.stack_traces
    return Provenance(
        certainty=Certainty.EXACT,
        handle=notes.handle,
        source=own_frames(stacks),
        stacks=stacks,
        post_grad_nodes=record.post_grad_nodes,
        pre_grad_nodes=record.pre_grad_nodes,
    )
