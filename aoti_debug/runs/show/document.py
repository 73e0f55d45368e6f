"""A run as one JSON object (docs/show.schema.json). Non-finite numbers are strings: "nan", "inf", "-inf"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from aoti_debug.base.abi import Phase, SaveStatus
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import json_data
from aoti_debug.package import recording_settings
from aoti_debug.package.argument_values import Absent, Layout, Number, Tensor, Value
from aoti_debug.package.manifest import Arg, Form, Site
from aoti_debug.runs.diagnosis.findings import Finding, Place
from aoti_debug.runs.diagnosis.verdict import Verdict
from aoti_debug.runs.diagnosis.verdict_text import finding_of
from aoti_debug.runs.rundir.argument_statistics import Measurer
from aoti_debug.runs.rundir.formats.journal_records import FaultRecord, TensorFile, TensorStats
from aoti_debug.runs.rundir.formats.statistics import Statistics
from aoti_debug.runs.rundir.launch import Argument, Grid, Launch
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.show import text
from aoti_debug.runs.show.calls_and_replays import purpose_of
from aoti_debug.runs.show.overview import notes
from aoti_debug.runs.show.watchpoint_hits import watch_document

FORMAT = 1


def document(run: RunDir, verdict: Verdict | None, launches: Sequence[Launch], measurer: Measurer) -> dict[str, Any]:
    """The JSON object of a run.

    Args:
        launches: those to include.
        measurer: computes statistics of saved tensors.

    Raises:
        RunDirError: a saved tensor is missing or damaged.
    """
    info = run.info
    return {
        "format": FORMAT,
        **_outcome(run, verdict, finding_of(run, verdict)),
        "filters": list(info.filters),
        "module_filters": list(info.module_filters),
        "line_filters": list(info.line_filters),
        "phase": info.phase or None,
        "tool_version": info.tool_version,
        "pid": info.pid,
        "started": info.started,
        "host": info.host,
        "command": list(info.command),
        "faults": [_fault(fault) for fault in run.timeline.faults],
        "calls": [
            {
                "id": str(call),
                "thread": call.thread,
                "level": recording_settings.written_level(call.level),
                "capturing": call.capturing,
                "stream": hex(call.stream),
                "ended": call.ended,
                "failed": call.failed,
                "replays": call.replays,
                "purpose": None if (purpose := purpose_of(run, call)) is None else purpose.value,
            }
            for call in run.timeline.calls
        ],
        "launches": launch_documents(run, launches, measurer),
    }


def _outcome(run: RunDir, verdict: Verdict | None, finding: Finding) -> dict[str, Any]:
    """The members that say how a run ended."""
    info = run.info
    return {
        "run": run.path.name,
        "path": str(run.path),
        "package": None if run.package is None else str(run.package),
        "state": run.state.value,
        "exit": {
            **json_data.to_data(info.exit),
            "kind": info.exit.kind.value,
            "stage": info.exit.stage and info.exit.stage.value,
        },
        "level": recording_settings.written_level(run.level),
        "device": info.device,
        "torch_version": info.torch_version,
        "torch_settings": info.torch_settings,
        "verdict": None if verdict is None else _verdict(verdict),
        "finding": finding_document(finding),
        "watchpoints": watch_document(run),
        "notes": notes(run),
    }


def outcome_document(run: RunDir, verdict: Verdict | None, finding: Finding, overrun: Finding | None) -> dict[str, Any]:
    """The part of `aoti-debug run --json` on a run: how it ended, and how much it recorded, without its launches.

    Args:
        overrun: a launch that wrote out of bounds.
    """
    files = [saved for launch in run.launches for argument in launch.args for saved in argument.files.values()]
    return {
        **_outcome(run, verdict, finding),
        "overrun": None if overrun is None else finding_document(overrun),
        "calls": len(run.timeline.calls),
        "launches": len(run.launches),
        "tensors": Counter(saved.status.name.lower() for saved in files),
        "bytes": sum(saved.bytes for saved in files if saved.status is SaveStatus.WRITTEN),
        "timings": dict(run.info.timings),
    }


def launch_documents(run: RunDir, launches: Sequence[Launch], measurer: Measurer) -> list[dict[str, Any]]:
    """The launches of the JSON object of a run.

    Raises:
        RunDirError: a saved tensor is missing or damaged.
    """
    sites = {launch.site.id: launch.site for launch in launches}
    shared = {id_: _SiteDocument(_source(site), [_spec(spec) for spec in site.args]) for id_, site in sites.items()}
    return [_launch(run, launch, shared[launch.site.id], measurer) for launch in launches]


@dataclass(frozen=True)
class _SiteDocument:
    """The part of a launch's document that is the same for all launches of its site."""

    source: Mapping[str, Any]
    args: Sequence[Mapping[str, Any]]


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "what": verdict.what,
        "headline": verdict.headline,
        "proof": verdict.proof.value,
        "suspects": [launch.id for launch in verdict.suspects],
        "why": verdict.why,
        "surfaced": verdict.surfaced.id if verdict.surfaced else None,
        "frames": list(verdict.frames),
        "waits": list(verdict.waits),
        "next": list(verdict.next_commands),
    }


