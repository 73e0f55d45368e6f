"""Which line of the model, and which nodes of its graphs, a site comes from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from aoti_debug.errors import ArtifactError
from aoti_debug.machine import json_data
from aoti_debug.manifest import Certainty, ModelLine, Provenance, Site
from aoti_debug.wrapper.inference import infer
from aoti_debug.wrapper.sites import FoundSites

_FRAME = re.compile(
    r'^\s*File "(?P<file>[^"\n]*)", line (?P<line>\d+), in (?P<function>[^\n]*)'
    r'(?:\n(?P<text>(?!\s*File ")[^\n]*))?',
    re.MULTILINE,
)
_TORCH_FILE = re.compile(r"^<|/(?:site|dist)-packages/torch/|/torch/(?:nn|fx|utils|export|_\w+|functional\.py)(?:/|$)")


def frames(stack: str) -> tuple[ModelLine, ...]:
    """The frames of a traced stack, outermost first."""
    return tuple(
        ModelLine(m["file"], int(m["line"]), m["function"].strip(), (m["text"] or "").strip())
        for m in _FRAME.finditer(stack)
    )


def own_frames(stacks: Sequence[str]) -> tuple[ModelLine, ...]:
    """Of each stack the innermost frame that is not torch's, each line once."""
    innermost = (
        next((frame for frame in reversed(frames(stack)) if not _TORCH_FILE.search(frame.file)), None)
        for stack in stacks
    )
    return tuple({(f.file, f.line): f for f in innermost if f is not None}.values())


@dataclass(frozen=True)
class KernelInformation:
    """What Inductor has recorded of one kernel."""

    stack_traces: tuple[str, ...] = ()
    post_grad_nodes: tuple[str, ...] = ()
    pre_grad_nodes: tuple[str, ...] = ()


def kernel_information(text: str) -> Mapping[str, KernelInformation]:
    """The content of `kernel_information.json`, {} for an empty text.

    Raises:
        ArtifactError: the text is no such JSON.
    """
    if not text.strip():
        return {}
    try:
        data = json_data.parse_object(text)
        return {name: json_data.from_data(KernelInformation, record, name) for name, record in data.items()}
    except json_data.DamagedJsonError as error:
        raise ArtifactError(f"kernel_information.json is damaged: {error}", hint="compile the model again") from error


def attach(found: Sequence[FoundSites], information: str) -> tuple[Site, ...]:
    """The sites with their provenance.

    A site that Inductor has recorded itself is exact. One without a record (index_put, scatter, bernoulli_, item,
    clone), or whose record names no line of the model, is inferred from the sites around it.

    Args:
        information: the text of `kernel_information.json`, or "".

    Raises:
        ArtifactError: `information` is damaged.
    """
    records = kernel_information(information)
    return infer([replace(f.site, provenance=_recorded(f, records)) for f in found])


def located(sites: Sequence[Site], stacks: Mapping[str, str]) -> tuple[Site, ...]:
    """The sites, those of custom operators where the exported program says that it calls them.

    Inductor's own record may be of what uses the result: a pass that reuses memory carries one node's stack to another.

    Args:
        stacks: by operator ("mylib::op.default"), of those that the program calls once.
    """
    calls = Counter(site.op for site in sites)
    return tuple(
        replace(site, provenance=_located(site.provenance, stacks[site.op]))
        if site.op in stacks and calls[site.op] == 1
        else site
        for site in sites
    )


def _located(provenance: Provenance, stack: str) -> Provenance:
    source = own_frames((stack,))
    if not source:
        return provenance
    return replace(provenance, certainty=Certainty.EXACT, source=source, stacks=(stack,))


def _recorded(found: FoundSites, records: Mapping[str, KernelInformation]) -> Provenance:
    notes = found.call.notes
    record = records.get(notes.handle)
    if record is None:
        return Provenance(Certainty.EXACT if notes.nodes else Certainty.NONE, notes.handle, pre_grad_nodes=notes.nodes)
    return Provenance(
        certainty=Certainty.EXACT,
        handle=notes.handle,
        source=own_frames(record.stack_traces),
        stacks=record.stack_traces,
        post_grad_nodes=record.post_grad_nodes,
        pre_grad_nodes=record.pre_grad_nodes,
    )
