"""Where a launch that Inductor keeps no record of comes from: from the launches around it."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from aoti_debug.manifest import Arg, Certainty, Form, Frame, Role, Site
from aoti_debug.wrapper import expressions, forms

_WRITES = (Role.OUT, Role.INOUT, Role.UNKNOWN)
_READS = (Role.IN, Role.INOUT, Role.UNKNOWN)
_NUMBERS = (Form.SCALAR, Form.INTS)
_WORD = re.compile(r"[A-Za-z_]\w*")


def infer(sites: Sequence[Site]) -> tuple[Site, ...]:
    """The sites; those without source lines have got those of the site that tells most about them.

    That is the site that wrote what it works on, else one that uses what it makes, else the nearest of its function.
    """
    donors = _Donors(sites)
    return tuple(site if site.provenance.source else _completed(site, donors.of(site)) for site in sites)


def _completed(site: Site, donor: Site | None) -> Site:
    if donor is None:
        return site
    own, given = site.provenance, donor.provenance
    source = _mentioning(_word(site), given.source)
    if own.certainty is Certainty.NONE:
        found = replace(given, certainty=Certainty.INFERRED, handle="", source=source)
    else:
        found = replace(own, certainty=Certainty.INFERRED, source=source, stacks=given.stacks)
    return replace(site, provenance=found)


def _word(site: Site) -> str:
    """What the model's source calls the operator of a site: "scatter", "bernoulli", "item"."""
    if word := forms.traits_of(site.kind).word:
        return word
    operator = re.split(r"::|\.", site.op)[1] if site.op else ""
    return operator if operator == "index_put" else next((word for word in operator.split("_") if word), "")


def _mentioning(word: str, source: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The frames whose line contains the word; all of them if none does."""
    return tuple(frame for frame in source if word and word in frame.text) or source


_Index = Mapping[tuple[str, str], list[int]]


class _Donors:
    """The sites whose source lines are known, by function and by what they write, read and compute with."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self._sites = sites
        known = [site for site in sites if site.provenance.source]
        self._writers = _index((site, _bases(site, _WRITES)) for site in known)
        self._readers = _index((site, _bases(site, _READS)) for site in known)
        self._words = _index((site, _words(site.args)) for site in known)
        self._all = _index((site, ("",)) for site in known)

    def of(self, site: Site) -> Site | None:
        number = next(self._candidates(site), None)
        return None if number is None else self._sites[number]

    def _candidates(self, site: Site) -> Iterator[int]:
        made, used = _bases(site, _WRITES), _bases(site, _READS)
        yield from _before(site, self._writers, made)
        yield from _before(site, self._writers, used)
        yield from _after(site, self._readers, made)
        yield from _after(site, self._words, _numbers(site))
        yield from _before(site, self._all, ("",))
        yield from _after(site, self._all, ("",))


def _index(entries: Iterable[tuple[Site, Iterable[str]]]) -> _Index:
    found: dict[tuple[str, str], list[int]] = {}
    for site, keys in entries:
        for key in keys:
            found.setdefault((site.function, key), []).append(site.id)
    return found


def _before(site: Site, index: _Index, keys: Iterable[str]) -> Iterator[int]:
    """The last site before `site` under any of the keys."""
    lists = [index.get((site.function, key), []) for key in keys]
    found = [ids[n - 1] for ids in lists if (n := bisect.bisect_left(ids, site.id)) > 0]
    return iter([max(found)] if found else [])


def _after(site: Site, index: _Index, keys: Iterable[str]) -> Iterator[int]:
    """The first site after `site` under any of the keys."""
    lists = [index.get((site.function, key), []) for key in keys]
    found = [ids[n] for ids in lists if (n := bisect.bisect_right(ids, site.id)) < len(ids)]
    return iter([min(found)] if found else [])


def _bases(site: Site, roles: tuple[Role, ...]) -> set[str]:
    return {arg.base for arg in site.args if arg.base and arg.role in roles}


def _words(args: Iterable[Arg]) -> set[str]:
    """The variables that the numbers among the arguments are computed from."""
    return {word for arg in args if arg.form in _NUMBERS for word in _WORD.findall(arg.text)}


def _numbers(item: Site) -> set[str]:
    """The numbers that a site reads: `&u0_raw` there is `u0` elsewhere."""
    pointed = (expressions.variable(arg.text) for arg in item.args if arg.form is Form.SCALAR_REF)
    return {name.removesuffix("_raw") for name in pointed if name}