def finding_document(finding: Finding) -> dict[str, Any]:
    """A finding of a run."""
    place = finding.where or Place()
    return {
        "kind": finding.kind.value,
        "what": finding.what,
        "launch": place.launch or None,
        "argument": place.argument or None,
        "input": place.input or None,
        "evidence": list(finding.evidence),
        "notes": list(finding.warnings),
        "next": list(finding.next),
    }


def _fault(fault: FaultRecord) -> dict[str, Any]:
    return {
        "launch": str(fault.launch) if fault.launch else None,
        "domain": fault.domain.name.lower(),
        "code": fault.code,
        "text": fault.text,
    }


def _source(site: Site) -> dict[str, Any]:
    """The origin of a site's kernel in the model: the same for all its launches."""
    provenance = site.provenance
    return {
        "source": [json_data.to_data(frame) for frame in provenance.source],
        "provenance": {
            "certainty": provenance.certainty.value,
            "handle": provenance.handle or None,
            "stacks": list(provenance.stacks),
            "post_grad_nodes": list(provenance.post_grad_nodes),
            "pre_grad_nodes": list(provenance.pre_grad_nodes),
            "modules": list(provenance.modules),
        },
    }


def _launch(run: RunDir, launch: Launch, shared: _SiteDocument, measurer: Measurer) -> dict[str, Any]:
    site = launch.site
    return {
        "id": launch.id,
        "kernel": launch.kernel,
        "kind": site.kind.value,
        "op": site.op or None,
        "status": launch.status.value,
        "returned": launch.returned,
        "fault": None if launch.fault is None else _fault(launch.fault),
        "printed": launch.printed,
        "site": site.id,
        "function": site.function,
        "subgraph": site.subgraph or None,
        "loops": list(launch.loops),
        "thread": launch.thread,
        "stream": site.stream,
        "stream_slot": launch.stream_slot,
        "sequence": launch.sequence,
        "begin_ns": launch.begin_ns,
        "end_ns": launch.end_ns,
        "replay": launch.replay,
        "args": [_argument(run, a, spec, measurer) for a, spec in zip(launch.args, shared.args, strict=True)],
        "grids": [_grid(grid) for grid in launch.grids],
        **shared.source,
    }


def _spec(spec: Arg) -> dict[str, Any]:
    """An argument as its site has it."""
    return {
        "name": spec.name,
        "param": spec.param or None,
        "role": spec.role.name.lower(),
        "form": spec.form.name.lower(),
        "ctype": spec.ctype or None,
        "expression": spec.text,
        "base": spec.base or None,
    }


def _argument(run: RunDir, argument: Argument, spec: Mapping[str, Any], measurer: Measurer) -> dict[str, Any]:
    layout = argument.layout
    return {
        **spec,
        "type": _type(argument.after, layout),
        "value": _scalar(argument),
        "tensor": None if layout is None else _tensor(layout, argument.tensor),
        "before": _phase(run, argument, Phase.BEFORE, measurer),
        "after": _phase(run, argument, Phase.AFTER, measurer),
    }


def _type(value: Value, layout: Layout | None) -> str:
    if layout is not None:
        return "tensor"
    return "number" if isinstance(value, Number) else value.value if isinstance(value, Absent) else "tensor"


def _scalar(argument: Argument) -> Any:
    value = argument.after
    if isinstance(value, Number):
        return json_data.number(value.value)
    return argument.spec.text if value is Absent.TEXT or argument.spec.form is Form.STRING else None


def _tensor(layout: Layout, tensor: Tensor | None) -> dict[str, Any]:
    return {
        "dtype": layout.dtype,
        "device": layout.device,
        "layout": layout.kind,
        "shape": list(layout.shape),
        "strides": list(layout.strides),
        "storage_offset": layout.storage_offset,
        "storage_bytes": layout.storage_bytes,
        "data_ptr": None if tensor is None else hex(tensor.data_ptr),
    }


def _phase(run: RunDir, argument: Argument, phase: Phase, measurer: Measurer) -> dict[str, Any] | None:
    recorded, saved = argument.stats.get(phase), argument.files.get(phase)
    if recorded is None and saved is None:
        return None
    measurement = measurer.measure(argument, phase)
    dtype = recorded.layout.dtype if recorded and recorded.layout else ""
    values = text.decode(recorded.values, dtype) if recorded and recorded.values and dtype else None
    return {
        "statistics": None if measurement.statistics is None else _statistics(measurement.statistics),
        "reason": measurement.reason or None,
        "values": None if values is None else [json_data.number(value) for value in values],
        "hash": _hash(recorded, saved),
        "file": str(run.place_of(saved)) if saved and saved.path else None,
        "replay": recorded.replay if recorded else None,
    }


def _hash(recorded: TensorStats | None, saved: TensorFile | None) -> str | None:
    if recorded is not None:
        return None if recorded.hash is None else f"{recorded.hash:016x}"
    return None if saved is None else f"{saved.hash[0]:016x}{saved.hash[1]:016x}"


def _statistics(statistics: Statistics) -> dict[str, Any]:
    return {name: None if value is None else json_data.number(value) for name, value in statistics._asdict().items()}


def _grid(grid: Grid) -> dict[str, Any]:
    return {
        "kernel": grid.kernel,
        "grid": list(grid.grid),
        "num_warps": grid.num_warps,
        "shared_bytes": grid.shared_bytes,
        "arguments": [
            {"name": a.name, "ctype": a.ctype or None, "value": json_data.number(a.value.value)} for a in grid.arguments
        ],
    }
