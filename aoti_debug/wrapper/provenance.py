"""Which line of the model, and which nodes of its graphs, a site comes from."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from aoti_debug.errors import ArtifactError
from aoti_debug.manifest import Arg, Certainty, Form, Frame, Kind, Provenance, Role, Site
from aoti_debug.wrapper import expressions
from aoti_debug.wrapper.sites import Found

_FRAME = re.compile(
    r'^\s*File "(?P<file>[^"\n]*)", line (?P<line>\d+), in (?P<function>[^\n]*)'
    r'(?:\n(?P<text>(?!\s*File ")[^\n]*))?',
    re.MULTILINE,
)
_TORCH_FILE = re.compile(r"^<|/(?:site|dist)-packages/torch/|/torch/(?:nn|fx|utils|export|_\w+|functional\.py)(?:/|$)")
_WRITES = (Role.OUT, Role.INOUT, Role.UNKNOWN)
_READS = (Role.IN, Role.INOUT, Role.UNKNOWN)


def frames(stack: str) -> tuple[Frame, ...]:
    """The frames of a traced stack, outermost first."""
    return tuple(
        Frame(m["file"], int(m["line"]), m["function"].strip(), (m["text"] or "").strip())
        for m in _FRAME.finditer(stack)
    )


def own_frames(stacks: Sequence[str]) -> tuple[Frame, ...]:
    """Of each stack the innermost frame that is not torch's, each line once."""
    innermost = (
        next((frame for frame in reversed(frames(stack)) if not _TORCH_FILE.search(frame.file)), None)
        for stack in stacks
    )
    return tuple({(f.file, f.line): f for f in innermost if f is not None}.values())


def kernel_information(text: str) -> Mapping[str, Mapping[str, Any]]:
    """The content of `kernel_information.json`, {} for an empty text.

    Raises:
        ArtifactError: the text is no such JSON.
    """
    if not text.strip():
        return {}
    try:
        data = json.loads(text)
    except ValueError as error:
        raise ArtifactError(f"kernel_information.json is damaged: {error}", hint="lower the model again") from error
    if not isinstance(data, dict):
        raise ArtifactError("kernel_information.json is no JSON object", hint="lower the model again")
    return data


def attach(found: Sequence[Found], information: str) -> tuple[Site, ...]:
    """The sites with their provenance.

    A site that Inductor has recorded itself is exact. One without a record (index_put, scatter, bernoulli_, item,
    clone) is inferred from the site that wrote what it works on, else from one that uses what it makes, else from the
    nearest site of its function.

    Args:
        information: the text of `kernel_information.json`, or "".

    Raises:
        ArtifactError: `information` is damaged.
    """
    records = kernel_information(information)
    recorded = [replace(f.site, provenance=_recorded(f, records)) for f in found]
    return tuple(
        site if site.provenance.source else replace(site, provenance=_inferred(i, recorded))
        for i, site in enumerate(recorded)
    )


def _recorded(found: Found, records: Mapping[str, Mapping[str, Any]]) -> Provenance:
    notes = found.call.notes
    record = records.get(notes.handle)
    if record is None:
        return Provenance(Certainty.EXACT if notes.nodes else Certainty.NONE, notes.handle, pre_grad_nodes=notes.nodes)
    stacks = tuple(record.get("stack_traces", ()))
    return Provenance(
        certainty=Certainty.EXACT,
        handle=notes.handle,
        source=own_frames(stacks),
        stacks=stacks,
        post_grad_nodes=tuple(record.get("post_grad_nodes", ())),
        pre_grad_nodes=tuple(record.get("pre_grad_nodes", ())),
    )


def _inferred(i: int, sites: Sequence[Site]) -> Provenance:
    """What is known of a site without source lines, completed by what is known of another."""
    own = sites[i].provenance
    donor = next((site.provenance for site in _donors(i, sites) if site.provenance.source), None)
    if donor is None:
        return own
    source = _mentioning(_word(sites[i]), donor.source)
    if own.certainty is Certainty.NONE:
        return replace(donor, certainty=Certainty.INFERRED, handle="", source=source)
    return replace(own, certainty=Certainty.INFERRED, source=source, stacks=donor.stacks)


def _word(site: Site) -> str:
    """What the model's source calls the operator of a site: "scatter", "bernoulli", "item"."""
    if site.kind is Kind.ITEM:
        return "item"
    operator = re.split(r"::|\.", site.op)[1] if site.op else ""
    return next((word for word in operator.split("_") if word), "") if operator != "index_put" else operator


def _mentioning(word: str, source: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The frames whose line contains the word; all of them if none does."""
    return tuple(frame for frame in source if word and word in frame.text) or source


def _donors(i: int, sites: Sequence[Site]) -> Iterator[Site]:
    """The sites that may tell where site `i` comes from, the best first."""
    site = sites[i]
    before = [s for s in reversed(sites[:i]) if s.function == site.function]
    after = [s for s in sites[i + 1 :] if s.function == site.function]
    made, used = _bases(site, _WRITES), _bases(site, _READS)
    yield from _touching(before, made, lambda arg: arg.role in _WRITES)
    yield from _touching(before, used, lambda arg: arg.role in _WRITES)
    yield from _touching(after, made, lambda arg: arg.role in _READS)
    yield from _computing_with(after, site)
    yield from before
    yield from after


def _computing_with(sites: Sequence[Site], item: Site) -> Iterator[Site]:
    """The sites that take the number that `item` reads: `&u0_raw` there is `u0` here."""
    numbers = [expressions.variable(a.text).removesuffix("_raw") for a in item.args if a.form is Form.SCALAR_REF]
    words = [re.compile(rf"\b{number}\b") for number in numbers if number]
    return (site for site in sites if any(word.search(arg.text) for word in words for arg in site.args))


def _bases(site: Site, roles: tuple[Role, ...]) -> set[str]:
    return {arg.base for arg in site.args if arg.base and arg.role in roles}


def _touching(sites: Sequence[Site], bases: set[str], how: Callable[[Arg], bool]) -> Iterator[Site]:
    return (site for site in sites if any(arg.base in bases and how(arg) for arg in site.args))
