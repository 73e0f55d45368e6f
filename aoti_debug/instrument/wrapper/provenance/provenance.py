"""The provenance of sites: the model lines and graph nodes that they come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from aoti_debug.base.errors import ArtifactError
from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.base.machine.files import json_data
from aoti_debug.instrument.wrapper.launches.sites import SiteCall
from aoti_debug.instrument.wrapper.provenance.inferred_lines import infer
from aoti_debug.package.manifest import Certainty, Provenance, Site
from aoti_debug.package.recording.stack_frames import own_frames


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
    return Provenance(
        certainty=Certainty.EXACT,
        handle=notes.handle,
        source=own_frames(record.stack_traces),
        stacks=record.stack_traces,
        post_grad_nodes=record.post_grad_nodes,
        pre_grad_nodes=record.pre_grad_nodes,
    )
