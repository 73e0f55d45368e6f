"""A profile as a trace, in the format that Perfetto and chrome://tracing show."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from aoti_debug.base.abi import CallKind
from aoti_debug.base.frozen import dataclass
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.show import text
from aoti_debug.views.profile.device_calls import DeviceCall, complete_calls

CALL, LAUNCH = "call", "launch"
_NS_PER_UNIT = 1000  # times of the format are in microseconds
_PROCESS = 1


@dataclass(frozen=True)
class TimeSlice:
    """A call or a launch in time.

    Attributes:
        category: CALL or LAUNCH.
        begin_ns: nanoseconds from the beginning of the recording.
        thread: the id of the thread that it went on in, or the number of the GPU's stream.
        facts: what a viewer shows beside it, by name.
    """

    name: str
    category: str
    begin_ns: int
    duration_ns: int
    thread: int
    facts: Mapping[str, str] = field(default_factory=dict)
    on_device: bool = False


def slices(run: RunDir, warm_up: int, on_device: Sequence[DeviceCall] | None = None) -> Iterator[TimeSlice]:
    """Yields the calls that returned, and their launches that did; with the profiler of a GPU, its kernels instead.

    Args:
        warm_up: the number of calls that count as warming up.
        on_device: what that profiler has recorded; None without it.
    """
    return _on_host(run, warm_up) if on_device is None else _on_device(on_device)


def _on_device(calls: Sequence[DeviceCall]) -> Iterator[TimeSlice]:
    """Yields calls or replays, and the work of the GPU in them."""
    start = calls[0].begin_ns if calls else 0
    for call in calls:
        streams = Counter(work.activity.stream for work in call.works)
        kind = "call" if call.replay_of is None else "replay"
        ((main, _),) = streams.most_common(1) or ((0, 0),)
        yield TimeSlice(
            f"{kind} {call.number}", CALL, call.begin_ns - start, call.end_ns - call.begin_ns, main, on_device=True
        )
        for work in call.works:
            one = work.activity
            facts = {} if work.launch is None else _facts(work.launch)
            yield TimeSlice(one.name, LAUNCH, one.begin_ns - start, one.duration_ns, one.stream, facts, on_device=True)


def _on_host(run: RunDir, warm_up: int) -> Iterator[TimeSlice]:
    known = set()
    for call in complete_calls(run):
        known.add(call.call)
        assert call.end_ns is not None
        facts = {"warm-up": "yes"} if call.call < warm_up else {}
        yield TimeSlice(f"call {call.call}", CALL, call.begin_ns, call.end_ns - call.begin_ns, call.thread, facts)
    for launch in run.launches:
        if launch.end_ns is not None and launch.key.kind is CallKind.MODEL and launch.key.call in known:
            duration = launch.end_ns - launch.begin_ns
            yield TimeSlice(launch.kernel, LAUNCH, launch.begin_ns, duration, launch.thread, _facts(launch))


def _facts(launch: Launch) -> dict[str, str]:
    facts = {"launch": launch.id}
    provenance = launch.site.provenance
    if provenance.source:
        facts["model line"] = text.model_line(provenance)
        facts["source"] = provenance.source[0].text.strip()
    if provenance.modules:
        facts["module"] = ", ".join(provenance.modules)
    if launch.loops:
        facts["iteration"] = ", ".join(map(str, launch.loops))
    for argument in launch.args:
        if argument.layout is not None:
            facts[f"{text.ROLES[argument.role]} {argument.name}".strip()] = text.shape(argument.layout)
    return facts


def trace_text(slices: Iterable[TimeSlice], title: str) -> str:
    """A trace in Chrome's JSON format: a slice that lies within another one of its thread is drawn below it.

    Args:
        title: the name of the process.
    """
    events = [_name("process_name", title, 0)]
    ordered = sorted(slices, key=lambda one: (one.begin_ns, -one.duration_ns))
    for on_device, thread in sorted({(one.on_device, one.thread) for one in ordered}):
        events.append(_name("thread_name", f"{'GPU stream' if on_device else 'thread'} {thread}", thread))
    events += [_event(one) for one in ordered]
    lines = ",\n".join(json.dumps(event, ensure_ascii=False) for event in events)
    return f'{{"displayTimeUnit": "ns", "traceEvents": [\n{lines}\n]}}\n'


def _name(what: str, name: str, thread: int) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": _PROCESS, "tid": thread, "args": {"name": name}}


def _event(one: TimeSlice) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": one.name,
        "cat": one.category,
        "ts": one.begin_ns / _NS_PER_UNIT,
        "dur": one.duration_ns / _NS_PER_UNIT,
        "pid": _PROCESS,
        "tid": one.thread,
        "args": dict(one.facts),
    }
